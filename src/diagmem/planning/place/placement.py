"""What an allocator hands on."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.planning.needs.problem import Gap, Problem
from diagmem.planning.place.fit import Offsets


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
