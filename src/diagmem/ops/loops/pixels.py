"""Loops over output pixels: batch, row, column, then the output channels, one element written at each step.

Rows and columns are independent of each other: output row y reads some input rows, output column x some input columns.
Channels fall into groups: the output channels of a group read all input channels of the same group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from diagmem.model.graph import IntArray, Nhwc, Node, Tensor
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Runs
from diagmem.ops.orders import Order


@dataclass(frozen=True, slots=True)
class AxisTerm:
    """What one loop adds to (bytes written - bytes' offset read): at its index 0, and at most at a later one.

    None where no index of that sort exists or reads anything.
    """

    first: int | None
    later: int | None

    @classmethod
    def even(cls, count: int, gain_bytes: int) -> AxisTerm:
        """A loop over `count` indices, each of which adds `gain_bytes`."""
        return cls(0, max(gain_bytes, (count - 1) * gain_bytes) if count > 1 else None)

    @classmethod
    def table(cls, index: IntArray, term_bytes: IntArray) -> AxisTerm:
        """A loop whose terms are listed, by ascending index; indices that are missing read nothing. Those that stand
        more than once are turns that begin together."""
        split = int(np.count_nonzero(index == 0))
        return cls(
            int(term_bytes[:split].max()) if split else None,
            int(term_bytes[split:].max()) if len(index) > split else None,
        )

    @property
    def largest(self) -> int | None:
        return max((term for term in (self.first, self.later) if term is not None), default=None)


def separation_of(axes: Sequence[AxisTerm]) -> int | None:
    """separation(output below, input above) in bytes, exact; None where no read follows a write.

    At least one index is not 0: that axis gives its largest later term, the others their largest of all.
    """
    largest = [axis.largest for axis in axes]
    total = 0
    for term in largest:
        if term is None:
            return None
        total += term
    return max(
        (
            total - whole + axis.later
            for axis, whole in zip(axes, largest, strict=True)
            if axis.later is not None and whole is not None
        ),
        default=None,
    )


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

    @property
    def pairs(self) -> int:
        """How many `taps` there are."""

    def taps(self) -> tuple[IntArray, IntArray]:
        """Every pair (output, input that it reads), outputs ascending."""

    def last_taps(self) -> tuple[IntArray, IntArray]:
        """Of these pairs, for each input the one with the last output."""


MOST_LISTED = 6_000_000
"""Reads of pixels that are listed one by one: a window of 3x3 over an image of 800x800. Of larger windows only the last
read of each pixel is: all that matters where an operation runs whole."""


Loop = TypeVar("Loop", bound="PixelLoop")


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

    @classmethod
    def of(cls: type[Loop], source: Tensor, target: Tensor, rows: Any, cols: Any, groups: int) -> Loop:
        """The loops from an image to an output."""
        sizes = source.dtype.size_bytes, target.dtype.size_bytes
        pitches = (None if tensor.view is None else Pitches.of(tensor) for tensor in (source, target))
        return cls(Nhwc.of(source), Nhwc.of(target), rows, cols, groups, *sizes, *pitches)

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

    @property
    def lists_all_reads(self) -> bool:
        """Whether all reads are listed, so that it is known what each row of the output needs."""
        return self.out.batch * self.rows.pairs * self.cols.pairs <= MOST_LISTED

    def pixels(self) -> tuple[IntArray, IntArray]:
        """For every output pixel and every input pixel that it reads, in loop order: first step, first element. Where
        these are too many, for every input pixel and the output pixel that reads it last."""
        axes = self.rows, self.cols
        (y, in_y), (x, in_x) = (axis.taps() if self.lists_all_reads else axis.last_taps() for axis in axes)
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


@dataclass(frozen=True, slots=True)
class HeldPixels:
    """A pixel is read until `writes` elements are written of the pixel `ahead` places further on in its row, or of the
    row's last pixel if that comes first. Pixels of a row are read in groups of `together`, when the first is begun."""

    loop: PixelLoop
    ahead: int = 0
    writes: int = 0
    together: int = 1

    @property
    def steps(self) -> int:
        """One more than there are elements where the last pixel is still read after its last write."""
        return self.loop.steps + self.writes // max(1, self.loop.out.depth)

    def reads(self) -> Runs:
        depth, width = self.loop.out.depth, self.loop.out.width
        step, start = self.loop.pixels()
        column = step // depth % width
        first = column - column % self.together
        behind = np.minimum(first + self.ahead, width - 1) - first
        step -= (column - first) * depth
        return Runs.of(start, self.loop.image.depth, step, stride=0, hold=behind * depth + self.writes + 1)

    def separation(self) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        own = self.writes * self.loop.out_size
        return self.loop.separation_with(
            (AxisTerm(None, own) if own else AxisTerm(0, None),), self.ahead, self.together
        )


GROUPS = {Order.FOURS: 4, Order.EIGHTS: 8, Order.SIXTEENS: 16}
"""How many channels are together."""


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """A pixel loop with a group for each channel, of one output channel. `order`: one of `GROUPS`."""

    loop: PixelLoop
    order: Order

    @property
    def steps(self) -> int:
        return self.loop.steps

    @property
    def _begun(self) -> IntArray:
        """For each channel, the one that is the first to be written after it is read. Of fours, channels that remain
        follow one by one; else they are together too."""
        channel, together = np.arange(self.loop.out.depth, dtype=np.int64), GROUPS[self.order]
        whole = self.loop.out.depth // together * together if self.order is Order.FOURS else self.loop.out.depth
        return np.where(channel < whole, channel - channel % together, channel)

    def reads(self) -> Runs:
        step, start = self.loop.pixels()
        channel = np.arange(self.loop.out.depth, dtype=np.int64)
        return Runs.of(start[:, None] + channel, 1, step[:, None] + self._begun)

    def separation(self) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        loop, begun = self.loop, self._begun
        channel = np.arange(loop.out.depth, dtype=np.int64)
        return loop.separation_with((AxisTerm.table(begun, begun * loop.out_size - channel * loop.in_size),))


@dataclass(frozen=True, slots=True)
class ChannelBlocks:
    """A pixel loop with a group for each input channel, done in blocks of `size` input channels."""

    loop: PixelLoop
    size: int

    @property
    def steps(self) -> int:
        return self.loop.steps

    def reads(self) -> Runs:
        step, start = self.loop.pixels()
        pixel, each = step // self.loop.out.depth, self.loop.group_out
        return Runs.join(
            *(
                Runs.of(start + first, count, self._step(pixel, first, count), stride=each, hold=each)
                for first, count in self._blocks()
            )
        )

    def writes(self) -> Runs:
        out, each = self.loop.out, self.loop.group_out
        pixel = np.arange(self.loop.steps // out.depth, dtype=np.int64)
        return Runs.join(
            *(
                Runs.of(pixel * out.depth + first * each, count * each, self._step(pixel, first, count))
                for first, count in self._blocks()
            )
        )

    def separation(self) -> int | None:
        """separation(output below, input above) in bytes, exact; None where no read follows a write."""
        found = [bound for first, count in self._blocks() for bound in self._bounds(first, count)]
        return max((bound for bound in found if bound is not None), default=None)

    def _bounds(self, first: int, count: int) -> Iterator[int | None]:
        """What a block asks for because of its own writes, and because of those of the block before it."""
        loop = self.loop
        each_bytes = loop.group_out * loop.out_size
        channels = AxisTerm.even(count, each_bytes - loop.in_size), AxisTerm.even(loop.group_out, loop.out_size)
        own = separation_of((*loop.pixel_terms(), *channels))
        yield None if own is None else own + first * (each_bytes - loop.in_size)
        rows, cols = loop.rows.first_reads()[1], loop.cols.first_reads()[1]
        if first and len(rows) and len(cols):
            last_pixel = (loop.steps - loop.out.depth) * loop.out_size
            lowest = (int(rows.min()) * loop.image.width + int(cols.min())) * loop.image.depth + first
            yield last_pixel + first * each_bytes - lowest * loop.in_size

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """First channel and number of channels of each block."""
        depth = self.loop.image.depth
        return ((first, min(self.size, depth - first)) for first in range(0, depth, self.size))

    def _step(self, pixel: IntArray, first: int, count: int) -> IntArray:
        """The step at which a block begins a pixel."""
        pixels = self.loop.steps // self.loop.out.depth
        return (pixels * first + pixel * count) * self.loop.group_out
