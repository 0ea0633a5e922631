"""Images and the windows that slide over them. Padding is resolved here and nowhere else."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError

if TYPE_CHECKING:
    from diagmem.model.graph import Tensor

IntArray = npt.NDArray[np.int64]


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
class ExplicitPadding:
    """Padding in elements, as after folding a PAD into the operation behind it."""

    top: int
    bottom: int
    left: int
    right: int


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
        total = max(0, (-(-size_in // stride) - 1) * stride + extent - size_in) if padding is Padding.SAME else 0
        return cls.explicit(size_in, kernel, stride, dilation, total // 2, total - total // 2)

    @classmethod
    def explicit(
        cls, size_in: int, kernel: int, stride: int, dilation: int, pad_before: int, pad_after: int
    ) -> Window1D:
        """Padding given in elements."""
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

    def tap_counts(self) -> IntArray:
        """For each output, how many taps are in bounds."""
        counts: IntArray = np.maximum(0, self.end_taps() - self.first_taps())
        return counts

    @property
    def pairs(self) -> int:
        """How many `taps` there are."""
        return int(self.tap_counts().sum())

    def taps(self) -> tuple[IntArray, IntArray]:
        """Every in-bounds pair (output, input), outputs ascending, then inputs ascending."""
        first, count = self.first_taps(), self.tap_counts()
        outputs = np.repeat(np.arange(self.size_out, dtype=np.int64), count)
        nth = np.arange(len(outputs), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        return outputs, outputs * self.stride - self.pad_before + (first[outputs] + nth) * self.dilation

    def last_taps(self) -> tuple[IntArray, IntArray]:
        """Of the pairs of `taps`, for each input the one with the last output; inputs ascending."""
        inputs = np.arange(self.size_in, dtype=np.int64)
        # Every so many outputs a window meets an input again.
        period = self.dilation // math.gcd(self.dilation, self.stride)
        latest = np.minimum((inputs + self.pad_before) // self.stride, self.size_out - 1)
        found = np.full(self.size_in, -1, dtype=np.int64)
        for back in range(min(period, self.size_out)):
            output = latest - back
            tap, between = np.divmod(inputs + self.pad_before - output * self.stride, self.dilation)
            reads = (found < 0) & (output >= 0) & (between == 0) & (tap < self.kernel)
            found[reads] = output[reads]
        return found[found >= 0], inputs[found >= 0]


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
        padding: Padding | ExplicitPadding = Padding.VALID,
    ) -> Window2D:
        """Pairs are (height, width)."""
        axes = list(zip(image[1:3], kernel, stride, dilation, strict=True))
        if isinstance(padding, ExplicitPadding):
            return cls(
                Window1D.explicit(*axes[0], padding.top, padding.bottom),
                Window1D.explicit(*axes[1], padding.left, padding.right),
            )
        return cls(*(Window1D.resolve(*axis, padding) for axis in axes))
