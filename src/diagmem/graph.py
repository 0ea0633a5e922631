"""The model as a value: tensors, operations, the graph, and 2-D window geometry.

Nothing here changes once made. Intervals are half-open; sizes carry their unit in the name.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.errors import ModelError, one_line

Shape = tuple[int, ...]
IntArray = npt.NDArray[np.int64]

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


_BITS = {
    DType.FLOAT32: 32,
    DType.FLOAT16: 16,
    DType.INT4: 4,
    DType.INT8: 8,
    DType.UINT8: 8,
    DType.INT16: 16,
    DType.INT32: 32,
    DType.INT64: 64,
    DType.BOOL: 8,
}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """real = scale * (stored - zero_point); one pair, or one for each index along `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def per_channel(self) -> bool:
        return len(self.scales) > 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph. A constant's `data` is None where only its shape is known (a zoo graph, a stub)."""

    index: int
    name: str
    shape: Shape
    dtype: DType
    quantisation: Quantisation | None = None
    is_constant: bool = False
    is_variable: bool = False
    data: npt.NDArray[Any] | None = field(default=None, compare=False, repr=False)

    @property
    def elems(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return (self.elems * self.dtype.bits + 7) // 8

    @property
    def label(self) -> str:
        """The name as it may be printed on one line."""
        return one_line(self.name) or f"tensor {self.index}"

    @property
    def ints(self) -> tuple[int, ...]:
        """The values of a small integer constant (axes, paddings, a new shape), flattened."""
        if self.data is None:
            raise ModelError(
                f"tensor {self.index} '{self.label}': its values are needed and must be constant in the file"
            )
        return tuple(int(v) for v in self.data.reshape(-1))


class Nhwc(NamedTuple):
    """A 4-D shape by name."""

    batch: int
    height: int
    width: int
    depth: int

    @classmethod
    def of(cls, tensor: Tensor) -> Nhwc:
        if len(tensor.shape) != 4:
            raise ModelError(
                f"tensor {tensor.index} '{tensor.label}': shape {list(tensor.shape)} has "
                f"{len(tensor.shape)} axes; batch, height, width and depth are needed"
            )
        return cls(*tensor.shape)


class Padding(enum.Enum):
    SAME = "same"
    VALID = "valid"


@dataclass(frozen=True, slots=True)
class Window1D:
    """A sliding window along one axis, its padding resolved: output o reads inputs o*stride - pad + k*dilation."""

    size_in: int
    size_out: int
    kernel: int
    stride: int
    dilation: int
    pad_before: int
    pad_after: int

    @classmethod
    def resolve(
        cls, size_in: int, kernel: int, stride: int, dilation: int = 1, padding: Padding = Padding.VALID
    ) -> Window1D:
        """Applies TensorFlow's rules. Padding is never negative (the paper's equations 5 and 6 forget that)."""
        if min(size_in, kernel, stride, dilation) < 1:
            raise ModelError(
                f"window of {kernel}, stride {stride}, dilation {dilation} over {size_in}: "
                "each must be at least 1; the file is damaged"
            )
        extent = (kernel - 1) * dilation + 1
        if padding is Padding.SAME:
            size_out = -(-size_in // stride)
            total = max(0, (size_out - 1) * stride + extent - size_in)
            return cls(size_in, size_out, kernel, stride, dilation, total // 2, total - total // 2)
        return cls.explicit(size_in, kernel, stride, dilation, 0, 0)

    @classmethod
    def explicit(
        cls, size_in: int, kernel: int, stride: int, dilation: int, pad_before: int, pad_after: int
    ) -> Window1D:
        """Padding given in elements, as after folding a PAD into the operation behind it."""
        extent = (kernel - 1) * dilation + 1
        size_out = (size_in + pad_before + pad_after - extent) // stride + 1
        if size_out < 1:
            raise ModelError(
                f"window of {kernel} with dilation {dilation} does not fit into {size_in} elements; the file is damaged"
            )
        return cls(size_in, size_out, kernel, stride, dilation, pad_before, pad_after)

    def first_taps(self) -> IntArray:
        """For each output, the first k whose input is in bounds (may be past the last tap: then there is none)."""
        start = np.arange(self.size_out, dtype=np.int64) * self.stride - self.pad_before
        return np.maximum(0, -(start // self.dilation))

    def end_taps(self) -> IntArray:
        """For each output, one past the last k whose input is in bounds."""
        start = np.arange(self.size_out, dtype=np.int64) * self.stride - self.pad_before
        return np.clip((self.size_in - 1 - start) // self.dilation + 1, 0, self.kernel)

    def first_reads(self) -> tuple[IntArray, IntArray]:
        """Outputs that read anything, and the first input index that each of them reads."""
        first, end = self.first_taps(), self.end_taps()
        outputs = np.flatnonzero(first < end)
        return outputs, outputs * self.stride - self.pad_before + first[outputs] * self.dilation

    def taps(self) -> tuple[IntArray, IntArray]:
        """Every in-bounds pair (output, input), outputs ascending, then inputs ascending."""
        first, end = self.first_taps(), self.end_taps()
        count = np.maximum(0, end - first)
        outputs = np.repeat(np.arange(self.size_out, dtype=np.int64), count)
        nth = np.arange(len(outputs), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        return outputs, outputs * self.stride - self.pad_before + (first[outputs] + nth) * self.dilation


@dataclass(frozen=True, slots=True)
class Window2D:
    """A sliding window over height (`rows`) and width (`cols`). The only place where padding is resolved."""

    rows: Window1D
    cols: Window1D

    @classmethod
    def resolve(
        cls,
        image: Nhwc,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int] = (1, 1),
        padding: Padding = Padding.VALID,
    ) -> Window2D:
        """Pairs are (height, width)."""
        return cls(
            Window1D.resolve(image.height, kernel[0], stride[0], dilation[0], padding),
            Window1D.resolve(image.width, kernel[1], stride[1], dilation[1], padding),
        )


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. `attributes` is the frozen dataclass that the kind's file in `ops/` defines."""

    index: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Any = None


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
        return f"op {self.op.index}{name} ({one_line(self.op.kind)})"

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


@dataclass(frozen=True)
class Graph:
    """A model: tensors by index, ops in file order, and which tensors enter and leave."""

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        def at(index: int) -> Tensor | None:
            return None if index == ABSENT else self.tensors[index]

        return tuple(
            Node(op, tuple(at(i) for i in op.inputs), tuple(self.tensors[i] for i in op.outputs)) for op in self.ops
        )

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


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
