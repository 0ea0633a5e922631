"""Branch and bound from the bottom up, with restarts: buffers that failed often come earlier the next time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.branch_and_bound_loops import FAILED, SOLVED, SearchTree, Sections, search
from diagmem.planning.place.first_fit_loops import Links, links
from diagmem.planning.place.fit import LEHMER, NOWHERE, PRIME, Offsets, filled, ints, listed

FIRST_NODES, GROWTH = 1_000, 200
"""Nodes of the first run; and each is one in 200 longer than the one before: most runs that find anything find it
soon, so there are many."""

MOST_MEMBERS, MOST_NEIGHBOURS = 1_000, 600
"""The search keeps a few numbers for each pair of members; and beyond so many it finds little, the sooner where some of
them may overlap."""

RECENT = 4
"""Sections that overflowed last: nine of ten failures are theirs again, so they are looked at before all others."""

LEAST_NODES = 50
"""What a run counts at the least: one that ends at once costs about as much."""

APART = (("WAT", 2), ("TWA", 8), ("WAT", 2), ("TSZ", 16))
"""For buffers that may not overlap: orders, with their pulls in 32nds, each shaken a little. How long a search takes is
a matter of luck, and what differs a little soon differs wholly: of several the luckiest counts."""

NEIGHBOURS = (("WAT", 2), ("TWA", 2), ("EW", 2), ("WAT", 2), ("TZ", 2))
"""The same for buffers that may overlap, after the order of the present offsets."""

RENEWED_NODES = 25_000
"""After so many nodes without success such an order is shuffled again, and its failure counts start from zero."""

SHAKES = 100
"""Of one attempt, at the most: numbers of the next one's begin so much further on."""

Held = dict[int, int]
"""Bytes by buffer, of those alive at some step."""


@dataclass(frozen=True, slots=True)
class Start:
    """An order to begin with, and how often each buffer failed since: each start learns for itself.

    `pull`: how strongly failures change the order, in 32nds. `by_rank`: candidates are tried in the order, not by their
    offsets.
    """

    order: Sequence[int]
    pull: int
    weight: Any
    by_rank: bool = False

    def ranked(self) -> list[int]:
        """The order, with those that failed often earlier."""
        place = {buffer: number for number, buffer in enumerate(self.order)}
        pull = self.pull * len(place)

        def score(buffer: int) -> int:
            # The logarithm to base 2 in 16ths, exact on every machine.
            logarithm = ((1 + int(self.weight[buffer])) ** 16).bit_length() - 1
            return 32 * 16 * place[buffer] - pull * logarithm

        return sorted(self.order, key=score)


@dataclass
class BranchAndBound:
    """Members of a problem, ready for the loops of the search; here each goes by its place among the members."""

    members: Sequence[int]
    links: Links
    loose: Links
    sections: Sections
    load: Sequence[int]
    lifetime: Sequence[int]
    nodes: int = field(default=0, init=False)

    @classmethod
    def of(cls, problem: Problem, members: Sequence[int]) -> BranchAndBound:
        cut, load = sections(problem, members)
        buffers = [problem.buffers[member] for member in members]
        lifetime = [buffer.end_step - buffer.first_step for buffer in buffers]
        near = links(problem, members)
        return cls(members, by_rising_above(near), loose_only(near), cut, load, lifetime)

    def start(self, order: Sequence[int], pull: int, by_rank: bool = False) -> Start:
        return Start(order, pull, filled(len(self.members)), by_rank)

    def sorted_by(self, keys: str) -> list[int]:
        """Members by falling keys: T, the largest load of their sections; W, lifetime; A, size times lifetime; S, the
        number of their sections; Z, size; E, the last of their sections."""
        first, last, size = self.sections.first, self.sections.last, self.links.size
        key: dict[str, Callable[[int], int]] = {
            "T": lambda b: -max(self.load[first[b] : last[b] + 1]),
            "W": lambda b: -self.lifetime[b],
            "A": lambda b: -self.lifetime[b] * int(size[b]),
            "S": lambda b: int(first[b] - last[b]),
            "Z": lambda b: -int(size[b]),
            "E": lambda b: -int(last[b]),
        }
        return sorted(range(len(self.members)), key=lambda b: [key[k](b) for k in keys])

    def run(self, start: Start, capacity: int, nodes: int, jumps: bool = True) -> tuple[int, dict[int, int]]:
        """FAILED, SOLVED or SPENT; and if solved, the offset of each of the problem's buffers that is a member."""
        count = len(self.members)
        rank, at, (members, *rooms) = filled(count), filled(count, NOWHERE), self._rooms
        for place, buffer in enumerate(start.ranked()):
            rank[buffer], members[place] = place, buffer
        by_depth = [filled(count + 2) for _ in range(9)]
        by_depth[0][0] = count
        by_buffer = [rank, filled(count), filled(count, NOWHERE), at, filled(count), start.weight]
        options = nodes, jumps, start.by_rank, capacity
        tree = SearchTree(*[*by_buffer, members, *rooms, filled(RECENT, NOWHERE), *by_depth, *options])
        outcome = search(self.links, self.loose, self.sections, tree)
        self.nodes += tree.nodes
        return outcome, dict(zip(self.members, listed(at), strict=True)) if outcome == SOLVED else {}

    @cached_property
    def _rooms(self) -> tuple[Any, ...]:
        """For members, candidates and blame by depth, crossings by depth, tops, the trail and a stack."""
        count, width = len(self.members), len(self.load) + 2
        square = (count + 2) * count
        return tuple(
            map(filled, (square, square, square, (count + 2) * width, width, 3 * (len(self.links.near) + 1), count))
        )


