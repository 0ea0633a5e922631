"""Min-conflicts with weights (the breakout method).

All buffers lie within the limit from the beginning, some of them in each other's place. One after the other moves to
where its conflicts with neighbours cost least. Where no move lowers the cost, each pair in conflict weighs more than
before; so whoever is hard to place pushes the others aside, sooner or later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import Meter
from diagmem.planning.place.first_fit_loops import ConflictState, Links, links, min_conflicts
from diagmem.planning.place.fit import Offsets, filled, ints, listed

AT_ONCE = 20_000
"""Moves: then the clock is looked at."""

LEAST_MOVES = 100
"""What a call counts at the least: one that ends at once costs about as much."""

COSTS = ((1, 8), (0, 1), (1, 4), (1, 0))
"""Of a conflict: for every byte of depth, and for each pair, which is one part of so many of the mean size. Which cost
does best differs from problem to problem, so they take turns."""


@dataclass
class MinConflicts:
    """Places members of a problem. `moves` and the row of random numbers go on from call to call."""

    problem: Problem
    meter: Meter
    moves: int = field(default=0, init=False)
    chance: int = field(default=1, init=False)
    calls: int = field(default=0, init=False)

    def within(self, limit: int, members: Sequence[int], offsets: Offsets, moves: int) -> Mapping[int, int] | None:
        """Offsets of the members within the limit, if there are any after so many moves from these offsets."""
        buffers = [self.problem.buffers[member] for member in members]
        tops = [(limit - b.size_bytes) // b.align_bytes * b.align_bytes for b in buffers]
        if min(tops, default=0) < 0:
            self.moves += LEAST_MOVES
            return None
        at = ints([min(offsets[member], top) for member, top in zip(members, tops, strict=True)])
        near = links(self.problem, tuple(members))
        state = self._state(near, at)
        is_solved = False
        while not is_solved and state.moves < moves and not self.meter.is_late:
            is_solved = min_conflicts(limit, min(moves, state.moves + AT_ONCE), near, state)
        self.moves += max(LEAST_MOVES, state.moves)
        self.chance = state.chance
        self.calls += 1
        return dict(zip(members, listed(at), strict=True)) if is_solved else None

    def _state(self, near: Links, at: Any) -> ConflictState:
        count, pairs = len(at), len(near.near)
        depth, parts = COSTS[self.calls % len(COSTS)]
        each = max(1, sum(map(int, near.size)) // (parts * max(1, count))) if parts else 0
        is_stuck, stuck, low, high, heavy = (filled(count) for _ in range(5))
        queue, turned = ints(range(count)), ints(turned_pairs(near))
        lists = (at, filled(count, 1), is_stuck, queue, stuck, filled(pairs, 1), turned, low, high, heavy)
        return ConflictState(*lists, depth, each, self.chance, count)


def turned_pairs(links: Links) -> list[int]:
    """Where each pair stands with the other one first."""
    count, near = len(links.size), np.array(links.near, dtype=np.int64)
    begins = np.array(links.near_from, dtype=np.int64)
    own = np.repeat(np.arange(count), begins[1:] - begins[:-1])
    found: list[int] = np.searchsorted(own * count + near, near * count + own).tolist()
    return found
