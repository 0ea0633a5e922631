"""Loops over output pixels: batch, row, column, then the output channels, one element written at each step.

Rows and columns are independent of each other: output row y reads some input rows, output column x some input columns.
Channels fall into groups: the output channels of a group read all input channels of the same group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from diagmem.model.graph import IntArray, Nhwc, Node, Tensor
from diagmem.model.teamwork import Along, Cut
from diagmem.ops.accesses import Runs
from diagmem.ops.loops.separable import AxisTerm, separation_of


class Pitches(NamedTuple):
    """Elements between neighbouring images, rows and pixels. Channels are neighbours in memory."""

    image: int
    row: int
    pixel: int

    @classmethod
    def dense(cls, shape: Nhwc) -> Pitches:
        row = shape.width * shape.depth
        return cls(shape.height * row, row, shape.depth)

    @classmethod
    def of(cls, tensor: Tensor) -> Pitches:
        """Where an axis has no second element, its pitch is what it would be if the axes inside it were longer."""
        shape, (*strides, _) = Nhwc.of(tensor), tensor.strides
        pixel = strides[2] if shape.width > 1 else shape.depth
        row = strides[1] if shape.height > 1 else shape.width * pixel
        return cls(strides[0] if shape.batch > 1 else shape.height * row, row, pixel)


def has_pitches(tensor: Tensor) -> bool:
    """Whether pitches say where its elements are, from first to last: a kernel that takes them can address it."""
    if tensor.is_in_one_piece:
        return True
    if len(tensor.shape) != 4 or min(tensor.strides) < 1 or (tensor.shape[3] > 1 and tensor.strides[3] != 1):
        return False
    shape, pitches = Nhwc.of(tensor), Pitches.of(tensor)
    row_end = (shape.width - 1) * pitches.pixel + shape.depth
    return (
        pitches.pixel >= shape.depth
        and pitches.row >= row_end
        and pitches.image >= (shape.height - 1) * pitches.row + row_end
    )


def pitches_of(*tensors: Tensor) -> tuple[Pitches | None, ...]:
    """For each tensor its pitches, if it is a view."""
    return tuple(None if tensor.view is None else Pitches.of(tensor) for tensor in tensors)


def all_have_pitches(node: Node) -> bool:
    """Whether pitches say where all elements are that a node reads and writes in RAM."""
    return all(has_pitches(tensor) for tensor in (*(t for _, t in node.activations()), *node.outputs))


def pixel_cut(node: Node, grain: int = 1) -> Cut:
    """Several cores share the pixels of the output."""
    return Cut(Along.PIXELS, node.output.elems // max(1, node.output.shape[-1]), grain, can_hold=True)


class PixelAxis(Protocol):
    """Which inputs the outputs along one axis read. `graph.Window1D` is one."""

    def first_reads(self) -> tuple[IntArray, IntArray]:
        """Outputs that read anything, ascending, and the first input index that each of them reads."""

    def taps(self) -> tuple[IntArray, IntArray]:
        """Every pair (output, input that it reads), outputs ascending."""


@dataclass(frozen=True, slots=True)
class PixelLoop:
    """The loops of one operation. `in_size`, `out_size`: bytes of an element. `in_pitches`, `out_pitches`: given where
    image or output is part of a larger tensor."""

    image: Nhwc
    out: Nhwc
    rows: PixelAxis
    cols: PixelAxis
    groups: int
    in_size: int
    out_size: int
    in_pitches: Pitches | None = None
    out_pitches: Pitches | None = None

    @property
    def pitches_in(self) -> Pitches:
        return self.in_pitches or Pitches.dense(self.image)

    @property
    def pitches_out(self) -> Pitches:
        return self.out_pitches or Pitches.dense(self.out)

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
        return self.separation_with(
            (
                AxisTerm.even(self.groups, self.group_out * self.out_size - self.group_in * self.in_size),
                AxisTerm.even(self.group_out, self.out_size),
            )
        )

    def separation_with(self, channels: Sequence[AxisTerm], ahead: int = 0, together: int = 1) -> int | None:
        """The separation if the loops inside a pixel add the terms `channels`. For the others, see `pixel_terms`.

        Either something of the pixel is written already; or it is about to be begun, and the last write is the end of
        the pixel before it, a gap below its own start.
        """
        image, row, col = self.pixel_terms(ahead, together)
        inside = separation_of(channels)
        begin = _sum(*(term.first for term in channels))
        image_gap, row_gap, pixel_gap = self._gaps()
        choices = (
            _sum(inside, image.largest, row.largest, col.largest),
            _sum(begin, image.largest, row.largest, col.later, -pixel_gap),
            _sum(begin, image.largest, row.later, col.first, -row_gap),
            _sum(begin, image.later, row.first, col.first, -image_gap),
        )
        return max((choice for choice in choices if choice is not None), default=None)

    def pixel_terms(self, ahead: int = 0, together: int = 1) -> tuple[AxisTerm, AxisTerm, AxisTerm]:
        """What image, row and column add to the distance from the pixel read to the pixel written, if a pixel is read
        until the one `ahead` places further on in its row is begun, or the row's last one. Pixels of a row are read in
        groups of `together`: the first stands for all of them."""
        (image_in, row_in, pixel_in), (image_out, row_out, pixel_out) = self._pitches_bytes()
        rows, rows_in = self.rows.first_reads()
        cols, cols_in = self.cols.first_reads()
        reached = np.minimum(cols - cols % together + ahead, self.out.width - 1)
        return (
            AxisTerm.even(self.out.batch, image_out - image_in),
            AxisTerm.table(rows, rows * row_out - rows_in * row_in),
            AxisTerm.table(reached, reached * pixel_out - cols_in * pixel_in),
        )

    def _pitches_bytes(self) -> tuple[Pitches, Pitches]:
        return (
            Pitches(*(pitch * self.in_size for pitch in self.pitches_in)),
            Pitches(*(pitch * self.out_size for pitch in self.pitches_out)),
        )

    def _gaps(self) -> tuple[int, int, int]:
        """Bytes between the last element of an image, row and pixel of the output and the first of the next."""
        _, (image, row, pixel) = self._pitches_bytes()
        pixel_end = self.out.depth * self.out_size
        row_end = (self.out.width - 1) * pixel + pixel_end
        return image - (self.out.height - 1) * row - row_end, row - row_end, pixel - pixel_end

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


def _sum(*terms: int | None) -> int | None:
    """The sum of the terms; None if one of them is."""
    known = [term for term in terms if term is not None]
    return sum(known) if len(known) == len(terms) else None
