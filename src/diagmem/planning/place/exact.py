"""The smallest placement there is, with proof, or the best found and the gap.

Heuristics come first, and end it if they meet the lower bound. What is left is a small core of buffers that falls apart
into components. One without a circle is solved exactly in no time, any other by CP-SAT. What is too large for that is
compacted by search.
"""

from __future__ import annotations

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.compaction import Compaction
from diagmem.planning.place.components import (
    components,
    core,
    forest_bound,
    place_forest,
    spanning_forest,
    with_removed,
)
from diagmem.planning.place.cp_sat import Solution, solve_by_cp_sat
from diagmem.planning.place.effort import NORMAL, THOROUGH, Effort
from diagmem.planning.place.fit import IS_COMPILED, Offsets, Partial, Placement
from diagmem.planning.place.greedy import greedy
from diagmem.planning.place.squeaky_wheel import SqueakyWheel, improve

MOST_ROUNDS = 8


def optimal(problem: Problem, effort: Effort = NORMAL, goal_bytes: int | None = None) -> Placement:
    """Lowers the best placement and raises the bound until they meet, or until the effort is spent. `goal_bytes`: an
    arena that is small enough."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, bound, problem.arena_bytes(offsets)))
    goal = max(bound, goal_bytes or 0)
    offsets = improve(problem, offsets, goal)
    if problem.arena_bytes(offsets) > goal:
        offsets, bound = _exactly(problem, offsets, bound, effort)
    found = Compaction.of(problem, offsets, bound, effort, goal_bytes).placement()
    return found if found.arena_bytes <= goal or effort.fits < THOROUGH.fits else _proven(problem, found, effort)


def multi_start(problem: Problem, effort: Effort = NORMAL) -> Placement:
    """The best placement found, and a bound for all placements: for hundreds of small buffers, the rows of a network
    that runs row by row. No proof is in reach, so what the effort allows is spent on compaction."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, bound, problem.arena_bytes(offsets)))
    return Compaction.of(problem, offsets, bound, effort).placement()


def _proven(problem: Problem, found: Placement, effort: Effort) -> Placement:
    """The placement, or a smaller one, with the bound that CP-SAT proves for the whole: for those who have the time."""
    members, limit = range(len(problem.buffers)), found.arena_bytes - problem.unit_bytes
    bound = found.lower_bound_bytes
    solution = solve_by_cp_sat(problem, members, found.offsets, bound, limit, effort.times(0.1), as_rectangles=True)
    offsets = found.offsets if solution.offsets is None else tuple(solution.offsets[b] for b in members)
    return Placement.of(problem, offsets, min(solution.bound, problem.arena_bytes(offsets)))


def _exactly(problem: Problem, offsets: Offsets, bound: int, effort: Effort) -> tuple[Offsets, int]:
    """The best offsets of problems that can be solved with proof, and the bound of all."""
    for _ in range(MOST_ROUNDS):
        arena = problem.arena_bytes(offsets)
        if arena <= bound:
            break
        # Most problems are tight, so first ask for no more than the bound; then for anything less than there is.
        for limit in dict.fromkeys((bound, arena - problem.unit_bytes)):
            found, least = _place(problem, offsets, bound, limit, effort)
            bound = max(bound, least)
            if found is not None:
                offsets = found
                break
        else:
            break
    return offsets, bound


def chain_bound(problem: Problem, low: int, high: int) -> int:
    """A size in [low, high] that no placement stays below, from a part of the buffers without a circle."""
    if low >= high:
        return low
    limit = high - problem.unit_bytes
    hard, _ = SqueakyWheel.of(problem).core(limit) if IS_COMPILED else core(problem, limit)
    return forest_bound(problem, spanning_forest(problem, hard), low, high)


def _place(problem: Problem, offsets: Offsets, bound: int, limit: int, effort: Effort) -> tuple[Offsets | None, int]:
    """Offsets within the limit, None if there are none or none were found; and a bound for all offsets."""
    hard, removed = core(problem, limit)
    placed: Partial = [None] * len(problem.buffers)
    for members in components(problem, hard):
        solution = _solve(problem, members, offsets, bound, limit, effort)
        bound = max(bound, solution.bound)
        if solution.offsets is None:
            return None, bound
        for buffer, at in solution.offsets.items():
            placed[buffer] = at
    return with_removed(problem, placed, removed), bound


def _solve(problem: Problem, members: list[int], hint: Offsets, bound: int, limit: int, effort: Effort) -> Solution:
    """The lowest placement of a component within the limit."""
    if len(spanning_forest(problem, members)) < len(members):
        return solve_by_cp_sat(problem, members, hint, bound, limit, effort)
    if place_forest(problem, members, limit) is None:
        return Solution(None, limit + problem.unit_bytes)
    least = forest_bound(problem, members, bound, limit)
    return Solution(place_forest(problem, members, least), least)
