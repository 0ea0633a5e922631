"""What values the channels of a tensor can have.

A range may be too wide, never too narrow. Of real numbers only constants are known: rounding depends on the order of
additions, which is the runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import Tensor
from diagmem.transforms.channels.sums import Array

MOST_EXACT = 2.0**53
"""Integers below that are held exactly by 64-bit real numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Of each channel the least and the largest value, both included."""

    low: Array
    high: Array

    @classmethod
    def whole(cls, tensor: Tensor) -> Range:
        """Every value that the type has."""
        channels = tensor.shape[-1] if tensor.shape else 1
        try:
            info = np.iinfo(tensor.dtype.numpy)
            low, high = float(info.min), float(info.max)
        except (TypeError, ValueError):
            low, high = -np.inf, np.inf
        # A file may say that there are more channels than memory holds: one number stands for all of them.
        return cls(np.broadcast_to(low, channels), np.broadcast_to(high, channels))

    @classmethod
    def of_constant(cls, tensor: Tensor) -> Range:
        values = tensor.data
        if values is None or not values.size or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return cls.whole(tensor)
        if np.abs(values.astype(np.float64)).max() >= MOST_EXACT:
            return cls.whole(tensor)
        rows = values.reshape(-1, tensor.shape[-1] if tensor.shape else 1).astype(np.float64)
        return cls(rows.min(axis=0), rows.max(axis=0))

    @property
    def is_constant(self) -> Array:
        """Of each channel."""
        found: Array = self.low == self.high
        return found

    def over(self, sources: Array, channels: int) -> Range:
        """Of a tensor whose channel c has values of all those channels here that `sources` has at c, c + channels and
        so on."""
        low, high = (limit[sources].reshape(-1, channels) for limit in (self.low, self.high))
        return Range(low.min(axis=0), high.max(axis=0))

    def hull(self, other: Range) -> Range:
        return Range(np.minimum(self.low, other.low), np.maximum(self.high, other.high))
