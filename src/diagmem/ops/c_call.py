"""How an operation is called in C, whole and for one row: small values that the C backend renders. And which constants
of a call are copied to RAM before it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Rounding, Tensor, Window1D
from diagmem.ops.options import facts_of_types

MAX_ROWS = "DIAGMEM_MAX_ROWS"
"""Limit: rows of the largest window."""

MAX_TAPS = "DIAGMEM_MAX_TAPS"
"""Limit: pixels of the largest window."""

TYPES = (DType.INT8, DType.INT16, DType.FLOAT32)
"""The types of elements that most kernels are written for."""

QUANTISED_OR_FLOAT = (*TYPES, DType.UINT8)
"""The same, and that of networks which an older converter has quantised."""

SUFFIXES: Mapping[DType, str] = facts_of_types("suffix")
"""How kernels are named after the type of their elements."""


class Unsupported(ModelError):
    """An operation that has no kernel; the message says why, and what there is. Who catches it says which operation."""


@dataclass(frozen=True, slots=True, eq=False)
class CTable:
    """Constant data in flash. `name` says what they are to the operation: filter, bias, …"""

    name: str
    data: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CName:
    """Something that the kernel's source defines, by its name: a function."""

    name: str


CValue = Union[int, float, tuple[int, ...], CTable, CName, "CStruct", None]
"""What a field may hold; None is a null pointer."""

Fields = Mapping[str, Any]
"""Names and values of a C struct's fields; the values are CValue's."""


@dataclass(frozen=True, slots=True)
class CStruct:
    """A constant of the C type `type`."""

    type: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class CRow:
    """The address of one row of a tensor: at turn y that of row `first + y * step`, or of `rows[y]` where these are
    given; NULL where there is none."""

    tensor: Tensor
    first: int = 0
    step: int = 1
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CRows:
    """An array of the addresses of the rows under the window of output row y, at turn y; NULL for those outside. Where
    `is_transposed`, the window slides over the output, and the rows are those that reach y, from the first on."""

    tensor: Tensor
    window: Window1D
    is_transposed: bool = False


class CTurn(enum.Enum):
    """What else a kernel that works row by row is told: the turn, how many there are, and where it keeps its sums."""

    NUMBER = "number"
    COUNT = "count"
    SUMS = "sums"


@dataclass(frozen=True, slots=True)
class CScratch:
    """The address of what the kernel takes from the arena while it runs."""


@dataclass(frozen=True, slots=True)
class CPointers:
    """An array of the addresses of several tensors, or rows, constant data unless the kernel writes there."""

    tensors: tuple[Tensor | CRow, ...]
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class CChannels:
    """How a call is narrowed to some of its output channels: which fields then say how many there are, in which tables
    all channels have parts of one size, and whether the input has the same channels. `blocks`: tables in which each
    whole block of channels has so many numbers, though those behind the last one have others."""

    sizes: tuple[str, ...]
    tables: frozenset[str]
    are_of_input: bool = False
    blocks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CStretch:
    """How a call is narrowed to some of the `units` that lie one behind the other along the outermost axis of what it
    makes: which field says how many there are, how many elements each of its tensors moves on for one of them, and by
    how much other fields grow."""

    units: int
    size: str
    steps: tuple[int, ...]
    moves: Mapping[str, int] = field(default_factory=dict)


CArgument = Tensor | CPointers | CRow | CRows | CTurn | CScratch


