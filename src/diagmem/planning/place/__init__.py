"""Where buffers lie. Each allocator is a function of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.exact import optimal
from diagmem.planning.place.fit import Placement
from diagmem.planning.place.greedy import greedy, heap

__all__ = ["ALLOCATORS", "Placement", "greedy", "heap", "optimal"]

ALLOCATORS: Mapping[str, Callable[[Problem], Placement]] = {
    "heap": lambda problem: Placement.of(problem, heap(problem)),
    "greedy": lambda problem: Placement.of(problem, greedy(problem)),
    "optimal": optimal,
}
