"""The model as a value: tensors, operations, the graph.

Nothing here changes once made. Intervals are half-open; sizes carry their unit in the name.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError, one_line
from diagmem.model.sliding_window import ExplicitPadding as ExplicitPadding
from diagmem.model.sliding_window import IntArray as IntArray
from diagmem.model.sliding_window import Nhwc as Nhwc
from diagmem.model.sliding_window import Padding as Padding
from diagmem.model.sliding_window import Window1D as Window1D
from diagmem.model.sliding_window import Window2D as Window2D

Shape = tuple[int, ...]

Strides = tuple[int, ...]
"""Elements between neighbours along each axis."""

ABSENT = -1
"""Index of an optional input that is not given."""


class DType(enum.Enum):
    """Element types. The value is the name that numpy knows, where it knows one."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT4 = "int4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        return _BITS[self]

    @property
    def size_bytes(self) -> int:
        """Bytes of one element as it lies in the arena (int4 exists only in constants)."""
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.value)


_BITS = {dtype: 4 if dtype is DType.INT4 else 8 * dtype.numpy.itemsize for dtype in DType}


class Rounding(enum.Enum):
    """How results become stored values. TensorFlow Lite's reference kernels scale in fixed point and round twice;
    onnxruntime scales in float32 and rounds once, halves to even. Where its values have no sign, ours are 128
    lower, and sums that have the zero point in them are rounded where they were."""

    TFLITE = "tflite"
    ONNX = "onnx"
    ONNX_UNSIGNED = "onnx-unsigned"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """real = scale * (stored - zero_point); one pair, or one for each index along `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0
    rounding: Rounding = Rounding.TFLITE

    @property
    def per_channel(self) -> bool:
        return len(self.scales) > 1


# Where the elements of a tensor lie when it is part of another one: they are counted in row-major order of its own
# shape, their places in elements of the tensor that holds them.


@dataclass(frozen=True, slots=True)
class View:
    """A tensor without bytes of its own: its first element is element `offset_elems` of the tensor `base`, which is no
    view itself; along each axis its neighbours lie `strides` apart."""

    base: int
    offset_elems: int
    strides: Strides


def row_major_strides(shape: Sequence[int]) -> Strides:
    """The strides of a tensor that lies in one piece."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def in_one_piece(shape: Sequence[int], strides: Strides) -> bool:
    """Whether elements in row-major order are neighbours. Along an axis of size 1 there are none."""
    dense = row_major_strides(shape)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, dense, strict=True)) or 0 in shape