@dataclass(frozen=True, slots=True)
class CCall:
    """The call `function(&parameters, argument, …)` of a kernel in the file `source` beside the op kind's own.

    `arguments`: the tensors whose addresses are passed, in the arena or, if constant, in flash. `limits`: C macros that
    bound what the kernel keeps on the stack; a program defines each as the largest that any of its calls asks for.
    `channels`, `stretch`: how it is narrowed to some of its channels, or to a stretch, where that is possible.
    `passes`: how often a run of the whole operation goes over the constant data, also where it goes row by row.
    """

    source: str
    function: str
    parameters: CStruct
    arguments: tuple[CArgument, ...]
    limits: Mapping[str, int] = field(default_factory=dict)
    channels: CChannels | None = None
    stretch: CStretch | None = None
    passes: int = 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors whose addresses are passed."""
        return tuple(tensor for argument in self.arguments for tensor in _tensors(argument))


def _tensors(argument: CArgument) -> tuple[Tensor, ...]:
    if isinstance(argument, CPointers):
        return tuple(tensor for one in argument.tensors for tensor in _tensors(one))
    if isinstance(argument, CTurn | CScratch):
        return ()
    return (argument,) if isinstance(argument, Tensor) else (argument.tensor,)


def kernel_call(
    stem: str,
    fields: Fields,
    arguments: tuple[CArgument, ...],
    limits: Mapping[str, int] | None = None,
    passes: int = 1,
    *,
    function: str = "",
    struct: str = "",
) -> CCall:
    """The call of a kernel in `stem`.c. `function`, `struct`: what the function and its parameters are named after, if
    not after the file."""
    parameters = CStruct(f"diagmem_{struct or stem}_params", fields)
    return CCall(f"{stem}.c", f"diagmem_{function or stem}", parameters, arguments, limits or {}, passes=passes)


_ELEMENT_CODES: Mapping[DType, int] = facts_of_types("element")
"""The numbers that `_element.h` gives to types."""


def element_code(dtype: DType) -> int:
    """The number by which kernels for any type know this one."""
    if dtype not in _ELEMENT_CODES:
        known = sorted(_ELEMENT_CODES, key=lambda one: _ELEMENT_CODES[one])
        raise Unsupported(f"{dtype.value} elements; supported: {', '.join(one.value for one in known)}")
    return _ELEMENT_CODES[dtype]


def by_type(node: Node, choices: Mapping[DType, Callable[[Node], CCall]], data: int = 0) -> CCall:
    """The call for the type of the data, the first input by default."""
    dtype = node.input(data).dtype
    if not choices:
        raise Unsupported("the C backend has no kernel for it")
    if dtype not in choices:
        raise Unsupported(f"{dtype.value} elements; supported: {', '.join(d.value for d in choices)}")
    if dtype is DType.UINT8:
        # Kernels for unsigned numbers compute as LiteRT does, and not as ONNX asks for.
        found = node.output.quantisation
        if found is not None and found.rounding is Rounding.ONNX:
            raise Unsupported("uint8 elements whose halves are rounded to even; supported so: int8")
    return choices[dtype](node)


def require_types(dtype: DType, tensors: Iterable[Tensor]) -> None:
    """Raises Unsupported unless all have elements of this type."""
    for tensor in tensors:
        if tensor.dtype is not dtype:
            raise Unsupported(f"'{tensor.label}' has {tensor.dtype.value} elements; supported here: {dtype.value}")


def require_operands(node: Node, *types: DType) -> None:
    """Raises Unsupported unless inputs and outputs, in this order, have elements of these types."""
    for dtype, tensor in zip(types, (*node.inputs, *node.outputs), strict=True):
        require_types(dtype, () if tensor is None else (tensor,))


def values_of(tensor: Tensor) -> npt.NDArray[Any]:
    """The values of a constant, which the model must hold."""
    if tensor.data is None:
        reason = "are not in the model" if tensor.is_constant else "are computed, and must be constant"
        raise Unsupported(f"the values of '{tensor.label}' {reason}")
    return tensor.data


def joined_axes(limit: int, sizes: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Sizes, and each row of strides, for exactly `limit` axes that visit the same elements in the same order.

    Neighbours that run on evenly in all strides become one axis; axes of size 1 are left out, or put in front.
    """
    axes: list[tuple[int, ...]] = []
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(outer == step * size for outer, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, *steps)
        else:
            axes.append((size, *steps))
    if len(axes) > limit:
        raise Unsupported(f"{len(axes)} axes that cannot be joined; at most {limit} are supported")
    blank = (1, *(0 for _ in strides))
    return tuple(zip(*([blank] * (limit - len(axes)) + axes), strict=True))


def outermost(sizes: Sequence[int]) -> int:
    """The first axis of more than one index; the last, if there is none."""
    return next((axis for axis, size in enumerate(sizes) if size > 1), len(sizes) - 1)


def is_row_local(node: Node) -> bool:
    """Whether tensors have such shapes that row y of the output can be made of row y of each input, or of the only one
    that it has. What an operation does with them is another matter."""
    return len(node.outputs) == 1 and _has_rows(node.output) and all(_fits(t, node.output) for t in node.inputs if t)


def _has_rows(tensor: Tensor) -> bool:
    return len(tensor.shape) == 4 and tensor.shape[0] == 1


