"""Depthwise kernels that finish a block of channels for the whole image before they begin the next block.

What one block has written lies all over the output, under what the next block still reads: an overlap can be unsafe
though a larger one is safe again. The separation is the monotone value: from there on all are safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.ops.accesses import Runs
from diagmem.ops.loops.pixels import PixelLoop
from diagmem.ops.loops.separable import AxisTerm, separation_of


@dataclass(frozen=True, slots=True)
class ChannelBlocks:
    """A pixel loop with a group for each input channel, done in blocks of `size` input channels."""

    loop: PixelLoop
    size: int

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
