"""The placement of hundreds of small buffers: the rows of a network that runs row by row.

Nobody knows the best one, so there is no proof to wait for: what the effort allows is spent on lowering it.
"""

from __future__ import annotations

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import NORMAL, Effort
from diagmem.planning.place.greedy import greedy
from diagmem.planning.place.lowering import Lowering
from diagmem.planning.place.optimal import chain_bound
from diagmem.planning.place.placement import Placement


def many_orders(problem: Problem, effort: Effort = NORMAL) -> Placement:
    """The best placement found, and a bound for all placements."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, bound, problem.arena_bytes(offsets)))
    return Lowering.of(problem, offsets, bound, effort).placement()
