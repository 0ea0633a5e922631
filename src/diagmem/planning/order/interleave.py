"""A better interleaving of rows: what makes the peak is moved out of its way.

An order on demand makes each row as late as it can, one branch after the other. Where branches meet, or segments that
were cut apart, some steps before the peak could as well come after it, and some after it could come before and free
rows. Such moves are made as long as they lower the peak.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from diagmem.kernels.rows import RowGraph
from diagmem.model.graph import IntArray
from diagmem.model.schedule import PUSH
from diagmem.planning.needs.build_problem import Row, RowStep, rows_made, rows_read, shared_bytes
from diagmem.planning.needs.problem import live_sum

MOST_WORK = 4_000_000
"""Turns that are looked at, over all orders that are tried: about a second."""

Order = list[int]
"""Turns by their number in the order that it began with."""


class Height(NamedTuple):
    """How bad an order is: the most bytes that live at a step, and how many steps are that bad."""

    peak_bytes: int
    times: int


def interleaved(rows: RowGraph, steps: Sequence[RowStep], kept: frozenset[int]) -> tuple[int, list[RowStep]]:
    """A peak and the order that has it: the one given, or a better one. `kept`: tensors that are needed after the
    run."""
    search = _Steps.of(rows, steps, kept)
    order = list(range(len(steps)))
    best, at = search.height(order)
    left = MOST_WORK // max(1, len(steps))
    while left > 0:
        for moved in search.moves(order, at):
            left -= 1
            height, moved_at = search.height(moved)
            if height < best:
                best, at, order = height, moved_at, moved
                break
            if left <= 0:
                break
        else:
            break
    return best.peak_bytes, [steps[number] for number in order]


@dataclass(frozen=True)
class _Steps:
    """Turns, counted in the order given, and what they are to each other in any order. A recomputed row has several
    lives: `lives` are rows, `makers` the steps that make them (-1: it is there before the run), `reads` the lives that
    each step reads. `before`: the steps that must come before each. `shares`: what a step can share with lives that die
    there, as far as that is known."""

    rows: RowGraph
    steps: tuple[RowStep, ...]
    kept: frozenset[int]
    lives: list[Row]
    makers: list[int]
    reads: list[list[int]]
    before: list[set[int]]
    shares: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: RowGraph, steps: Sequence[RowStep], kept: frozenset[int]) -> _Steps:
        found = cls(rows, tuple(steps), kept, [], [], [], [])
        now: dict[Row, int] = {}
        latest: dict[int, int] = {}
        readers: dict[int, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            read = [now[row] if row in now else found._born(row, -1, now) for row in rows_read(rows, step)]
            # The same op's steps stay in their order, and a row is not recomputed before the last use of the old one.
            before = {found.makers[life] for life in read} | {latest.get(step[0], -1)}
            for row in rows_made(rows, step):
                if row in now:
                    before.update(readers[now[row]], [found.makers[now[row]]])
                found._born(row, number, now)
            for life in read:
                readers[life].append(number)
            latest[step[0]] = number
            found.reads.append(read)
            found.before.append(before - {-1})
        return found

    def _born(self, row: Row, maker: int, now: dict[Row, int]) -> int:
        now[row] = len(self.lives)
        self.lives.append(row)
        self.makers.append(maker)
        return now[row]

    @cached_property
    def behind(self) -> list[list[int]]:
        """RowStep -> those that must come after it."""
        found: list[list[int]] = [[] for _ in self.steps]
        for number, before in enumerate(self.before):
            for other in before:
                found[other].append(number)
        return found

    @cached_property
    def _homes(self) -> IntArray:
        """Life -> the number of the row that it is part of: one of its own, unless several parts are made of it."""
        graph, numbers = self.rows.graph, dict[Row, int]()
        found = []
        for number, (tensor, row) in enumerate(self.lives):
            is_part = tensor in graph.sharing
            found.append(numbers.setdefault((graph.tensors[tensor].base, row), number) if is_part else number)
        return np.array(found, dtype=np.int64)

    @cached_property
    def _sizes(self) -> IntArray:
        """Bytes by life; of parts that are made of one row, those of the row, once."""
        bases = (self.rows.graph.tensors[tensor].base for tensor, _ in self.lives)
        sizes = np.array([self.rows.row_bytes[base] for base in bases], dtype=np.int64)
        return np.where(self._homes == np.arange(len(sizes)), sizes, 0)

    @cached_property
    def _makers(self) -> IntArray:
        return np.array(self.makers, dtype=np.int64)

    @cached_property
    def _uses(self) -> tuple[IntArray, IntArray]:
        """Pairs of the number of a row and a step that makes or reads it."""
        pairs = [(life, step) for step, reads in enumerate(self.reads) for life in reads]
        pairs += enumerate(self.makers)
        life, step = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return self._homes[life], step

    @cached_property
    def _kept(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([tensor in self.kept for tensor, _ in self.lives], dtype=np.bool_)

    @cached_property
    def _sums(self) -> list[tuple[int, list[int]]]:
        """Bytes of an accumulator, and its steps."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, (index, _) in enumerate(self.steps):
            if index != PUSH and self.rows.ops[index].accumulator_bytes:
                found[index].append(number)
        return [(self.rows.ops[op].accumulator_bytes, steps) for op, steps in found.items()]

    def height(self, order: Order) -> tuple[Height, int]:
        """How bad an order is, and at which place first."""
        count = len(order)
        # What is there before the run counts from its first step.
        place = np.zeros(count + 1, dtype=np.int64)
        place[np.array(order, dtype=np.int64)] = np.arange(count)
        first, last = np.full(len(self.lives), count, dtype=np.int64), np.zeros(len(self.lives), dtype=np.int64)
        np.minimum.at(first, self._homes, place[self._makers])
        home, step = self._uses
        np.maximum.at(last, home, place[step])
        # What is kept does not end with the last step either.
        end = np.where(self._kept, count + 1, last + 1)
        live = live_sum(first, end, self._sizes, count)
        for size, steps in self._sums:
            live[place[steps].min() : place[steps].max() + 1] += size
        return self._worst(order, live, end)

    def _worst(self, order: Order, live: IntArray, end: IntArray) -> tuple[Height, int]:
        """Of what lives at a step, what is made may share some bytes with what dies."""
        peak, places = 0, list[int]()
        if not len(live):
            return Height(0, 0), 0
        highest = int(np.argmax(live))
        # Where less lives than is needed there, nothing can be worse.
        high = np.flatnonzero(live >= live[highest] - self._shared(order[highest], highest, end))
        for at in high[np.argsort(-live[high], kind="stable")].tolist():
            if live[at] < peak:
                break
            needed = int(live[at]) - self._shared(order[at], at, end)
            if needed > peak:
                peak, places = needed, []
            if needed == peak:
                places.append(at)
        return Height(peak, len(places)), min(places, default=0)

    def _shared(self, step: int, at: int, end: IntArray) -> int:
        """What a step at a place shares with what dies there."""
        dying = tuple(life for life in self.reads[step] if end[self._home_of[life]] == at + 1)
        if (step, dying) not in self.shares:
            rows = {self.lives[life] for life in dying}
            self.shares[step, dying] = shared_bytes(self.rows, self.steps[step], rows)
        return self.shares[step, dying]

    @cached_property
    def _home_of(self) -> list[int]:
        found: list[int] = self._homes.tolist()
        return found

    def moves(self, order: Order, peak: int) -> Iterator[Order]:
        """Orders in which some step comes after the peak instead of before it, or the other way round, with all that
        must go along."""
        place = {step: at for at, step in enumerate(order)}
        staying = set(order[peak : peak + 1])
        for at in range(peak - 1, -1, -1):
            if any(other in staying for other in self.behind[order[at]]):
                staying.add(order[at])
            else:
                yield from self._later(order, self._with(order[at], self.behind, place, range(at, peak)), peak)
        staying = set(order[peak : peak + 1])
        for at in range(peak + 1, len(order)):
            if any(other in staying for other in self.before[order[at]]):
                staying.add(order[at])
                continue
            moved = self._with(order[at], self.before, place, range(peak + 1, at + 1))
            rest = [step for step in order[peak : at + 1] if step not in moved]
            yield [*order[:peak], *(t for t in order[peak : at + 1] if t in moved), *rest, *order[at + 1 :]]

    def _later(self, order: Order, moved: set[int], peak: int) -> Iterator[Order]:
        """Behind the peak: at once, and as late as can be."""
        ahead = [step for step in order[: peak + 1] if step not in moved]
        group = [step for step in order[: peak + 1] if step in moved]
        behind = order[peak + 1 :]
        yield [*ahead, *group, *behind]
        awaited = {other for step in group for other in self.behind[step]}
        until = next((n for n, step in enumerate(behind) if step in awaited), len(behind))
        if until:
            yield [*ahead, *behind[:until], *group, *behind[until:]]

    @staticmethod
    def _with(
        first: int, linked: Sequence[Sequence[int] | set[int]], place: Mapping[int, int], inside: range
    ) -> set[int]:
        """A step and those inside that are linked to it, however indirectly."""
        found, left = {first}, [first]
        while left:
            more = [other for other in linked[left.pop()] if other not in found and place[other] in inside]
            found.update(more)
            left += more
        return found
