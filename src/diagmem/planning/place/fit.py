"""The lowest place that is free for a buffer; lists for compiled loops; and what an allocator hands on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from diagmem.planning.needs.problem import Gap, Problem

Offsets = tuple[int, ...]
"""Where each buffer of a problem starts, in bytes."""

Partial = list[int | None]
"""Offsets of which some are not known yet."""

NOWHERE = -1
"""The offset of a buffer that is not placed."""

FAR = 1 << 50
"""Bytes: above any offset, and far from where 64 bits end."""

LEHMER, PRIME = 48271, 2147483647
"""The next of a row of random numbers is LEHMER times the last one modulo PRIME: no product needs more than 63 bits."""

IS_COMPILED = not str(getattr(find_spec("diagmem.planning.place.first_fit_loops"), "origin", "")).endswith(".py")
"""Whether the build has compiled the loops that run millions of times. Then they work on arrays, else on lists; both
count the same work in the same order, and so end with the same plan."""


def lowest_fit(problem: Problem, buffer: int, placed: Sequence[int | None]) -> int:
    """The lowest offset that keeps the buffer clear of those already placed."""
    links = problem.neighbours(buffer)
    taken = [(at - below, at + above) for index, below, above in links if (at := placed[index]) is not None]
    return lowest_clear(taken, problem.buffers[buffer].align_bytes)


def lowest_clear(taken: list[tuple[int, int]], align: int) -> int:
    """The lowest multiple of `align` that lies in none of these open intervals."""
    taken.sort()
    offset = 0
    for low, high in taken:
        if offset <= low:
            break
        if offset < high:
            offset = -(-high // align) * align
    return offset


def ints(values: Iterable[int]) -> Any:
    """Integers as the loops take them."""
    if IS_COMPILED:
        return np.array(values if hasattr(values, "__len__") else list(values), dtype=np.int64)
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def filled(count: int, value: int = 0) -> Any:
    """So many times the same, for the loops."""
    return np.full(count, value, dtype=np.int64) if IS_COMPILED else [value] * count


def listed(values: Any) -> list[int]:
    """What the loops have made of integers."""
    found: list[int] = values.tolist() if IS_COMPILED else list(values)
    return found


@dataclass(frozen=True, slots=True)
class Placement:
    """Offsets of a problem's buffers, and a size below which no offsets of the same problem exist."""

    offsets: Offsets
    arena_bytes: int
    lower_bound_bytes: int

    @classmethod
    def of(cls, problem: Problem, offsets: Offsets, lower_bound_bytes: int | None = None) -> Placement:
        bound = problem.lower_bound_bytes if lower_bound_bytes is None else lower_bound_bytes
        return cls(offsets, problem.arena_bytes(offsets), bound)

    @property
    def gap(self) -> Gap:
        return Gap(self.arena_bytes, self.lower_bound_bytes)

    @property
    def is_optimal(self) -> bool:
        """Proven: none is smaller."""
        return self.gap.is_closed
