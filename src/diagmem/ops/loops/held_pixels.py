"""Kernels that keep whole pixels in hand: all inputs of an output pixel are read together, and how long they are still
read is counted in pixels.

Hand-tuned kernels compute a few pixels at once, so their order within that group is not the plain loop's. Here the
reads of a pixel last at least as long as in the kernel, whatever the group's place in the row; writes go through the
output in order. Every write that comes before a read in the kernel does so here too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.ops.accesses import Runs
from diagmem.ops.loops.pixels import PixelLoop
from diagmem.ops.loops.separable import AxisTerm


@dataclass(frozen=True, slots=True)
class HeldPixels:
    """A pixel is read until `writes` elements are written of the pixel `ahead` places further on in its row, or of the
    row's last pixel if that comes first. Pixels of a row are read in groups of `together`, when the first is begun."""

    loop: PixelLoop
    ahead: int
    writes: int
    together: int = 1

    @property
    def steps(self) -> int:
        """One more than there are elements where the last pixel is still read after its last write."""
        return self.loop.steps + self.writes // self.loop.out.depth

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
