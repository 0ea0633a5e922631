"""Loops over output pixels: batch, row, column, then the output channels, one element written at each step.

Rows and columns are independent of each other: output row y reads some input rows, output column x some input columns.
Channels fall into groups: the output channels of a group read all input channels of the same group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from diagmem.accesses import Runs
from diagmem.graph import IntArray, Nhwc
from diagmem.ops._separable import AxisTerm, separation_of


class PixelAxis(Protocol):
    """Which inputs the outputs along one axis read. `graph.Window1D` is one."""

    def first_reads(self) -> tuple[IntArray, IntArray]:
        """Outputs that read anything, ascending, and the first input index that each of them reads."""

    def taps(self) -> tuple[IntArray, IntArray]:
        """Every pair (output, input that it reads), outputs ascending."""


@dataclass(frozen=True, slots=True)
class PixelLoop:
    """The loops of one operation. `in_size`, `out_size`: bytes of an element."""

    image: Nhwc
    out: Nhwc
    rows: PixelAxis
    cols: PixelAxis
    groups: int
    in_size: int
    out_size: int

    @property
    def steps(self) -> int:
        return math.prod(self.out)

    @property
    def group_in(self) -> int:
        """Input channels of a group."""
        return self.image.depth // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of a group."""
        return self.out.depth // self.groups

    def separation(self) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        return separation_of(
            (
                *self.pixel_terms(),
                AxisTerm.even(self.groups, self.group_out * self.out_size - self.group_in * self.in_size),
                AxisTerm.even(self.group_out, self.out_size),
            )
        )

    def pixel_terms(self, ahead: int = 0) -> tuple[AxisTerm, AxisTerm, AxisTerm]:
        """What batch, row and column add to the separation, if a pixel is read until the one `ahead` places further on
        in its row is begun, or the row's last one."""
        pixel_in, pixel_out = self.image.depth * self.in_size, self.out.depth * self.out_size
        row_in, row_out = self.image.width * pixel_in, self.out.width * pixel_out
        rows, rows_in = self.rows.first_reads()
        cols, cols_in = self.cols.first_reads()
        reached = np.minimum(cols + ahead, self.out.width - 1)
        return (
            AxisTerm.even(self.out.batch, self.out.height * row_out - self.image.height * row_in),
            AxisTerm.table(rows, rows * row_out - rows_in * row_in),
            AxisTerm.table(reached, reached * pixel_out - cols_in * pixel_in),
        )

    def pixels(self) -> tuple[IntArray, IntArray]:
        """For every output pixel and every input pixel that it reads, in loop order: first step, first element."""
        (y, in_y), (x, in_x) = self.rows.taps(), self.cols.taps()
        n = np.arange(self.out.batch, dtype=np.int64)[:, None, None]
        step = ((n * self.out.height + y[:, None]) * self.out.width + x) * self.out.depth
        start = ((n * self.image.height + in_y[:, None]) * self.image.width + in_x) * self.image.depth
        return step.reshape(-1), start.reshape(-1)

    def reads(self) -> Runs:
        """A group's input channels are read anew for each of its output channels."""
        step, start = self.pixels()
        if self.group_in == 1:
            return Runs.of(start, self.groups, step, stride=self.group_out, hold=self.group_out)
        group = np.arange(self.groups, dtype=np.int64)
        return Runs.of(
            start[:, None] + group * self.group_in,
            self.group_in,
            step[:, None] + group * self.group_out,
            stride=0,
            hold=self.group_out,
        )
