"""Loops that write one output in order, an element at a step, and whose reads are a sum of one term for each axis.

Number the steps by the loops' indices, the outermost first. The bytes written before a step are a sum of one term for
each index; so is the smallest offset that the step reads, for every kernel that walks its tensors evenly. Their
difference, whose largest value is the separation, is such a sum too, and is largest where each term is. Only the very
first step, all indices 0, is left out: nothing is written before it, so its reads set no limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import IntArray


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