def _fits(tensor: Tensor, output: Tensor) -> bool:
    """A constant cannot be cut into rows."""
    if _has_rows(tensor):
        return tensor.shape[1] == 1 or (tensor.shape[1] == output.shape[1] and not tensor.is_constant)
    return len(tensor.shape) <= 2 or (len(tensor.shape) == 3 and tensor.shape[0] == 1)


def cut_to_row(node: Node) -> Node:
    """The node with tensors that are one row high."""
    return replace(
        node,
        inputs=tuple(None if t is None else _one_row(t) for t in node.inputs),
        outputs=tuple(_one_row(t) for t in node.outputs),
    )


def _one_row(tensor: Tensor) -> Tensor:
    if not _has_rows(tensor) or tensor.is_constant:
        return tensor
    return replace(tensor, shape=(1, 1, *tensor.shape[2:]))


def row_call(call: CCall, node: Node) -> CCall:
    """The call of a kernel for whole tensors, made for the node cut to a row, as that of one row of the node."""
    whole = {t.index: t for t in (*node.inputs, *node.outputs) if t is not None}

    def row(tensor: Tensor | CRow) -> Tensor | CRow:
        if isinstance(tensor, CRow) or tensor.is_constant:
            return tensor
        found = whole[tensor.index]
        return CRow(found, step=1 if _has_rows(found) and found.shape[1] > 1 else 0)

    def by_rows(argument: CArgument) -> CArgument:
        if isinstance(argument, CPointers):
            return replace(argument, tensors=tuple(row(t) for t in argument.tensors))
        return row(argument) if isinstance(argument, Tensor) else argument

    arguments = tuple(by_rows(a) for a in call.arguments)
    return replace(call, arguments=arguments, passes=call.passes * node.output.rows)


def window_row_call(call: CCall, node: Node, rows: Window1D) -> CCall:
    """The call of a windowed kernel's row function, from the call of the kernel."""
    further = (argument for argument in call.arguments if isinstance(argument, CScratch))
    arguments: tuple[CArgument, ...] = (CRows(node.input(0), rows), CRow(node.output), *further)
    return replace(call, function=f"{call.function}_row", arguments=arguments)


def taking_call(call: CCall, node: Node) -> CCall:
    """The call that takes one input row into sums, and makes the output of them when it has taken the last one."""
    arguments = (CTurn.NUMBER, CTurn.COUNT, CRow(node.input(0)), CTurn.SUMS, CRow(node.output, step=0))
    return replace(call, function=f"{call.function}_take", arguments=arguments, limits={})


LEAST_ALIGN = 4
"""Kernels load weights in words, and so do most that copy."""

READ_ONCE = frozenset(("padding",))
"""Tables that are looked at along the edge of an image only."""


@dataclass(frozen=True, slots=True, eq=False)
class CopiedConstant:
    """Data at an offset of the copy. `source`: a table, whose address the kernel finds in the `field` of its
    parameters, such as output.bias; or a constant tensor, whose address it is given."""

    source: CTable | Tensor
    data: npt.NDArray[Any]
    field: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class WeightCopies:
    """All constants that a call reads over and over, one behind the other. `passes`: how often a run reads each."""

    parts: tuple[CopiedConstant, ...]
    size_bytes: int
    align_bytes: int
    passes: int


def weight_copies(call: CCall) -> WeightCopies | None:
    """What of a call can be copied; None where it has no constants."""
    parts: list[CopiedConstant] = []
    end, widest = 0, LEAST_ALIGN
    for source, path, data in _constants(call):
        align = max(LEAST_ALIGN, data.dtype.itemsize)
        offset = -(-end // align) * align
        parts.append(CopiedConstant(source, data, path, offset))
        end, widest = offset + data.nbytes, max(widest, align)
    return WeightCopies(tuple(parts), end, widest, call.passes) if parts else None


def _constants(call: CCall) -> Iterator[tuple[CTable | Tensor, str, npt.NDArray[Any]]]:
    for table, path in _tables(call.parameters):
        if table.name not in READ_ONCE and table.data.nbytes:
            yield table, path, table.data
    for tensor in dict.fromkeys(t for t in call.tensors if t.is_constant and t.elems):
        yield tensor, "", values_of(tensor)


def _tables(struct: CStruct, before: str = "") -> Iterator[tuple[CTable, str]]:
    for name, value in struct.fields.items():
        if isinstance(value, CTable):
            yield value, f"{before}{name}"
        elif isinstance(value, CStruct):
            yield from _tables(value, f"{before}{name}.")
