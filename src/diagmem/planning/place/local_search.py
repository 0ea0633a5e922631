"""Placements without proof: first fit in good orders, the paper's allocator, and two local searches within a limit.

The paper's allocator (section IV) is a heap whose next buffer is chosen, not given. It starts from one buffer at offset
zero. The next is taken among those that live together with one already placed: the one that, put at the lowest free
place, ends lowest. Forwards starts at the first buffer, backwards at the last one.

Squeaky wheel optimisation: first fit; whoever does not fit goes earlier in the order, and all behind it are placed
again.

Min-conflicts with weights (the breakout method): all buffers lie within the limit from the beginning, some of them in
each other's place. One after the other moves to where its conflicts with neighbours cost least. Where no move lowers
the cost, each pair in conflict weighs more than before; so whoever is hard to place pushes the others aside, sooner or
later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import Meter
from diagmem.planning.place.first_fit_loops import (
    ConflictState,
    FirstFitState,
    Links,
    core,
    fit_in_order,
    links,
    min_conflicts,
    squeaky_wheel,
)
from diagmem.planning.place.fit import FAR, NOWHERE, Offsets, Partial, filled, ints, listed, lowest_fit

ROUNDS = 400

MOST_FITS = 8_000
"""For each step down: fewer rounds where hundreds of buffers live at once."""

MOST_PAIRS = 4_000_000
"""Buffers that are looked at to place others, in all steps: about a second or two in plain Python."""

AT_ONCE = 20_000
"""Moves: then the clock is looked at."""

LEAST_MOVES = 100
"""What a call counts at the least: one that ends at once costs about as much."""

COSTS = ((1, 8), (0, 1), (1, 4), (1, 0))
"""Of a conflict: for every byte of depth, and for each pair, which is one part of so many of the mean size. Which cost
does best differs from problem to problem, so they take turns."""


@dataclass(frozen=True)
class SqueakyWheel:
    """A problem, ready for the loops of first fit. What they count, and the row of random numbers, go on from call to
    call."""

    problem: Problem
    links: Links = field(repr=False)
    at: Any = field(repr=False)
    place_of: Any = field(repr=False)
    is_stale: Any = field(repr=False)
    state: FirstFitState = field(repr=False)

    @classmethod
    def of(cls, problem: Problem, seed: int = 1) -> SqueakyWheel:
        at, place_of, is_stale, low, high = (filled(len(problem.buffers)) for _ in range(5))
        state = FirstFitState(at, place_of, is_stale, low, high, seed)
        return cls(problem, links(problem), at, place_of, is_stale, state)

    @property
    def fits(self) -> int:
        """How many times a buffer was placed so far."""
        return self.state.fits

    def core(self, limit: int) -> tuple[list[int], list[int]]:
        """Buffers that matter for an arena of `limit` bytes, and the rest in the order of its removal."""
        count = len(self.problem.buffers)
        is_left, removed = filled(count, 1), filled(count)
        out = core(limit, self.problem.unit_bytes, self.links, is_left, removed)
        return [b for b, left in enumerate(listed(is_left)) if left], listed(removed[:out])

    def within(self, limit: int, order: Iterable[int], rounds: int, fits: int) -> dict[int, int] | None:
        """Offsets of the buffers in the order, if in so many rounds and about so many fits there are any."""
        given = self._put(order, {})
        if not squeaky_wheel(given, limit, rounds, self.fits + fits, self.links, self.state):
            return None
        at = listed(self.at)
        return {buffer: at[buffer] for buffer in listed(given)}

    def with_others(self, placed: Mapping[int, int], others: Iterable[int]) -> Offsets:
        """All offsets, from those of some buffers and a first fit of the others in this order."""
        return self.first_fit(others, placed=placed) or ()

    def first_fit(
        self, order: Iterable[int], limit: int = FAR, placed: Mapping[int, int] = MappingProxyType({})
    ) -> Offsets | None:
        """Offsets of all buffers, placed in this order after those in `placed`; None as soon as one ends above the
        limit."""
        given = self._put([*placed, *order], placed)
        if fit_in_order(given, len(placed), limit, self.links, self.state) < len(given):
            return None
        return tuple(listed(self.at))

    def _put(self, order: Iterable[int], placed: Mapping[int, int]) -> Any:
        """Makes the order ready: what is not in it stands at no place."""
        given, count = list(order), len(self.at)
        at, place_of = [NOWHERE] * count, [FAR] * count
        for buffer, offset in placed.items():
            at[buffer] = offset
        for place, buffer in enumerate(given):
            place_of[buffer] = place
        self.at[:], self.place_of[:], self.is_stale[:] = at, place_of, [1] * count
        return ints(given)


def greedy(problem: Problem) -> Offsets:
    """The best of a few orders: by size, by the pressure of the steps that a buffer lives through, and backwards."""
    fit = SqueakyWheel.of(problem).first_fit
    best = fit(range(len(problem.buffers))) or ()
    for order in orders(problem):
        if problem.arena_bytes(best) <= problem.lower_bound_bytes:
            break
        best = fit(order, problem.arena_bytes(best) - 1) or best
    return best


def orders(problem: Problem) -> Iterator[list[int]]:
    buffers, indices = problem.buffers, range(len(problem.buffers))
    pressure = [max(problem.pressure[max(0, b.first_step) : b.end_step], default=0) for b in buffers]
    # An operation's output lies below its input, so of two that meet at a tight step the later one goes first.
    yield sorted(indices, key=lambda b: (-pressure[b], -buffers[b].first_step))
    yield sorted(indices, key=lambda b: -buffers[b].size_bytes)
    yield sorted(indices, key=lambda b: -buffers[b].first_step)
    yield sorted(indices, key=lambda b: (-pressure[b], -buffers[b].size_bytes))
    yield sorted(indices, key=lambda b: buffers[b].first_step)


def heap(problem: Problem) -> Offsets:
    """The better of forwards and backwards."""
    return min(modified_heap(problem, backwards=False), modified_heap(problem, backwards=True), key=problem.arena_bytes)


def modified_heap(problem: Problem, backwards: bool, latest_first: bool = False) -> Offsets:
    """Of two buffers that would end at the same address, the one that has waited longer beside a placed one goes first,
    then the one created first; or, if `latest_first`, the one created last. The paper does not say which."""
    waiting = in_order_of_creation(problem)
    created = {buffer: place for place, buffer in enumerate(waiting)}
    placed: Partial = [None] * len(waiting)
    ends: dict[int, int] = {}
    while waiting:
        # At the start, and if none that is left touches a placed one, take the one at the end of the row.
        chosen = waiting[-1 if backwards else 0]
        if ends:
            chosen = min(ends, key=lambda b: (ends[b], -created[b] if latest_first else 0))
        placed[chosen] = lowest_fit(problem, chosen, placed)
        waiting.remove(chosen)
        ends.pop(chosen, None)
        for other in waiting:
            if problem.buffers[chosen].lives_with(problem.buffers[other]):
                ends[other] = lowest_fit(problem, other, placed) + problem.buffers[other].size_bytes
    return tuple(offset for offset in placed if offset is not None)


def reordered_heap(problem: Problem) -> Offsets:
    """A plain heap in reverse order of creation, with the one buffer moved last that makes it smallest."""
    order = in_order_of_creation(problem)[::-1]
    orders = [order, *([b for b in order if b != last] + [last] for last in order)]
    wheel = SqueakyWheel.of(problem)
    return min((wheel.with_others({}, o) for o in orders), key=problem.arena_bytes)


def in_order_of_creation(problem: Problem) -> list[int]:
    """Buffers by the step that makes them."""
    return sorted(range(len(problem.buffers)), key=lambda b: (problem.buffers[b].first_step, b))


def improve(problem: Problem, offsets: Offsets, target: int, rounds: int = ROUNDS, seed: int = 1) -> Offsets:
    """Lowers the arena until it meets `target`, or until so many rounds in a row do not lower it."""
    if problem.arena_bytes(offsets) <= target:
        return offsets
    search = SqueakyWheel.of(problem, seed)
    near = 50 + len(search.links.near) // max(1, len(problem.buffers))
    while (arena := problem.arena_bytes(offsets)) > target and search.fits * near < MOST_PAIRS:
        limit = arena - problem.unit_bytes
        hard, removed = search.core(limit)
        placed = search.within(limit, sorted(hard, key=lambda b: (offsets[b], b)), rounds, MOST_FITS)
        if placed is None:
            break
        offsets = search.with_others(placed, reversed(removed))
    return offsets


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
