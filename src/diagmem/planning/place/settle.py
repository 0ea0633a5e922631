"""Buffers settled within a limit: all of them lie there from the beginning, and move until none is in another's
place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from diagmem.planning.compiled import Machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place import settle_loops
from diagmem.planning.place.effort import Meter
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.flat import Links, links
from diagmem.planning.place.settle_loops import CHANCE, MOVES, SETTLED, UNSETTLED, Settling

AT_ONCE = 20_000
"""Moves: then the clock is looked at."""

LEAST_MOVES = 100
"""What a call counts at the least: one that ends at once costs about as much."""

WAYS = ((1, 8), (0, 1), (1, 4), (1, 0))
"""To say how bad it is that two are in each other's place: by every byte of depth, and for being there at all, which is
one part of so many of the mean size. Which way does best differs from problem to problem, so they take turns."""


@dataclass
class Settle:
    """Settles members of a problem. `moves` and the row of random numbers go on from call to call."""

    problem: Problem
    machine: Machine
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
        at = [min(offsets[member], top) for member, top in zip(members, tops, strict=True)]
        links = self._links(tuple(members))
        state = self._state(links, at)
        outcome = UNSETTLED
        while outcome == UNSETTLED and state.counts[MOVES] < moves and not self.meter.is_late:
            until = min(moves, int(state.counts[MOVES]) + AT_ONCE)
            outcome = self.machine.loops(settle_loops).settled(limit, until, links, state)
        self.moves += max(LEAST_MOVES, int(state.counts[MOVES]))
        self.chance = int(state.counts[CHANCE])
        self.calls += 1
        found = {member: int(place) for member, place in zip(members, state.at, strict=True)}
        return found if outcome == SETTLED else None

    def _state(self, links: Links, at: Sequence[int]) -> Settling:
        count, pairs, ints, filled = len(at), len(links.near), self.machine.ints, self.machine.filled
        depth, parts = WAYS[self.calls % len(WAYS)]
        each = max(1, sum(map(int, links.size)) // (parts * max(1, count))) if parts else 0
        return Settling(
            ints(at),
            filled(count, 1),
            filled(count),
            ints(range(count)),
            filled(count),
            filled(pairs, 1),
            ints(turned_pairs(links)),
            filled(count),
            filled(count),
            filled(count),
            ints((0, self.chance, count, 0, depth, each, 0)),
        )

    def _links(self, members: tuple[int, ...]) -> Links:
        return self.machine.flat(links(self.problem, members))


def turned_pairs(links: Links) -> list[int]:
    """Where each pair stands with the other one first."""
    count, near = len(links.size), np.array(links.near, dtype=np.int64)
    begins = np.array(links.near_from, dtype=np.int64)
    own = np.repeat(np.arange(count), begins[1:] - begins[:-1])
    found: list[int] = np.searchsorted(own * count + near, near * count + own).tolist()
    return found
