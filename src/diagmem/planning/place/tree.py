"""The search from the bottom up, started again and again: buffers that failed often come earlier the next time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from diagmem.planning.compiled import Machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place import tree_loops
from diagmem.planning.place.flat import NOWHERE, Links, links
from diagmem.planning.place.sections import sections
from diagmem.planning.place.stack_loops import COUNT, FRAME, NODES, RECENT, Sections, Tree
from diagmem.planning.place.tree_loops import SOLVED

FIRST_NODES, GROWTH = 1_000, 200
"""Nodes of the first run; and each is one in 200 longer than the one before: most runs that find anything find it
soon, so there are many."""

MOST_MEMBERS, MOST_SHARING = 1_000, 600
"""The search keeps a few numbers for each pair of members; and beyond so many it finds little, the sooner where some of
them may overlap."""


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
class TreeSearch:
    """Members of a problem, ready for the loops of the search; here each goes by its place among the members."""

    members: Sequence[int]
    machine: Machine
    links: Links
    loose: Links
    sections: Sections
    load: Sequence[int]
    lifetime: Sequence[int]
    nodes: int = field(default=0, init=False)

    @classmethod
    def of(cls, problem: Problem, members: Sequence[int], machine: Machine) -> TreeSearch:
        cut, load = sections(problem, members)
        buffers = [problem.buffers[member] for member in members]
        lifetime = [buffer.end_step - buffer.first_step for buffer in buffers]
        near = links(problem, members)
        ordered, loose = machine.flat(by_rising_above(near)), machine.flat(loose_only(near))
        return cls(members, machine, ordered, loose, machine.flat(cut), load, lifetime)

    def start(self, order: Sequence[int], pull: int, by_rank: bool = False) -> Start:
        return Start(order, pull, self.machine.filled(len(self.members)), by_rank)

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
        count, filled = len(self.members), self.machine.filled
        rank, members = filled(count), self._rooms[0]
        for place, buffer in enumerate(start.ranked()):
            rank[buffer], members[place] = place, buffer
        counts = self.machine.ints((0, nodes, 0, int(jumps), int(start.by_rank), capacity))
        cause, at = filled(count, NOWHERE), filled(count, NOWHERE)
        recent = filled(RECENT, NOWHERE)
        tree = Tree._make((rank, filled(count), cause, at, filled(count), start.weight, *self._rooms, recent, counts))
        tree.frames[COUNT] = count
        outcome = self.machine.loops(tree_loops).search(self.links, self.loose, self.sections, tree)
        self.nodes += int(counts[NODES])
        solved = {member: int(at[place]) for place, member in enumerate(self.members)} if outcome == SOLVED else {}
        return outcome, solved

    @cached_property
    def _rooms(self) -> tuple[Any, ...]:
        """For members, candidates and blame by depth, crossings by depth, tops, the trail, frames and a stack."""
        count, filled, width = len(self.members), self.machine.filled, len(self.load) + 2
        square = (count + 2) * count
        trail = 3 * (len(self.links.near) + 1)
        return (
            *(filled(square) for _ in range(3)),
            filled((count + 2) * width),
            filled(width),
            filled(trail),
            filled((count + 2) * FRAME),
            filled(count),
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
    columns = ([0, *np.cumsum(counts).tolist()], near.near[which], near.below[which], near.above[which])
    return Links(near.size, near.align, *columns)
