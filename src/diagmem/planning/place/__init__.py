"""Where buffers lie: an allocator gives the buffers of a problem their offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import multi_start, optimal
from diagmem.planning.place.fit import Placement
from diagmem.planning.place.greedy import greedy, heap

__all__ = ["MULTI_START", "OPTIMAL", "Allocator", "Placement", "greedy", "heap", "multi_start", "optimal"]

OPTIMAL, MULTI_START = "optimal", "multi-start"

HEURISTICS = {"heap": heap, "greedy": greedy}


@dataclass(frozen=True, slots=True)
class Allocator:
    """`name`: one of HEURISTICS, which need no effort; OPTIMAL, with a proof where there is one; or MULTI_START, for
    hundreds of rows."""

    name: str
    effort: Effort | None = None

    @classmethod
    def named(cls, name: str, effort: Effort) -> Allocator:
        """The effort is for those that can make use of it."""
        return cls(name, None if name in HEURISTICS else effort)

    def __call__(self, problem: Problem) -> Placement:
        if self.effort is None:
            return Placement.of(problem, HEURISTICS[self.name](problem))
        return (optimal if self.name == OPTIMAL else multi_start)(problem, self.effort)

    def times(self, share: float) -> Allocator:
        """With a share of the effort, where that only means fewer starts."""
        if self.effort is None or self.name != MULTI_START:
            return self
        return replace(self, effort=self.effort.times(share))
