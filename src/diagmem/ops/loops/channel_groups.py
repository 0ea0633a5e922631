"""Kernels that treat each channel on its own, but some of a pixel together: all that these are made of is read, then
they are written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.ops.accesses import Runs
from diagmem.ops.loops.pixels import PixelLoop
from diagmem.ops.loops.separable import AxisTerm
from diagmem.ops.orders import Order

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
