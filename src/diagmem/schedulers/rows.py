"""Row by row: an order of single rows in which only a few rows of each tensor exist at once, nothing computed twice.

The ops are cut into segments of consecutive ones. Within a segment rows are made on demand: the last tensor asks for
its rows in turn, and each row asks for what it needs. Between segments whole tensors exist. The cut with the smallest
peak of live bytes is found by dynamic programming over segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from diagmem.rows import RowGraph, RowOp
from diagmem.schedule import PUSH, Schedule, Step

Turn = tuple[int, int]
"""An op and its turn; op PUSH and a row of the streamed input."""


@dataclass(frozen=True, slots=True)
class RowSchedule:
    """`peak_bytes`: the most that lives at a step. `segments`: ops [begin, end) that are streamed together."""

    schedule: Schedule
    peak_bytes: int
    segments: tuple[tuple[int, int], ...]


def row_order(rows: RowGraph, input_rows: bool = False) -> RowSchedule:
    """The best cut. `input_rows`: the caller supplies the input row by row, when it is asked for."""
    count = len(rows.ops)
    best: list[tuple[int, int]] = [(0, 0)]
    for end in range(1, count + 1):
        best.append((1 << 62, 0))
        for begin in range(end - 1, -1, -1):
            if best[begin][0] < best[end][0]:
                peak = max(best[begin][0], min(p for p, _ in _demand_orders(rows, begin, end, input_rows)))
                best[end] = min(best[end], (peak, begin))
    cuts: list[tuple[int, int]] = []
    end = count
    while end:
        cuts.append((best[end][1], end))
        end = best[end][1]
    cuts.reverse()
    turns = [turn for cut in cuts for turn in min(_demand_orders(rows, *cut, input_rows))[1]]
    schedule = Schedule(tuple(_step(rows, *turn) for turn in turns), "rows")
    return RowSchedule(schedule, best[count][0], tuple(cuts))


def _step(rows: RowGraph, op: int, turn: int) -> Step:
    is_whole = op != PUSH and rows.ops[op].is_whole
    return Step(op, None if is_whole else range(turn, turn + 1))


def _demand_orders(rows: RowGraph, begin: int, end: int, input_rows: bool) -> Iterator[tuple[int, tuple[Turn, ...]]]:
    """Peak and turns of a segment, its ops asking for their inputs first to last, or last to first."""
    segment = _Segment(rows, begin, end, input_rows)
    orders = {segment.turns(reverse) for reverse in (False, True)}
    return ((segment.peak_bytes(turns), turns) for turns in sorted(orders))


@dataclass(frozen=True, slots=True)
class _Segment:
    """The ops [begin, end), streamed."""

    rows: RowGraph
    begin: int
    end: int
    input_rows: bool

    def turns(self, reverse: bool) -> tuple[Turn, ...]:
        """Turns on demand. `reverse`: the last input of an op is asked for first."""
        made: dict[int, int] = {}
        turns: list[Turn] = []
        # A chain of demands may be as long as the segment, so it is kept on a stack of our own: (op, turn to reach).
        for sink in reversed(self._sinks()):
            stack = [sink]
            while stack:
                op = self.rows.ops[stack[-1]]
                done = made.get(op.index, 0)
                if done == op.turns:
                    stack.pop()
                    continue
                missing = self._missing(op, done, made, turns, reverse)
                if missing is not None:
                    stack.append(missing)
                    continue
                turns.append((op.index, done))
                made[op.index] = done + 1
                if len(stack) > 1:
                    stack.pop()
        return tuple(turns)

    def _missing(self, op: RowOp, turn: int, made: dict[int, int], turns: list[Turn], reverse: bool) -> int | None:
        """An op whose next turn is needed first; None if all is there. Rows of a streamed input are taken at once."""
        for need in reversed(op.needs) if reverse else op.needs:
            producer = self.rows.graph.producer.get(need.tensor)
            if producer is None:
                if self.input_rows and need.tensor in self.rows.graph.inputs:
                    for row in range(made.get(PUSH, 0), need.end[turn]):
                        turns.append((PUSH, row))
                        made[PUSH] = row + 1
            elif self.begin <= producer < self.end and self._rows_made(producer, made) < need.end[turn]:
                return producer
        return None

    def _rows_made(self, index: int, made: dict[int, int]) -> int:
        op, done = self.rows.ops[index], made.get(index, 0)
        if op.is_whole or op.accumulator_bytes:
            return self.rows.rows[op.makes[0]] if done == op.turns else 0
        return done

    def _sinks(self) -> list[int]:
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
        for tensor, first, last in row_lives(self.rows, turns):
            change[first] += self.rows.row_bytes[tensor]
            change[len(turns) if self._is_needed_later(tensor) else last + 1] -= self.rows.row_bytes[tensor]
        for op, first, last in sum_lives(self.rows, turns):
            change[first] += self.rows.ops[op].accumulator_bytes
            change[last + 1] -= self.rows.ops[op].accumulator_bytes
        peak = live = self._passing_bytes()
        for delta in change[:-1]:
            live += delta
            peak = max(peak, live)
        return peak

    def _passing_bytes(self) -> int:
        """Bytes of the tensors that live through the segment without being touched by it."""
        graph = self.rows.graph
        streamed = graph.inputs if self.input_rows else ()
        total = 0
        for tensor in graph.tensors:
            index = tensor.index
            is_older = graph.producer.get(index, -1) < self.begin and index not in streamed and not tensor.is_constant
            used_here = any(self.begin <= op < self.end for op in graph.consumers.get(index, ()))
            if is_older and not used_here and self._is_needed_later(index):
                total += tensor.size_bytes
        return total


def row_lives(rows: RowGraph, turns: tuple[Turn, ...]) -> list[tuple[int, int, int]]:
    """(tensor, first, last) for each row that the turns touch: the turns, both included, between which it must exist.

    Rows that are there before start at turn 0. Rows come in ascending order for each tensor.
    """
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for at, (index, turn) in enumerate(turns):
        if index == PUSH:
            first[rows.graph.inputs[0], turn] = last[rows.graph.inputs[0], turn] = at
            continue
        op = rows.ops[index]
        for need in op.needs:
            for row in range(need.first[turn], need.end[turn]):
                last[need.tensor, row] = at
        made = op.makes_at(turn)
        for tensor in op.makes:
            for row in range(rows.rows[tensor]) if made is None else made:
                first[tensor, row] = at
                last.setdefault((tensor, row), at)
    return [(tensor, first.get((tensor, row), 0), at) for (tensor, row), at in sorted(last.items())]


def sum_lives(rows: RowGraph, turns: tuple[Turn, ...]) -> list[tuple[int, int, int]]:
    """(op, first, last) for each accumulator: the turns, both included, during which it holds its sums."""
    span: dict[int, tuple[int, int]] = {}
    for at, (index, _) in enumerate(turns):
        if index != PUSH and rows.ops[index].accumulator_bytes:
            span[index] = (span.get(index, (at, at))[0], at)
    return [(op, first, last) for op, (first, last) in span.items()]
