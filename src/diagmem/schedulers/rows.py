"""Row by row: an order of single rows in which only a few rows of each tensor exist at once.

The ops are cut into segments of consecutive ones. Within a segment rows are made on demand: the last tensor asks for
its rows in turn, and each row asks for what it needs. Between segments whole tensors exist. The cut with the smallest
peak of live bytes is found by dynamic programming over segments. Nothing is computed twice, unless tensors are named
whose rows are dropped after use and made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from diagmem.rows import RowGraph
from diagmem.schedule import PUSH, Schedule, Step
from diagmem.schedulers.lives import Row, Turn, row_lives, shared_bytes, sum_lives

MOST_SEGMENTS = 12_000
"""Segments that are tried, about: all of them in networks of up to 109 ops; in larger ones only shorter ones."""

LEAST_LONGEST = 24


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """`peak_bytes`: the most that lives at a step. `segments`: ops [begin, end) that are streamed together. `macs`:
    multiply-accumulates of a run."""

    schedule: Schedule
    peak_bytes: int
    segments: tuple[tuple[int, int], ...]
    macs: int


def row_order(rows: RowGraph, input_rows: bool = False, dropped: frozenset[int] = frozenset()) -> RowSchedule:
    """The best cut. `input_rows`: the caller supplies the input row by row, when it is asked for. `dropped`: tensors
    with a single reader whose rows are made again each time that it asks for them, if both are in one segment."""
    count = len(rows.ops)
    longest = max(LEAST_LONGEST, MOST_SEGMENTS // max(1, count))
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, count + 1):
        best.append((1 << 62, 0))
        for begin in range(end - 1, max(0, end - longest) - 1, -1):
            if best[begin][0] < best[end][0]:
                orders = _demand_orders(rows, begin, end, input_rows, dropped)
                best[end] = min(best[end], (max(best[begin][0], min(peak for peak, _ in orders)), begin))
    cuts: list[tuple[int, int]] = []
    end = count
    while end:
        cuts.append((best[end][1], end))
        end = best[end][1]
    cuts.reverse()
    turns = [turn for cut in cuts for turn in min(_demand_orders(rows, *cut, input_rows, dropped))[1]]
    if input_rows:
        # Rows that nobody asks for are taken too, so that a run ends with the caller's last row.
        pushed = sum(op == PUSH for op, _ in turns)
        turns += [(PUSH, row) for row in range(pushed, rows.rows[rows.graph.inputs[0]])]
    schedule = Schedule(tuple(_step(rows, *turn) for turn in turns), "rows")
    return RowSchedule(schedule, best[count][0], tuple(cuts), rows.macs(op for op, _ in turns))


def _step(rows: RowGraph, op: int, turn: int) -> Step:
    is_whole = op != PUSH and rows.ops[op].is_whole
    return Step(op, None if is_whole else range(turn, turn + 1))


def _demand_orders(
    rows: RowGraph, begin: int, end: int, input_rows: bool, dropped: frozenset[int]
) -> Iterator[tuple[int, tuple[Turn, ...]]]:
    """Peak and turns of a segment, its ops asking for their inputs first to last, or last to first."""
    segment = _Segment(rows, begin, end, input_rows, dropped)
    orders = {tuple(_Demand(segment, reverse).turns()) for reverse in (False, True)}
    return ((segment.peak_bytes(turns), turns) for turns in sorted(orders))


@dataclass(frozen=True)
class _Segment:
    """The ops [begin, end), streamed."""

    rows: RowGraph
    begin: int
    end: int
    input_rows: bool
    to_drop: frozenset[int]

    def holds(self, op: int | None) -> bool:
        return op is not None and self.begin <= op < self.end

    @cached_property
    def dropped(self) -> frozenset[int]:
        """Tensors whose rows are made again and again."""
        graph = self.rows.graph
        return frozenset(
            t for t in self.to_drop if self.holds(graph.producer.get(t)) and all(map(self.holds, graph.consumers[t]))
        )

    @cached_property
    def pushed_before(self) -> int:
        """Rows of a streamed input that earlier segments have asked for."""
        needs = (need for op in self.rows.ops[: self.begin] for need in op.needs)
        return max((max(n.end) for n in needs if self.input_rows and n.tensor in self.rows.graph.inputs), default=0)

    def sinks(self) -> list[int]:
        """Ops that make what is needed after the segment, or by nobody."""
        graph = self.rows.graph
        return [
            index
            for index in range(self.begin, self.end)
            if any(self._is_needed_later(t) or not graph.consumers.get(t) for t in graph.ops[index].outputs)
        ]

    def _is_needed_later(self, tensor: int) -> bool:
        graph = self.rows.graph
        return tensor in graph.outputs or any(op >= self.end for op in graph.consumers.get(tensor, ()))

    def peak_bytes(self, turns: tuple[Turn, ...]) -> int:
        """The most bytes that live at a turn of the segment, with all that merely passes it by."""
        change = [0] * (len(turns) + 1)
        dying: dict[int, set[Row]] = defaultdict(set)
        for life in row_lives(self.rows, turns):
            size = self.rows.row_bytes[life.tensor]
            end = len(turns) if self._is_needed_later(life.tensor) else life.last + 1
            change[life.first] += size
            change[end] -= size
            dying[end - 1].add((life.tensor, life.row))
        for op, first, final in sum_lives(self.rows, turns):
            change[first] += self.rows.ops[op].accumulator_bytes
            change[final + 1] -= self.rows.ops[op].accumulator_bytes
        peak = live = self._passing_bytes()
        for at, delta in enumerate(change[:-1]):
            live += delta
            if live > peak:
                peak = max(peak, live - shared_bytes(self.rows, turns[at], dying[at]))
        return peak

    def _passing_bytes(self) -> int:
        """Bytes of the tensors that live through the segment without being touched by it."""
        graph = self.rows.graph
        streamed = graph.inputs if self.input_rows and not self.pushed_before else ()
        total = 0
        for tensor in graph.tensors:
            index = tensor.index
            is_older = graph.producer.get(index, -1) < self.begin and index not in streamed and not tensor.is_constant
            used_here = any(map(self.holds, graph.consumers.get(index, ())))
            if is_older and not used_here and self._is_needed_later(index):
                total += tensor.size_bytes
        return total


@dataclass(slots=True)
class _Waiting:
    """A turn that is asked for, and the rows that are still to be made for it alone, last first."""

    op: int
    turn: int
    own: list[Turn]


@dataclass
class _Demand:
    """Turns of a segment on demand. `reverse`: the last input of an op is asked for first. `made`: how many turns each
    op has had, those made again not counted."""

    segment: _Segment
    reverse: bool
    made: dict[int, int] = field(default_factory=dict)
    found: list[Turn] = field(default_factory=list)

    def turns(self) -> list[Turn]:
        segment, ops = self.segment, self.segment.rows.ops
        self.made = {PUSH: segment.pushed_before}
        # Rows that nobody asks for (the last ones under a window that leaves some over) come at the end.
        for sink in (*reversed(segment.sinks()), *range(segment.begin, segment.end)):
            while self._done(sink) < ops[sink].turns and not segment.dropped.intersection(ops[sink].makes):
                self._make(sink, self._done(sink))
        return self.found

    def _done(self, op: int) -> int:
        return self.made.get(op, 0)

    def _make(self, op: int, turn: int) -> None:
        """A chain of demands may be as long as the segment, so it is kept on a stack of our own."""
        stack = [self._asked(op, turn)]
        while stack:
            top = stack[-1]
            missing = self._missing(top.op, top.turn)
            if missing is not None:
                stack.append(self._asked(missing, self._done(missing)))
            elif top.own:
                stack.append(self._asked(*top.own.pop()))
            else:
                self.found.append((top.op, top.turn))
                self.made[top.op] = max(self._done(top.op), top.turn + 1)
                stack.pop()

    def _asked(self, op: int, turn: int) -> _Waiting:
        producer, dropped = self.segment.rows.graph.producer, self.segment.dropped
        needs = [need for need in self.segment.rows.ops[op].needs if need.tensor in dropped]
        rows = [(producer[n.tensor], row) for n in needs for row in range(n.first[turn], n.end[turn])]
        return _Waiting(op, turn, rows[::-1])

    def _missing(self, op: int, turn: int) -> int | None:
        """An op whose next turn is needed first; None if all is there, for rows too that are then made for this turn
        alone. Rows of a streamed input are taken at once."""
        segment, rows = self.segment, self.segment.rows
        needs = rows.ops[op].needs
        for need in reversed(needs) if self.reverse else needs:
            producer = rows.graph.producer.get(need.tensor)
            if producer is None:
                if segment.input_rows and need.tensor in rows.graph.inputs:
                    for row in range(self._done(PUSH), need.end[turn]):
                        self.found.append((PUSH, row))
                        self.made[PUSH] = row + 1
            elif need.tensor in segment.dropped:
                asked = (self._missing(producer, row) for row in range(need.first[turn], need.end[turn]))
                found = next((missing for missing in asked if missing is not None), None)
                if found is not None:
                    return found
            elif segment.holds(producer) and self._rows_made(producer) < need.end[turn]:
                return producer
        return None

    def _rows_made(self, index: int) -> int:
        op, done = self.segment.rows.ops[index], self._done(index)
        if op.is_whole or op.accumulator_bytes:
            return self.segment.rows.rows[op.makes[0]] if done == op.turns else 0
        return done
