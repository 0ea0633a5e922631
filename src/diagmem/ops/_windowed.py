"""What convolutions and poolings share: a 2-D window slides over the input, pixel by pixel of the output.

The output is written in order, element i at step i. For output pixel (n, y, x) the window's first in-bounds input
pixel is (n, r_y, r_x). The smallest offset that the pixel reads, and the number of elements written before its last
read, are sums of one term for each of n, y, x and the channel; so the separation, the largest difference of the two,
is a sum of maxima, one along each axis. That is why O(height + width) work gives the exact value.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from diagmem.accesses import Runs
from diagmem.graph import IntArray, Nhwc, Window1D, Window2D


@dataclass(frozen=True, slots=True)
class WindowedLoop:
    """A windowed operation's loops.

    `corners` describe one output pixel: pairs (first input channel read, last step of the pixel that reads it). Within
    a pixel both are affine in the channel, so the first and last pair are enough. `in_size`, `out_size`: bytes of an
    element.
    """

    image: Nhwc
    out: Nhwc
    window: Window2D
    corners: tuple[tuple[int, int], ...]
    in_size: int
    out_size: int

    @property
    def steps(self) -> int:
        return math.prod(self.out)

    def separation(self) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        pixel_in, pixel_out = self.image.depth * self.in_size, self.out.depth * self.out_size
        rows = _terms(self.window.rows, self.out.width * pixel_out, self.image.width * pixel_in)
        cols = _terms(self.window.cols, pixel_out, pixel_in)
        image_out = self.out.height * self.out.width * pixel_out
        image_in = self.image.height * self.image.width * pixel_in
        batches = {0: 0, self.out.batch - 1: (self.out.batch - 1) * (image_out - image_in)}
        if not rows or not cols:
            return None
        channels = max(step * self.out_size - channel * self.in_size for channel, step in self.corners)
        pixels = sum_of_maxima(batches, rows, cols, skip_origin=self.out.depth == 1)
        return None if pixels is None else pixels + channels

    def line_separation(self) -> int:
        """An upper bound of the separation, in bytes, from a truncated line: the paper's analytical method, corrected.

        When u bytes are written, nothing below max(0, a*u + b) is read any more. `a` is the paper's slope, from one
        output row to the next. Reads and steps are affine in (n, y, x, channel), so the highest line of slope `a` under
        all reads touches a corner of that box; b is the least over the corners. The paper takes a single corner, which is
        unsafe for unequal strides, and does not clamp its padding.
        """
        image, out, rows, cols = self.image, self.out, self.window.rows, self.window.cols
        pixel_in, pixel_out = image.depth * self.in_size, out.depth * self.out_size
        a = Fraction(rows.stride * image.width * pixel_in, out.width * pixel_out)
        b = min(
            ((n * image.height + y * rows.stride - rows.pad_before) * image.width + x * cols.stride - cols.pad_before)
            * pixel_in
            + channel * self.in_size
            - a * (((n * out.height + y) * out.width + x) * pixel_out + step * self.out_size)
            for n, y, x in itertools.product((0, out.batch - 1), (0, out.height - 1), (0, out.width - 1))
            for channel, step in self.corners
        )
        last = (self.steps - 1) * self.out_size
        crossing = min(max(Fraction(0), -b / a), Fraction(last))
        return math.ceil(max(crossing - max(Fraction(0), a * crossing + b), last - max(Fraction(0), a * last + b)))

    def pixels(self) -> tuple[IntArray, IntArray]:
        """For every output pixel and every input pixel in its window, in loop order: first step, first element."""
        (y, in_y), (x, in_x) = self.window.rows.taps(), self.window.cols.taps()
        n = np.arange(self.out.batch, dtype=np.int64)[:, None, None]
        step = ((n * self.out.height + y[:, None]) * self.out.width + x) * self.out.depth
        start = ((n * self.image.height + in_y[:, None]) * self.image.width + in_x) * self.image.depth
        return step.reshape(-1), start.reshape(-1)

    def held_windows(self) -> Runs:
        """Reads of a kernel that looks at the whole window for each output channel, a run for each window row."""
        if self.window.cols.dilation > 1:
            step, start = self.pixels()
            return Runs.of(start, self.image.depth, step, stride=0, hold=self.out.depth)
        y, in_y = self.window.rows.taps()
        x, first_x = self.window.cols.first_reads()
        count = (self.window.cols.end_taps() - self.window.cols.first_taps())[x]
        n = np.arange(self.out.batch, dtype=np.int64)[:, None, None]
        return Runs.of(
            ((n * self.image.height + in_y[:, None]) * self.image.width + first_x) * self.image.depth,
            count * self.image.depth,
            ((n * self.out.height + y[:, None]) * self.out.width + x) * self.out.depth,
            stride=0,
            hold=self.out.depth,
        )


def _terms(window: Window1D, pitch_out: int, pitch_in: int) -> dict[int, int]:
    """What an axis adds to the separation, for its first output and for the output where it is largest."""
    outputs, inputs = window.first_reads()
    if not len(outputs):
        return {}
    terms = outputs * pitch_out - inputs * pitch_in
    later = 1 + int(terms[1:].argmax()) if len(terms) > 1 else 0
    return {int(outputs[k]): int(terms[k]) for k in (0, later)}


def sum_of_maxima(*axes: dict[int, int], skip_origin: bool) -> int | None:
    """The largest sum of one term from each axis (index -> term).

    `skip_origin` leaves out index 0 on all axes: the very first step, before which nothing is written. None if
    nothing else is left.
    """
    sums = (
        sum(term for _, term in picked)
        for picked in itertools.product(*(axis.items() for axis in axes))
        if not skip_origin or any(index for index, _ in picked)
    )
    return max(sums, default=None)


def unclamped_padding(size_in: int, size_out: int, kernel: int, stride: int, dilation: int) -> int:
    """Equations (5) and (6) as printed: below zero where the window does not reach the end of the input."""
    return (size_out * stride - stride + kernel * dilation - dilation - size_in + 1) // 2


def printed_overlap(loop: WindowedLoop, a: Fraction, b: int | Fraction) -> Fraction:
    """Equation (11) as printed, clamped at 0: O_s in bytes from the line's slope and offset in elements."""
    steps = loop.steps
    return max(Fraction(0), (steps + min(b / a, a * steps + b - steps)) * loop.out_size)