def span(shape: Sequence[int], strides: Strides) -> int:
    """Elements from the first to the last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def places(shape: Sequence[int], strides: Strides) -> IntArray:
    """The place of every element, counted from the first."""
    found = np.zeros(1, dtype=np.int64)
    for size, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The stretches of neighbours that a tensor falls into, all of one length, in the order of its elements. `starts`
    are counted from the first element."""

    starts: IntArray
    length: int

    def places_of(self, elements: IntArray) -> IntArray:
        """The places of some elements, counted from the first."""
        return self.starts[elements // self.length] + elements % self.length


@lru_cache(maxsize=256)
def pieces(shape: tuple[int, ...], strides: Strides) -> Pieces:
    """As few as possible."""
    if 0 in shape:
        return Pieces(np.zeros(0, dtype=np.int64), 0)
    length, outer = 1, len(shape)
    while outer and (shape[outer - 1] == 1 or strides[outer - 1] == length):
        outer -= 1
        length *= shape[outer]
    return Pieces(places(shape[:outer], strides[:outer]), length)


def strides_of(shape: Sequence[int], found: IntArray) -> Strides | None:
    """The strides of a tensor whose elements lie at the places `found`; None if no strides express them."""
    if not found.size:
        return row_major_strides(shape)
    at = found.reshape(shape)
    strides = tuple(
        int(np.take(at, 1, axis).flat[0] - at.flat[0]) if size > 1 else math.prod(shape[axis + 1 :])
        for axis, size in enumerate(shape)
    )
    return strides if (places(shape, strides) + found[0] == found).all() else None


def share(a: Pieces, a_offset: int, b: Pieces, b_offset: int) -> bool:
    """Whether any element is in both."""
    if not len(a.starts) or not len(b.starts):
        return False
    low, high = np.sort(a.starts) + a_offset, b.starts + b_offset
    below = np.searchsorted(low, high + b.length) - 1
    return bool(((below >= 0) & (low[below] + a.length > high)).any())


def distinct(values: IntArray) -> IntArray:
    """The values, each once, ascending. `np.unique` would load all of masked arrays first, which takes as long as
    planning a small model."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph. A constant's `data` is None where only its shape is known (a zoo graph, a stub).

    A variable holds state: it is there before a run, and what it is after a run it is before the next one. `initial`:
    what it is before the first; None: its zero point.

    `view`: where it lies, if inside another tensor; such a tensor is never a graph output, and a graph input only where
    it lies beside state, in one piece. `channels`: which indices of the last axis of the model's tensor it has, where a
    transform has taken some out; None: all.
    """

    index: int
    name: str
    shape: Shape
    dtype: DType
    quantisation: Quantisation | None = None
    is_constant: bool = False
    is_variable: bool = False
    data: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)
    view: View | None = None
    initial: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)
    channels: tuple[int, ...] | None = None

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def base(self) -> int:
        """The tensor whose bytes it uses: itself, or the one that it is a view of."""
        return self.index if self.view is None else self.view.base

    @property
    def strides(self) -> Strides:
        """Elements between neighbours along each axis."""
        return row_major_strides(self.shape) if self.view is None else self.view.strides

    @property
    def offset_bytes(self) -> int:
        """From the start of its base to its first element."""
        return 0 if self.view is None else self.view.offset_elems * self.dtype.size_bytes

    @property
    def span_bytes(self) -> int:
        """From the start of its first element to the end of its last one."""
        return self.size_bytes if self.view is None else span(self.shape, self.strides) * self.dtype.size_bytes

    @property
    def is_in_one_piece(self) -> bool:
        """Whether its elements are neighbours, so that its address is all that a kernel must know."""
        return self.view is None or in_one_piece(self.shape, self.strides)

    def shares_elements_with(self, other: Tensor) -> bool:
        """Whether both lie in the same tensor, and any element of it is in both."""
        both = self, other
        low, high = max(t.offset_bytes for t in both), min(t.offset_bytes + t.span_bytes for t in both)
        if self.base != other.base or low >= high:
            return False
        parts = [pieces(t.shape, t.strides) for t in both]
        offsets = [0 if t.view is None else t.view.offset_elems for t in both]
        return share(parts[0], offsets[0], parts[1], offsets[1])

    @property
    def size_bytes(self) -> int:
        return (self.elems * self.dtype.bits + 7) // 8

    @property
    def rows(self) -> int:
        """How many rows it has. A *row* is one index of an image's height axis (batch 1, height, width, depth); any
        other tensor is one row."""
        return self.shape[1] if len(self.shape) == 4 and self.shape[0] == 1 else 1

    @property
    def row_bytes(self) -> int:
        return self.size_bytes // self.rows

    @property
    def row_span_bytes(self) -> int:
        """From the start of a row's first element to the end of its last one."""
        if self.view is None:
            return self.row_bytes
        shape = self.shape if self.rows == 1 else (1, 1, *self.shape[2:])
        return span(shape, self.strides) * self.dtype.size_bytes

    @property
    def label(self) -> str:
        """The name as it may be printed on one line."""
        return one_line(self.name) or f"tensor {self.index}"

    @property
    def first_values(self) -> npt.NDArray[Any]:
        """What a variable is before the first run: zeros, as its type has them where it is quantised."""
        if self.initial is not None:
            return self.initial
        is_quantised = self.quantisation is not None and self.dtype in (DType.INT8, DType.UINT8, DType.INT16)
        zero_point = self.quantisation.zero_points[0] if self.quantisation and is_quantised else 0
        return np.full(self.shape, zero_point, self.dtype.numpy)

    @property
    def ints(self) -> tuple[int, ...]:
        """The values of a small integer constant (axes, paddings, a new shape), flattened."""
        if self.data is None:
            raise ModelError(
                f"tensor {self.index} '{self.label}': its values are needed and must be constant in the file"
            )
        return tuple(int(v) for v in self.data.reshape(-1))


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. `attributes` is the frozen dataclass that the kind's file in `ops/` defines.

    `index` is its place in the graph; `origin` that in the model's file, where another one stands there by now.
    """

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Any = None
    origin: int | None = None

    @property
    def number(self) -> int:
        """Its index in the model's file."""
        return self.index if self.origin is None else self.origin


