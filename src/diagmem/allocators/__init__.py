"""Where buffers lie. Each allocator is a function of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diagmem.allocators.greedy import greedy
from diagmem.allocators.heap import heap
from diagmem.allocators.optimal import optimal
from diagmem.allocators.placement import Placement
from diagmem.problem import Problem

__all__ = ["ALLOCATORS", "Placement", "greedy", "heap", "optimal"]

ALLOCATORS: Mapping[str, Callable[[Problem], Placement]] = {
    "heap": lambda problem: Placement.of(problem, heap(problem)),
    "greedy": lambda problem: Placement.of(problem, greedy(problem)),
    "optimal": optimal,
}
