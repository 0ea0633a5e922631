"""Where buffers lie. Each allocator is a function of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.greedy import greedy
from diagmem.planning.place.heap import heap
from diagmem.planning.place.optimal import optimal
from diagmem.planning.place.placement import Placement

__all__ = ["ALLOCATORS", "Placement", "greedy", "heap", "optimal"]

ALLOCATORS: Mapping[str, Callable[[Problem], Placement]] = {
    "heap": lambda problem: Placement.of(problem, heap(problem)),
    "greedy": lambda problem: Placement.of(problem, greedy(problem)),
    "optimal": optimal,
}
