"""How an operation is called in C: small values that the C backend renders."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Rounding, Tensor, Window1D

MAX_ROWS = "DIAGMEM_MAX_ROWS"
"""Limit: rows of the largest window."""

MAX_TAPS = "DIAGMEM_MAX_TAPS"
"""Limit: pixels of the largest window."""

TYPES = (DType.INT8, DType.INT16, DType.FLOAT32)
"""The types of elements that most kernels are written for."""

QUANTISED_OR_REAL = (*TYPES, DType.UINT8)
"""The same, and that of networks which an older converter has quantised."""

SUFFIXES = {
    DType.INT8: "s8",
    DType.UINT8: "u8",
    DType.INT16: "s16",
    DType.INT32: "s32",
    DType.INT64: "s64",
    DType.FLOAT32: "f32",
}
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
) -> CCall:
    """The call of the one kernel in `stem`.c, by the names that such a file uses."""
    parameters = CStruct(f"diagmem_{stem}_params", fields)
    return CCall(f"{stem}.c", f"diagmem_{stem}", parameters, arguments, limits or {}, passes=passes)


_ELEMENT_CODES = {
    DType.BOOL: 0,
    DType.INT8: 1,
    DType.UINT8: 2,
    DType.INT16: 3,
    DType.INT32: 4,
    DType.INT64: 5,
    DType.FLOAT32: 6,
    DType.UINT32: 7,
}
"""The numbers that `_element.h` gives to types."""


def element_code(dtype: DType) -> int:
    """The number by which kernels for any type know this one."""
    if dtype not in _ELEMENT_CODES:
        raise Unsupported(f"{dtype.value} elements; supported: {', '.join(d.value for d in _ELEMENT_CODES)}")
    return _ELEMENT_CODES[dtype]


def by_type(node: Node, choices: Mapping[DType, Callable[[Node], CCall]]) -> CCall:
    """The call for the type of the first input."""
    dtype = node.input(0).dtype
    if not choices:
        raise Unsupported("the C backend has no kernel for it")
    if dtype not in choices:
        raise Unsupported(f"{dtype.value} elements; supported: {', '.join(d.value for d in choices)}")
    if dtype is DType.UINT8:
        refuse_unsigned_to_even(node)
    return choices[dtype](node)


def refuse_unsigned_to_even(node: Node) -> None:
    """Kernels for unsigned numbers compute as LiteRT does, and not as ONNX asks for."""
    found = node.output.quantisation
    if found is not None and found.rounding is Rounding.ONNX:
        raise Unsupported("uint8 elements whose halves are rounded to even; supported so: int8")


def require_types(dtype: DType, tensors: Iterable[Tensor]) -> None:
    """Raises Unsupported unless all have elements of this type."""
    for tensor in tensors:
        if tensor.dtype is not dtype:
            raise Unsupported(f"'{tensor.label}' has {tensor.dtype.value} elements; supported here: {dtype.value}")


def values_of(tensor: Tensor) -> npt.NDArray[Any]:
    """The values of a constant, which the model must hold."""
    if tensor.data is None:
        reason = "are not in the model" if tensor.is_constant else "are computed, and must be constant"
        raise Unsupported(f"the values of '{tensor.label}' {reason}")
    return tensor.data
