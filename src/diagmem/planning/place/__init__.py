"""Where buffers lie: an allocator gives the buffers of a problem their offsets."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from diagmem.model.errors import PlanError, one_line
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import multi_start, optimal, solve_by_cp_sat
from diagmem.planning.place.fit import Offsets, Placement
from diagmem.planning.place.local_search import SqueakyWheel, greedy, heap, orders

__all__ = ["MULTI_START", "OPTIMAL", "Allocator", "Placement", "greedy", "heap", "multi_start", "optimal", "pinned"]

OPTIMAL, MULTI_START = "optimal", "multi-start"

HEURISTICS = {"heap": heap, "greedy": greedy}


@dataclass(frozen=True, slots=True)
class Allocator:
    """`name`: one of HEURISTICS, which need no effort; OPTIMAL, with a proof where there is one; or MULTI_START, for
    hundreds of rows. `pins`: offsets of buffers, by name; the others are placed around them, by first fit."""

    name: str
    effort: Effort | None = None
    pins: Mapping[str, int] | None = None

    @classmethod
    def named(cls, name: str, effort: Effort, pins: Mapping[str, int] | None = None) -> Allocator:
        """The effort is for those that can make use of it."""
        return cls(name, None if name in HEURISTICS else effort, pins)

    def __call__(self, problem: Problem) -> Placement:
        if self.pins:
            return pinned(problem, self.pins, self.effort)
        if self.effort is None:
            return Placement.of(problem, HEURISTICS[self.name](problem))
        return (optimal if self.name == OPTIMAL else multi_start)(problem, self.effort)

    def times(self, share: float) -> Allocator:
        """With a share of the effort, where that only means fewer starts."""
        if self.effort is None or self.name != MULTI_START:
            return self
        return replace(self, effort=self.effort.times(share))


SWAPS = 2_000
"""Orders that are tried, each with two buffers of the best one swapped."""


def pinned(problem: Problem, names: Mapping[str, int], effort: Effort | None = None) -> Placement:
    """The best placement found with the buffers of these names at these offsets. Where it is larger than any bound that
    holds without pins, and `effort` is given, CP-SAT is asked for a smaller one, or for a proof that there is none."""
    fixed = _fixed(problem, names)
    _check(problem, fixed)
    problem = replace(
        problem, pins=fixed, lower_bound_bytes=max(problem.lower_bound_bytes, end_of_pins(problem, fixed))
    )
    wheel = SqueakyWheel.of(problem)
    best, order = _first(wheel, fixed)
    chance = random.Random(0)
    for _ in range(SWAPS if len(order) > 1 else 0):
        if problem.arena_bytes(best) <= problem.lower_bound_bytes:
            break
        a, b = chance.sample(range(len(order)), 2)
        order[a], order[b] = order[b], order[a]
        found = wheel.first_fit(order, problem.arena_bytes(best), fixed)
        if found is None:
            order[a], order[b] = order[b], order[a]
        else:
            best = found
    return Placement.of(problem, best) if effort is None else _proven(problem, best, effort)


def end_of_pins(problem: Problem, fixed: Mapping[int, int]) -> int:
    """What pinned buffers alone take, whatever the order."""
    ends = (at + problem.buffers[buffer].size_bytes for buffer, at in fixed.items())
    return -(-max(ends, default=0) // problem.unit_bytes) * problem.unit_bytes


def _proven(problem: Problem, offsets: Offsets, effort: Effort) -> Placement:
    """The placement or a smaller one, with a bound for all that have the pins."""
    arena, bound = problem.arena_bytes(offsets), problem.lower_bound_bytes
    if arena <= bound:
        return Placement.of(problem, offsets)
    members, limit = range(len(problem.buffers)), arena - problem.unit_bytes
    solution = solve_by_cp_sat(problem, members, offsets, bound, limit, effort)
    if solution.offsets is not None:
        offsets = tuple(solution.offsets[buffer] for buffer in members)
    return Placement.of(problem, offsets, min(solution.bound, problem.arena_bytes(offsets)))


def _first(wheel: SqueakyWheel, fixed: Mapping[int, int]) -> tuple[Offsets, list[int]]:
    free = [[buffer for buffer in order if buffer not in fixed] for order in orders(wheel.problem)]
    found = [(wheel.with_others(fixed, order), order) for order in free]
    return min(found, key=lambda one: wheel.problem.arena_bytes(one[0]))


def _fixed(problem: Problem, names: Mapping[str, int]) -> dict[int, int]:
    found = {}
    for name, offset in names.items():
        own = [n for n, buffer in enumerate(problem.buffers) if buffer.name == name]
        if len(own) != 1:
            raise PlanError(
                f"'{one_line(name, 60)}' cannot be pinned: no tensor in one piece in the arena has that name (an input "
                "or output can be; row by row, tensors between them lie in rows)"
            )
        found[own[0]] = offset
    return found


def _check(problem: Problem, fixed: Mapping[int, int]) -> None:
    """Raises PlanError where the pins alone are in each other's way, or misaligned."""
    for buffer, at in fixed.items():
        held = problem.buffers[buffer]
        if at % held.align_bytes:
            raise PlanError(f"'{held.name}' is pinned at {at}: it must start on a multiple of {held.align_bytes}")
        for index, below, above in problem.neighbours(buffer):
            other = fixed.get(index)
            if other is not None and not (other - at >= below or at - other >= above):
                name = problem.buffers[index].name
                raise PlanError(
                    f"'{held.name}' at {at} and '{name}' at {other} are pinned too close: '{name}' must lie "
                    f"at {at + below} or above, or '{held.name}' at {other + above} or above"
                )
