"""Row by row: an order of single rows in which only a few rows of each tensor exist at once.

The ops are cut into segments of consecutive ones. Within a segment rows are made on demand; between segments whole
tensors exist. The cut with the smallest peak of live bytes is found by dynamic programming over segments; then steps
move across its borders where that lowers the peak.

Rows may be recomputed, for less memory. A tensor under a sliding window is held for as many rows as the window overlaps
itself. Dropped, it costs nothing while other ops work; instead some of its rows are made several times, and of what
they are made more rows must be held. The larger the pieces in which its readers' rows are made, the fewer are
recomputed, and the more of the readers' are held. That is how the paper splits operations.

An order on demand makes each row as late as it can, one branch after the other. Where branches meet, or segments that
were cut apart, some steps before the peak could as well come after it, and some after it could come before and free
rows. Such moves are made as long as they lower the peak.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from diagmem.kernels.rows import RowGraph
from diagmem.model.graph import IntArray
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.planning.needs.build_problem import Row, RowStep, rows_made, rows_read, shared_bytes
from diagmem.planning.needs.problem import live_sum
from diagmem.planning.order.demand import Demand

MOST_SEGMENTS = 12_000
"""Segments that are tried, about: all of them in networks of up to 109 ops; in larger ones only shorter ones."""

LEAST_LONGEST = 24

MOST_TURNS_OF_SEGMENTS = 10_000_000
"""In all segments that are tried, about: a few seconds."""

MOST_WORK = 4_000_000
"""Turns that are looked at, over all orders that are tried: about a second."""

Interleaving = list[int]
"""Turns by their number in the order that it began with."""

Dropped = frozenset[tuple[int, int]]
"""Tensors with a single reader whose rows are recomputed, and after how many rows."""


@dataclass(frozen=True)
class Segment:
    """The ops [begin, end), streamed. `again`: for each row as many may be made as this, at the most."""

    rows: RowGraph
    begin: int
    end: int
    input_rows: bool
    to_drop: Dropped = frozenset()
    again: float = 1.0

    def holds(self, op: int | None) -> bool:
        return op is not None and self.begin <= op < self.end

    @cached_property
    def dropped(self) -> Mapping[int, int]:
        """Tensors whose rows are recomputed, and after how many rows."""
        graph = self.rows.graph
        return {
            tensor: rows
            for tensor, rows in sorted(self.to_drop)
            if self.holds(graph.producer.get(tensor)) and all(map(self.holds, graph.consumers[tensor]))
        }

    @cached_property
    def most_steps(self) -> float:
        """No order that is worth while has more; rows of the streamed input come on top."""
        turns = sum(op.turns for op in self.rows.ops[self.begin : self.end])
        return self.again * turns + sum(self.rows.rows[tensor] for tensor in self.rows.graph.inputs)

    @cached_property
    def _ends(self) -> Mapping[int, int | None]:
        """Dropped tensor -> the op that ends the block behind it."""
        return {tensor: self._end_of_block(tensor) for tensor in self.dropped}

    @cached_property
    def pieces(self) -> Mapping[int, int]:
        """Ops that make several rows at once, while rows of dropped tensors are held for them -> how many."""
        found: dict[int, int] = {}
        for tensor, rows in self.dropped.items():
            end = self._ends[tensor]
            if rows > 1 and end is not None:
                found[end] = max(rows, found.get(end, 1))
        return found

    def piece_of(self, tensor: int) -> int:
        """After how many rows of its reader a tensor is recomputed; 0 if it is not dropped."""
        if tensor not in self.dropped:
            return 0
        end = self._ends[tensor]
        return 1 if end is None else self.pieces.get(end, 1)

    def _end_of_block(self, tensor: int) -> int | None:
        """Of the ops after a dropped tensor that map single rows to single rows, the one with the smallest output;
        None if one of them is recomputed itself."""
        graph, ops = self.rows.graph, self.rows.ops
        block = [graph.consumers[tensor][0]]
        while not self.dropped.keys() & set(ops[block[-1]].makes):
            readers = graph.consumers.get(ops[block[-1]].makes[0], ())
            if len(readers) != 1 or not self.holds(readers[0]) or not _row_to_row(self.rows, block[-1], readers[0]):
                return min(block, key=lambda op: self.rows.row_bytes[ops[op].makes[0]])
            block.append(readers[0])
        return None

    @cached_property
    def pushed_before(self) -> int:
        """Rows of a streamed input that earlier segments have asked for."""
        needs = (need for op in self.rows.ops[: self.begin] for need in op.needs)
        return max((max(n.end) for n in needs if self.input_rows and n.tensor in self.rows.graph.inputs), default=0)


def _row_to_row(rows: RowGraph, op: int, reader: int) -> bool:
    """Whether row y of the reader needs row y of what the op makes, and no other."""
    if not rows.ops[op].makes_rows or not rows.ops[reader].makes_rows:
        return False
    (need,) = (need for need in rows.ops[reader].needs if need.tensor in rows.ops[op].makes)
    turns = range(rows.ops[reader].turns)
    return rows.ops[op].turns == len(turns) and all(need.first[y] == y and need.end[y] == y + 1 for y in turns)


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """`peak_bytes`: the most that lives at a step. `segments`: ops [begin, end) that are streamed together. `macs`:
    multiply-accumulates of a run. `plain`: the order before it was improved, which has a higher peak, but may be easier
    to place."""

    schedule: Schedule
    peak_bytes: int
    segments: tuple[tuple[int, int], ...]
    macs: Fraction
    plain: Schedule | None = None

    @property
    def steps(self) -> tuple[RowStep, ...]:
        return tuple((step.op, step.turn or 0) for step in self.schedule.steps)


@dataclass
class RowOrders:
    """Orders of a graph. `input_rows`: the caller supplies the input row by row, when it is asked for. `again`: how
    often rows may be made, on average. Peaks of segments are kept: from one choice of dropped tensors to the next most
    stay the same."""

    rows: RowGraph
    input_rows: bool = False
    again: float = 1.0
    _peaks: dict[tuple[int, int, Dropped], int] = field(default_factory=dict)

    @cached_property
    def _demand(self) -> Demand:
        return Demand(self.rows, self.input_rows, self.again)

    @cached_property
    def _longest(self) -> int:
        """Ops that a segment may have."""
        turns = sum(op.turns for op in self.rows.ops)
        by_turns = math.isqrt(2 * MOST_TURNS_OF_SEGMENTS // max(1, turns))
        return max(LEAST_LONGEST, min(by_turns, MOST_SEGMENTS // max(1, len(self.rows.ops))))

    def best(self, dropped: Dropped = frozenset()) -> RowSchedule:
        """The best cut, on demand."""
        cuts = self._cuts(dropped)
        steps = [step for cut in cuts for step in self._demand.best(self._segment(*cut, dropped))[1]]
        if self.input_rows:
            # Rows that nobody asks for are taken too, so that a run ends with the caller's last row.
            pushed = sum(op == PUSH for op, _ in steps)
            steps += [(PUSH, row) for row in range(pushed, self.rows.rows[self.rows.graph.inputs[0]])]
        return self._scheduled(steps, self.peak_within(cuts, dropped), cuts)

    def peak_within(self, cuts: Sequence[tuple[int, int]], dropped: Dropped) -> int:
        """The peak if the ops are cut like this."""
        return max((self._peak(*cut, dropped) for cut in cuts), default=0)

    def improved(self, made: RowSchedule) -> RowSchedule:
        """The order with a better interleaving, if there is one."""
        peak, steps = interleaved(self.rows, made.steps, frozenset(self.rows.graph.outputs))
        if peak >= made.peak_bytes:
            return made
        return replace(self._scheduled(steps, peak, made.segments), plain=made.schedule)

    def _scheduled(self, steps: Sequence[RowStep], peak: int, cuts: tuple[tuple[int, int], ...]) -> RowSchedule:
        schedule = Schedule(tuple(_step(self.rows, *step) for step in steps), "rows")
        return RowSchedule(schedule, peak, cuts, self.rows.macs(op for op, _ in steps))

    def _cuts(self, dropped: Dropped) -> tuple[tuple[int, int], ...]:
        """By dynamic programming: the best cut of the first ops, for more and more of them."""
        count = len(self.rows.ops)
        best: list[tuple[int, int]] = [(0, 0)]
        # What is above that of all ops together is part of no best cut.
        most = self._peak(0, count, dropped)
        for end in range(1, count + 1):
            best.append((most if end == count else 1 << 62, 0))
            for begin in range(end - 1, max(0, end - self._longest) - 1, -1):
                if best[begin][0] < best[end][0] and best[begin][0] <= most:
                    best[end] = min(best[end], (max(best[begin][0], self._peak(begin, end, dropped)), begin))
        cuts: list[tuple[int, int]] = []
        end = count
        while end:
            cuts.append((best[end][1], end))
            end = best[end][1]
        return tuple(reversed(cuts))

    def _peak(self, begin: int, end: int, dropped: Dropped) -> int:
        segment = self._segment(begin, end, dropped)
        key = begin, end, frozenset(segment.dropped.items())
        if key not in self._peaks:
            self._peaks[key] = self._demand.peak(segment)
        return self._peaks[key]

    def _segment(self, begin: int, end: int, dropped: Dropped) -> Segment:
        return Segment(self.rows, begin, end, self.input_rows, dropped, self.again)


def _step(rows: RowGraph, op: int, turn: int) -> Step:
    is_whole = op != PUSH and rows.ops[op].is_whole
    return Step(op, None if is_whole else turn)


MOST_SUMS = 4
"""Ops that could take rows into sums for which it is tried whether they had better run whole."""


def sums_that_cost(rows: RowGraph, input_rows: bool) -> list[tuple[int, frozenset[int]]]:
    """Ops, by number, that had better not take rows into sums: a choice with the peak of its order, and others that
    were tried, the lowest peaks first. Sums live as long as rows come; where tensors are small, they may outweigh
    these."""
    sums = [rows.graph.ops[op.index].number for op in rows.ops if op.accumulator_bytes]
    whole: frozenset[int] = frozenset()
    found = {whole: RowOrders(rows, input_rows).best().peak_bytes} if sums else {}
    for more in ([number] for number in sums[:MOST_SUMS]):
        tried = whole.union(more)
        found[tried] = RowOrders(rows.with_whole(tried), input_rows).best().peak_bytes
        whole = min(whole, tried, key=found.__getitem__)
    if len(sums) > 1:
        found[frozenset(sums)] = RowOrders(rows.with_whole(sums), input_rows).best().peak_bytes
    return sorted(((peak, some) for some, peak in found.items()), key=lambda choice: (choice[0], sorted(choice[1])))


MOST_TRIED = 8
"""Tensors that are tried each time: those that hold most bytes from one row of their reader to the next."""

PIECES = (2, 4, 8)
"""Rows that are made at once, other than one by one."""

MOST_CUT = 4
"""Choices of tensors, of all that are tried, for which the ops are cut into segments again."""

MOST_ORDERS = 8


def recomputing_orders(rows: RowGraph, input_rows: bool, most: float) -> list[RowSchedule]:
    """Orders with ever smaller peaks, for ever more multiply-accumulates, up to `most` times those of the first one,
    which computes everything once."""
    orders = RowOrders(rows, input_rows, most)
    once = orders.best()
    found = [orders.improved(once)]
    tried = _tried(orders, once, most) if most > 1 else []
    is_worth_it = (made for made in tried if made.peak_bytes < once.peak_bytes and made.macs <= most * once.macs)
    for made in _thinned(is_worth_it):
        better = orders.improved(made)
        if better.peak_bytes < found[-1].peak_bytes:
            found.append(better)
    return found


def _tried(orders: RowOrders, once: RowSchedule, most: float) -> list[RowSchedule]:
    """All that is found on the way down. Each step drops one more tensor, or a few, whatever lowers the peak most; then
    it is tried with larger pieces."""
    dropped: Dropped = frozenset()
    best, pool = once, []
    while True:
        tensors = _candidates(orders.rows, best, {tensor for tensor, _ in dropped})
        # Where several tensors are held alike, dropping one of them alone may gain nothing.
        sets = [tensors[n : n + 1] for n in range(len(tensors))] + [tensors[:n] for n in range(2, len(tensors) + 1)]
        more = [dropped.union((tensor, 1) for tensor in some) for some in sets]
        # A new cut is looked for only where the old one already tells that it may be worth while, and for all at once.
        promising = sorted(more, key=lambda some: (orders.peak_within(best.segments, some), len(some)))[:MOST_CUT]
        trials = [(orders.best(some), some) for some in dict.fromkeys([*promising, *more[-1:]])]
        affordable = [(made, some) for made, some in trials if made.macs <= most * once.macs]
        pool += [made for made, _ in affordable]
        better = [(made, some) for made, some in affordable if made.peak_bytes < best.peak_bytes]
        if not better:
            return pool
        best, dropped = min(better, key=lambda trial: (trial[0].peak_bytes, trial[0].macs))
        pool += [orders.best(frozenset((tensor, rows) for tensor, _ in dropped)) for rows in PIECES]


def _thinned(tried: Iterable[RowSchedule]) -> list[RowSchedule]:
    """Those of which none else takes less memory for no more work, and of many that are close only a few."""
    front: list[RowSchedule] = []
    for made in sorted(tried, key=lambda made: (made.macs, made.peak_bytes)):
        if not front or made.peak_bytes < front[-1].peak_bytes:
            front.append(made)
    while len(front) > MOST_ORDERS:
        # What the loss of each would cost: the memory that it saves for the work to the next.
        worth = [
            (front[n - 1].peak_bytes - front[n].peak_bytes) * (front[n + 1].macs - front[n].macs)
            for n in range(1, len(front) - 1)
        ]
        del front[1 + worth.index(min(worth))]
    return front


def _candidates(rows: RowGraph, made: RowSchedule, dropped: set[int]) -> list[int]:
    """Tensors that could be dropped too: with one reader, in the same segment, that reads some rows more than once."""
    held = {t: _held_bytes(rows, t) for op in rows.ops if op.makes_rows for t in op.makes if t not in dropped}
    inside = [t for t, size in held.items() if size and _is_inside(rows, t, made)]
    return sorted(inside, key=lambda t: (-held[t], t))[:MOST_TRIED]


def _is_inside(rows: RowGraph, tensor: int, made: RowSchedule) -> bool:
    ends = (rows.graph.producer[tensor], rows.graph.consumers[tensor][0])
    return any(begin <= min(ends) and max(ends) < end for begin, end in made.segments)


def _held_bytes(rows: RowGraph, tensor: int) -> int:
    """The most bytes that stay live from one row of its reader to the next; 0 where it cannot be dropped."""
    readers = rows.graph.consumers.get(tensor, ())
    if (
        len(readers) != 1
        or tensor in rows.graph.outputs
        or tensor in rows.graph.sharing
        or not rows.ops[readers[0]].makes_rows
    ):
        return 0
    (need,) = (need for need in rows.ops[readers[0]].needs if need.tensor == tensor)
    overlap = max((end - first for end, first in zip(need.end, need.first[1:], strict=False)), default=0)
    return max(0, overlap) * rows.row_bytes[tensor]


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

    def height(self, order: Interleaving) -> tuple[Height, int]:
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

    def _worst(self, order: Interleaving, live: IntArray, end: IntArray) -> tuple[Height, int]:
        """The worst step and its bytes, where new rows may share bytes with dying ones."""
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

    def moves(self, order: Interleaving, peak: int) -> Iterator[Interleaving]:
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

    def _later(self, order: Interleaving, moved: set[int], peak: int) -> Iterator[Interleaving]:
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
