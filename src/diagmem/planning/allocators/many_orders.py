"""First fit from many orders, for problems of hundreds of small buffers: the rows of a network that runs row by row.

Each order is repaired as in `local`: whoever does not fit goes earlier. Orders take turns, and get more rounds each
time that none of them has brought anything. Work is counted, not timed: the answer is the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from diagmem.planning.allocators.core import core, with_removed
from diagmem.planning.allocators.fit import Offsets, Partial, lowest_fit
from diagmem.planning.allocators.greedy import greedy, orders
from diagmem.planning.allocators.optimal import chain_bound
from diagmem.planning.allocators.placement import Placement
from diagmem.planning.problem import Problem

MOST_WORK = 400_000
"""How many times a buffer is placed, at the most: a few seconds."""

WORK_PER_BUFFER = 1_500

NEAR, NEAR_ENOUGH = 1.003, 1.01
"""So close to the bound it is not worth while to go on, or, after half of the work, to go on any longer."""

FIRST_ROUNDS = 50


def many_orders(problem: Problem, effort: float = 1.0) -> Placement:
    """The best placement found, and a bound for all placements. `effort`: how much of the usual work to do."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, range(len(problem.buffers)), bound, problem.arena_bytes(offsets)))
    search = _Search(problem, int(effort * min(MOST_WORK, WORK_PER_BUFFER * len(problem.buffers))))
    rounds, half = FIRST_ROUNDS, search.work / 2
    while search.work > 0 and problem.arena_bytes(offsets) > bound * (NEAR if search.work > half else NEAR_ENOUGH):
        better = search.below(offsets, rounds)
        if better is None:
            rounds *= 2
        else:
            offsets = better
    return Placement.of(problem, offsets, min(bound, problem.arena_bytes(offsets)))


@dataclass
class _Search:
    """`work`: what is left of it. `lucky`: the order that last brought something is the first to be tried next."""

    problem: Problem
    work: int
    lucky: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def below(self, offsets: Offsets, rounds: int) -> Offsets | None:
        """Offsets of a smaller arena than that of these, None if no order comes to any within so many rounds."""
        limit = self.problem.arena_bytes(offsets) - self.problem.unit_bytes
        members, removed = core(self.problem, limit)
        starts = list(_starts(self.problem, offsets))
        for number in sorted(range(len(starts)), key=lambda n: n != self.lucky):
            placed = self._repaired(starts[number], set(members), limit, rounds)
            if placed is not None:
                self.lucky = number
                return with_removed(self.problem, placed, removed)
        return None

    def _repaired(self, start: list[int], members: Collection[int], limit: int, rounds: int) -> Partial | None:
        order = [buffer for buffer in start if buffer in members]
        placed: Partial = [None] * len(self.problem.buffers)
        begin = 0
        for _ in range(rounds):
            misfit = self._fit(order, begin, limit, placed)
            if misfit is None:
                return placed
            near = {n.index for n in self.problem.neighbours[order[misfit]]}
            in_its_way = next((place for place in range(misfit) if order[place] in near), None)
            if in_its_way is None or self.work <= 0:
                return None
            begin = self.chance.randint(in_its_way, misfit)
            for buffer in order[begin:misfit]:
                placed[buffer] = None
            order.insert(begin, order.pop(misfit))
        return None

    def _fit(self, order: list[int], begin: int, limit: int, placed: Partial) -> int | None:
        """Places all from place `begin` of the order on, up to the place of the first that ends above the limit."""
        for place in range(begin, len(order)):
            buffer = order[place]
            at = lowest_fit(self.problem, buffer, placed)
            self.work -= 1
            if at + self.problem.buffers[buffer].size_bytes > limit:
                return place
            placed[buffer] = at
        return None


def _starts(problem: Problem, offsets: Offsets) -> Iterator[list[int]]:
    buffers, indices = problem.buffers, range(len(problem.buffers))
    yield sorted(indices, key=lambda b: (offsets[b], b))
    yield from orders(problem)
    yield sorted(indices, key=lambda b: -buffers[b].end_step)
    yield sorted(indices, key=lambda b: (offsets[b] + buffers[b].size_bytes, b))
    yield sorted(indices, key=lambda b: buffers[b].first_step - buffers[b].end_step)