MOST_ELEMS = 1 << 25
"""Of what an operation reads and writes, where they are looked at one by one: no micro-controller has RAM for more, and
it would take gigabytes to plan."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation with its tensors at hand: everything that an op kind may look at."""

    op: Op
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]

    @property
    def attributes(self) -> Any:
        return self.op.attributes

    @property
    def label(self) -> str:
        """`op 7 'block3/dw' (DEPTHWISE_CONV_2D)`, the way every message names an operation."""
        name = f" '{self.outputs[0].label}'" if self.outputs else ""
        return f"op {self.op.number}{name} ({one_line(self.op.kind)})"

    def input(self, position: int) -> Tensor:
        """The input at `position`, which must be there."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise ModelError(f"{self.label}: input {position} is missing; the file is damaged")
        return tensor

    @property
    def output(self) -> Tensor:
        """The first output, which must be there."""
        if not self.outputs:
            raise ModelError(f"{self.label}: it has no output; the file is damaged")
        return self.outputs[0]

    def activations(self) -> Iterator[tuple[int, Tensor]]:
        """Positions and tensors of the inputs that lie in RAM (not constant, not absent)."""
        for position, tensor in enumerate(self.inputs):
            if tensor is not None and not tensor.is_constant:
                yield position, tensor

    @property
    def is_huge(self) -> bool:
        """Whether its elements are too many to be looked at one by one."""
        return sum(t.elems for t in (*(t for _, t in self.activations()), *self.outputs)) > MOST_ELEMS


@dataclass(frozen=True)
class Graph:
    """A model: tensors by index, ops in file order, and which tensors enter and leave. `apart`: those that the firmware
    has asked for by name, which become no parts of others."""

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    apart: frozenset[int] = frozenset()

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        def at(index: int) -> Tensor | None:
            return None if index == ABSENT else self.tensors[index]

        return tuple(
            Node(op, tuple(at(i) for i in op.inputs), tuple(self.tensors[i] for i in op.outputs)) for op in self.ops
        )

    @cached_property
    def short_names(self) -> tuple[str, ...]:
        """For each tensor what tells it from others, to be printed: of a fused layer, whose name is a list, the first
        entry, and of a path what not all have in common. The whole name where two tensors would look alike."""
        own = [tensor for tensor in self.tensors if not tensor.is_constant]
        paths = [tensor.name.partition(";")[0].split("/") for tensor in own]
        long = [path[:-1] for path in paths if len(path) > 1]
        ends = zip(min(long, default=()), max(long, default=()), strict=False)
        shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], ends)]
        short = [one_line("/".join(path[len(shared) :] if path[: len(shared)] == shared else path)) for path in paths]
        times = Counter((*short, *(tensor.label for tensor in own)))
        names = [tensor.label for tensor in self.tensors]
        for tensor, name in zip(own, short, strict=True):
            if name and times[name] == 1 + (name == tensor.label):
                names[tensor.index] = name
        return tuple(names)

    @cached_property
    def producer(self) -> dict[int, int]:
        """Tensor index -> index of the op that writes it."""
        return {t: op.index for op in self.ops for t in op.outputs}

    @cached_property
    def consumers(self) -> dict[int, tuple[int, ...]]:
        """Tensor index -> indices of the ops that read it, in file order, each op once."""
        found: dict[int, list[int]] = {}
        for op in self.ops:
            for t in dict.fromkeys(op.inputs):
                if t != ABSENT:
                    found.setdefault(t, []).append(op.index)
        return {t: tuple(ops) for t, ops in found.items()}

    @cached_property
    def variables(self) -> tuple[Tensor, ...]:
        """Its state: the variables of which an op reads or writes anything, be it through a view."""
        touched = {t for op in self.ops for t in (*op.inputs, *op.outputs)}
        held = {member for t in touched for member in self.sharing.get(t, (t,))}
        return tuple(t for t in self.tensors if t.is_variable and t.index in held)

    @cached_property
    def families(self) -> dict[int, tuple[int, ...]]:
        """Base -> itself and its views, for the tensors that have any."""
        found: dict[int, list[int]] = {}
        for tensor in self.tensors:
            if tensor.view is not None:
                found.setdefault(tensor.base, [tensor.base]).append(tensor.index)
        return {base: tuple(members) for base, members in found.items()}

    @cached_property
    def sharing(self) -> dict[int, tuple[int, ...]]:
        """For each tensor with views, and each view: the tensors that hold any of its elements, itself included."""
        found: dict[int, tuple[int, ...]] = {}
        for members in self.families.values():
            tensors = [self.tensors[m] for m in members]
            low, span = (np.array([getattr(t, name) for t in tensors]) for name in ("offset_bytes", "span_bytes"))
            for tensor in tensors:
                near = (low < tensor.offset_bytes + tensor.span_bytes) & (low + span > tensor.offset_bytes)
                others = (tensors[n] for n in np.flatnonzero(near))
                found[tensor.index] = tuple(other.index for other in others if tensor.shares_elements_with(other))
        return found

    def variables_in(self, tensor: int) -> tuple[int, ...]:
        """The variables that hold any element of a tensor."""
        return tuple(t for t in self.sharing.get(tensor, (tensor,)) if self.tensors[t].is_variable)

    def holds_state(self, tensor: int) -> bool:
        """Whether a variable is, or lies in, the tensor that it is part of."""
        base = self.tensors[tensor].base
        return any(self.tensors[t].is_variable for t in self.families.get(base, (base,)))

    def writers(self, tensor: int) -> tuple[int, ...]:
        """The ops that write any element of a tensor."""
        members = self.sharing.get(tensor, (tensor,))
        return tuple(sorted(self.producer[m] for m in members if m in self.producer))

    def readers(self, tensor: int) -> tuple[int, ...]:
        """The ops that read any element of a tensor."""
        members = self.sharing.get(tensor, (tensor,))
        return tuple(sorted({op for m in members for op in self.consumers.get(m, ())}))
