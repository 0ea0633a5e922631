"""Rows on demand: a segment's last tensor asks for one row after the other, and each row asks for what it needs.

A segment is consecutive ops that are run together, row by row. Tensors may be named whose rows are dropped after use
and recomputed: for each row of their reader, or for each piece of so many rows of the block that their reader begins.
That is how the paper splits operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from diagmem.model.schedule import PUSH
from diagmem.planning.compiled import Machine
from diagmem.planning.needs.rows import RowGraph
from diagmem.planning.needs.windows import RowStep
from diagmem.planning.order import demand_loops
from diagmem.planning.order.demand_loops import CALLER, NOBODY, TOO_MUCH, Drops, FlatRows, Room

Dropped = frozenset[tuple[int, int]]
"""Tensors with a single reader whose rows are made again, and after how many rows."""


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
        """Tensors whose rows are made again and again, and after how many rows."""
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
        """After how many rows of its reader a tensor is made again; 0 if it is not dropped."""
        if tensor not in self.dropped:
            return 0
        end = self._ends[tensor]
        return 1 if end is None else self.pieces.get(end, 1)

    def _end_of_block(self, tensor: int) -> int | None:
        """Of the ops behind a dropped tensor that turn single rows into single rows, the one that makes the smallest;
        None if some of them is made again itself."""
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


KEPT = 1 << 40
"""Stands for an op behind all others: the caller, who reads outputs."""


def flat_rows(rows: RowGraph, input_rows: bool) -> FlatRows:
    """The graph as the loops take it. `input_rows`: the caller makes the input, row by row."""
    graph, ops = rows.graph, rows.ops
    needs = [need for op in ops for need in op.needs]
    apart = [rows_apart for need in needs for rows_apart in need.apart]
    given = graph.inputs if input_rows else ()
    last_use = [NOBODY] * len(graph.tensors)
    for op in ops:
        for need in op.needs:
            last_use[need.tensor] = max(last_use[need.tensor], op.index)
    for tensor in graph.outputs:
        for part in graph.sharing.get(tensor, (tensor,)):
            last_use[part] = KEPT
    row_from = _begins(rows.rows)
    return FlatRows(
        [op.turns for op in ops],
        [int(op.makes_rows) for op in ops],
        [op.accumulator_bytes for op in ops],
        [int(op.is_whole) for op in ops],
        _begins(len(op.makes) for op in ops),
        [tensor for op in ops for tensor in op.makes],
        _begins(len(op.needs) for op in ops),
        [need.tensor for need in needs],
        _begins(len(need.first) for need in needs),
        [row for need in needs for row in need.first],
        [row for need in needs for row in need.end],
        [row for need in needs for row in (0, *accumulate(need.end[:-1], max))],
        _begins(map(len, apart)),
        [each for rows_apart in apart for each in rows_apart],
        row_from,
        [row_from[t.base] for t in graph.tensors],
        [rows.row_bytes[t.base] for t in graph.tensors],
        [CALLER if t.index in given else graph.producer.get(t.index, NOBODY) for t in graph.tensors],
        last_use,
    )


def _begins(counts: Any) -> list[int]:
    return [0, *accumulate(counts)]


@dataclass(frozen=True)
class Demand:
    """Finds steps on demand, and their peaks. `again`: how often rows may be made, on average."""

    rows: RowGraph
    input_rows: bool
    machine: Machine
    again: float = 1.0

    @cached_property
    def _flat(self) -> FlatRows:
        return self.machine.flat(flat_rows(self.rows, self.input_rows))

    @cached_property
    def _held(self) -> Drops:
        """Nothing is made again."""
        return Drops(self.machine.filled(len(self.rows.rows)), self.machine.filled(len(self.rows.ops), 1))

    @cached_property
    def _room(self) -> Room:
        filled, ops, turns = self.machine.filled, len(self.rows.ops), sum(op.turns for op in self.rows.ops)
        given = sum(self.rows.rows[tensor] for tensor in self.rows.graph.inputs)
        steps = int(self.again * turns) + 2 * given + 2
        most_read = sum(max(self.rows.rows, default=0) for _ in range(self._most_needs))
        sizes = (ops, ops, *[ops + turns] * 3, steps, steps, *[sum(self.rows.rows)] * 3, most_read, most_read, 5)
        return Room(*map(filled, sizes))

    @cached_property
    def _most_needs(self) -> int:
        return max((len(op.needs) for op in self.rows.ops), default=0)

    @property
    def _loops(self) -> Any:
        return self.machine.loops(demand_loops)

    def _drops(self, segment: Segment) -> Drops:
        if not segment.dropped:
            return self._held
        again, at_once = self.machine.filled(len(self.rows.rows)), self.machine.filled(len(self.rows.ops), 1)
        for tensor in segment.dropped:
            again[tensor] = segment.piece_of(tensor)
        for op, rows in segment.pieces.items():
            at_once[op] = rows
        return Drops(again, at_once)

    def _span(self, segment: Segment) -> Any:
        streamed = self.rows.graph.inputs[0] if self.input_rows else NOBODY
        most = int(segment.most_steps)
        return self.machine.ints((segment.begin, segment.end, streamed, segment.pushed_before, most))

    def peak(self, segment: Segment) -> int:
        """The least peak of a segment, its ops asking for their inputs first to last, or last to first."""
        return int(self._loops.least_peak(self._span(segment), self._flat, self._drops(segment), self._room))

    def best(self, segment: Segment) -> tuple[int, tuple[RowStep, ...]]:
        """The least peak, and the steps that have it."""
        ways = [self._way(segment, last) for last in (0, 1)]
        is_too_much = any(peak == TOO_MUCH for peak, _ in ways)
        return min((TOO_MUCH if is_too_much else peak, steps) for peak, steps in ways)

    def _way(self, segment: Segment, last: int) -> tuple[int, tuple[RowStep, ...]]:
        span, drops, room = self._span(segment), self._drops(segment), self._room
        count = self._loops.on_demand(last, span, self._flat, drops, room)
        found = zip(room.step_op[:count], room.step_turn[:count], strict=True)
        steps = tuple((PUSH if op == CALLER else int(op), int(turn)) for op, turn in found)
        peak = TOO_MUCH if count > segment.most_steps else self._loops.peak(span, self._flat, room)
        return int(peak), steps
