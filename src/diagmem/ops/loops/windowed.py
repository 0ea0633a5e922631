"""What convolutions and poolings share: a 2-D window slides over the input, pixel by pixel of the output.

Here stand the paper's bound as corrected, and what its equations as printed have in common. The exact separation is
that of every pixel loop: O(height + width) work.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from diagmem.model.graph import Window1D
from diagmem.ops.accesses import Runs
from diagmem.ops.loops.pixels import PixelLoop


@dataclass(frozen=True, slots=True)
class WindowedLoop(PixelLoop):
    """A pixel loop whose rows and columns are windows."""

    rows: Window1D
    cols: Window1D

    @property
    def output_pixels(self) -> int:
        """Of the output."""
        return self.out.batch * self.out.height * self.out.width

    @property
    def output_pairs(self) -> int:
        """Neighbours in a row of the output; the last one of an odd row is alone."""
        return self.out.batch * self.out.height * -(-self.out.width // 2)

    def reads(self) -> Runs:
        """A run for each window row where that is enough, else one for each pixel of the window."""
        if self.groups > 1 or self.cols.dilation > 1:
            return PixelLoop.reads(self)
        y, in_y = self.rows.taps()
        x, first_x = self.cols.first_reads()
        count = (self.cols.end_taps() - self.cols.first_taps())[x]
        n = np.arange(self.out.batch, dtype=np.int64)[:, None, None]
        return Runs.of(
            ((n * self.image.height + in_y[:, None]) * self.image.width + first_x) * self.image.depth,
            count * self.image.depth,
            ((n * self.out.height + y[:, None]) * self.out.width + x) * self.out.depth,
            stride=0,
            hold=self.out.depth,
        )

    def line_separation(self) -> int:
        """An upper bound of the separation, in bytes, from a truncated line: the paper's analytical method, corrected.

        When u bytes are written, nothing below max(0, a*u + b) is read any more. `a` is the paper's slope, from one
        output row to the next. Reads and steps are affine in (n, y, x, group), so the highest line of slope `a` under
        all reads touches a corner of that box; b is the least over the corners. The paper takes a single corner, which
        is unsafe for unequal strides, and does not clamp its padding.
        """
        image, out, rows, cols = self.image, self.out, self.rows, self.cols
        pixel_in, pixel_out = image.depth * self.in_size, out.depth * self.out_size
        a = Fraction(rows.stride * image.width * pixel_in, out.width * pixel_out)
        b = min(
            ((n * image.height + y * rows.stride - rows.pad_before) * image.width + x * cols.stride - cols.pad_before)
            * pixel_in
            + group * self.group_in * self.in_size
            - a
            * (((n * out.height + y) * out.width + x) * pixel_out + ((group + 1) * self.group_out - 1) * self.out_size)
            for n, y, x, group in itertools.product(*((0, count - 1) for count in (*out[:3], self.groups)))
        )
        last = (self.steps - 1) * self.out_size
        crossing = min(max(Fraction(0), -b / a), Fraction(last))
        return math.ceil(max(crossing - max(Fraction(0), a * crossing + b), last - max(Fraction(0), a * last + b)))

    def analytical_overlap(self) -> int:
        """O_s in bytes, by the bound of `line_separation`."""
        return max(0, self.steps * self.out_size - self.line_separation())

    def printed_padding(self) -> tuple[int, int]:
        """P_h and P_w, equations (5) and (6) as printed: below zero where a window does not reach the input's end."""
        return _unclamped_padding(self.rows), _unclamped_padding(self.cols)

    def printed_overlap(self, a: Fraction, b: int) -> Fraction:
        """Equation (11) as printed, clamped at 0: O_s in bytes from the line's slope and offset in elements."""
        return max(Fraction(0), (self.steps + min(b / a, a * self.steps + b - self.steps)) * self.out_size)


def _unclamped_padding(axis: Window1D) -> int:
    out, stride, dilation = axis.size_out, axis.stride, axis.dilation
    return (out * stride - stride + axis.kernel * dilation - dilation - axis.size_in + 1) // 2