def by_rising_above(near: Links) -> Links:
    """The same buffers with their neighbours in the order of `above`."""
    return _picked(near, np.lexsort((np.asarray(near.above), _owners(near))))


def loose_only(near: Links) -> Links:
    """The same buffers with the neighbours that they may start below, or with."""
    return _picked(near, np.flatnonzero(np.asarray(near.below) <= 0))


def _owners(near: Links) -> Any:
    return np.repeat(np.arange(len(near.size)), np.diff(near.near_from))


def _picked(near: Links, which: Any) -> Links:
    """Some of the neighbours; those of one buffer stand together."""
    counts = np.bincount(_owners(near)[which], minlength=len(near.size))
    columns = (np.asarray(column)[which] for column in (near.near, near.below, near.above))
    return Links(near.size, near.align, ints([0, *np.cumsum(counts).tolist()]), *map(ints, columns))


@dataclass
class FeasibilitySearch:
    """One arena's size, and the search for a placement within it, started again and again: buffers that failed often
    come earlier the next time.

    `shake`: the number of the last shuffle of an order without success; None: no order is shuffled again. `taken`:
    nodes by start. `is_impossible`: the search has shown that nothing fits. `nodes`: of one run, in hundredths.
    """

    tree: BranchAndBound
    capacity: int
    starts: list[Start]
    is_exact: bool
    exact: Start
    shake: int | None
    taken: list[int] = field(init=False)
    exact_nodes: int = field(default=0, init=False)
    is_impossible: bool = field(default=False, init=False)
    nodes: int = field(default=100 * FIRST_NODES, init=False)
    runs: int = field(default=0, init=False)

    @classmethod
    def of(
        cls,
        problem: Problem,
        members: Sequence[int],
        capacity: int,
        offsets: Offsets,
        seed: int = 0,
    ) -> FeasibilitySearch:
        """`offsets`: of a larger arena, whose order is one to begin with. `seed`: of how other orders are shaken."""
        tree = BranchAndBound.of(problem, members)
        is_exact = bool((np.minimum(tree.links.below, tree.links.above) > 0).all())
        if not problem.overlaps:
            starts = [tree.start(shaken(tree.sorted_by(k), number), pull) for number, (k, pull) in enumerate(APART)]
        else:
            own = sorted(range(len(members)), key=lambda place: (offsets[members[place]], place))
            starts = [tree.start(own, 1, by_rank=True)]
            for number, (keys, pull) in enumerate(NEIGHBOURS, len(NEIGHBOURS) * seed):
                starts.append(tree.start(shaken(tree.sorted_by(keys), number), pull))
        shake = 10 * SHAKES + SHAKES * seed if problem.overlaps else None
        found = cls(tree, capacity, starts, is_exact, tree.start(tree.sorted_by("TWA"), 2), shake)
        found.is_impossible = is_exact and max(tree.load, default=0) > capacity
        return found

    def __post_init__(self) -> None:
        self.taken = [0] * len(self.starts)

    def run(self, most_nodes: int) -> tuple[dict[int, int] | None, int]:
        """Offsets of the members if the next run finds any; and the nodes it took."""
        at = self.runs % len(self.starts)
        self._renew(at)
        placed, nodes = self._run(self.starts[at], most_nodes)
        self.taken[at] += nodes
        return placed, nodes

    def _renew(self, at: int) -> None:
        """The first start goes by offsets, which nothing is to shake."""
        if self.shake is None or not at or self.taken[at] <= RENEWED_NODES:
            return
        self.shake += 1
        keys, pull = NEIGHBOURS[at - 1]
        self.starts[at] = self.tree.start(shaken(self.tree.sorted_by(keys), self.shake), pull)
        self.taken[at] = 0

    def _run(self, start: Start, most_nodes: int) -> tuple[dict[int, int] | None, int]:
        self.runs += 1
        before, budget = self.tree.nodes, min(self.nodes // 100, most_nodes)
        self.nodes += self.nodes // GROWTH
        outcome, placed = self.tree.run(start, self.capacity, budget)
        if outcome == FAILED and self.is_exact and 4 * self.exact_nodes <= self.tree.nodes:
            # The tree has ended, but with leaps: without them its end is a proof.
            so_far = self.tree.nodes
            outcome, placed = self.tree.run(self.exact, self.capacity, budget, jumps=False)
            self.exact_nodes += self.tree.nodes - so_far
            self.is_impossible = outcome == FAILED
        return placed if outcome == SOLVED else None, max(LEAST_NODES, self.tree.nodes - before)


def shaken(order: Sequence[int], seed: int) -> list[int]:
    """The order with each moved by up to one in fifty places; as it is for seed 0."""
    chance, key = seed, {}
    for place, buffer in enumerate(order):
        chance = chance * LEHMER % PRIME
        key[buffer] = 50 * place + chance % len(order)
    return sorted(order, key=lambda buffer: key[buffer])


def cliques(problem: Problem, members: Sequence[int]) -> list[list[int]]:
    """The sets of members alive at once that are not part of a larger one."""
    return [[members[place] for place in held] for held in _kept(problem, members)]


def sections(problem: Problem, members: Sequence[int]) -> tuple[Sections, list[int]]:
    """The sections of a problem's members, by their place among the members, and the bytes held in each section."""
    kept = _kept(problem, members)
    first, last = [0] * len(members), [0] * len(members)
    held_by: list[list[int]] = [[] for _ in members]
    for number, held in enumerate(kept):
        for place, size in held.items():
            if not held_by[place]:
                first[place] = number
            last[place] = number
            held_by[place].append(size)
    return Sections(ints(first), ints(last), *_joined(held_by), *_joined(kept)), [sum(h.values()) for h in kept]


def _kept(problem: Problem, members: Sequence[int]) -> list[Held]:
    """What is held at each step, but for steps at which another one before or behind holds as much of everything."""
    kept: list[Held] = []
    for held in _held_by_step(problem, members):
        if kept and _is_within(held, kept[-1]):
            continue
        while kept and _is_within(kept[-1], held):
            kept.pop()
        kept.append(held)
    return kept


def _is_within(held: Held, other: Held) -> bool:
    return len(held) <= len(other) and all(other.get(place, -1) >= size for place, size in held.items())


def _held_by_step(problem: Problem, members: Sequence[int]) -> list[Held]:
    """What is held from each step at which a lifetime begins or ends to the next such step.

    A buffer holds its size, in whole units. Where the pressure is less than all that are alive take, some may share:
    those that begin there and may overlap, and those that may overlap others all the time. As it is not known which
    does, the difference is taken off each of them.
    """
    buffers, unit = problem.buffers, problem.unit_bytes
    times = sorted({t for b in buffers for t in (b.first_step, b.end_step)})
    place_of = {buffer: place for place, buffer in enumerate(members)}
    alive: list[list[int]] = [[] for _ in times]
    for index, buffer in enumerate(buffers):
        for at in range(bisect_left(times, buffer.first_step), bisect_left(times, buffer.end_step)):
            alive[at].append(index)
    sizes = [-(-b.size_bytes // unit) * unit for b in buffers]
    sharing, moving = _sharing(problem)
    found = []
    for at, live in enumerate(alive[:-1]):
        held = {index: sizes[index] for index in live}
        shared = _shared(problem, sum(held.values()), times[at], times[at + 1]) if sharing else 0
        if shared > 0:
            born = {b for b in live if b in sharing and buffers[b].first_step == times[at]}
            for index in (born | moving.intersection(live)) or live:
                held[index] = max(0, sizes[index] - shared)
        found.append({place_of[index]: size for index, size in held.items() if index in place_of})
    return [held for held in found if held]


def _sharing(problem: Problem) -> tuple[set[int], set[int]]:
    """Buffers that may overlap one that dies as they begin; and those that may overlap others at other times."""
    buffers = problem.buffers
    sharing: set[int] = set()
    moving: set[int] = set()
    for below, above in problem.overlaps:
        sharing.update((below, above))
        if buffers[below].first_step != buffers[above].end_step - 1:
            moving.update((below, above))
    return sharing, moving


def _shared(problem: Problem, taken: int, first: int, end: int) -> int:
    """Bytes less than those taken that no placement can do without in the steps [first, end)."""
    pressure = problem.pressure[max(first, 0) : max(end, 1)]
    return taken - max(pressure) if pressure else taken


def _joined(lists: Iterable[Iterable[int]]) -> tuple[Any, Any]:
    """Where each list begins in all of them put together, and these."""
    begins: list[int] = [0]
    together: list[int] = []
    for each in lists:
        together.extend(each)
        begins.append(len(together))
    return ints(begins), ints(together)
