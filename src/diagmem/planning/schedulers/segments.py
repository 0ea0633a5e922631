"""A segment of consecutive ops that are run together, row by row, and how much lives meanwhile.

Tensors may be named whose rows are dropped after use and made again: for each row of their reader, or for each piece of
so many rows of the block that their reader begins. That is how the paper splits operations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from diagmem.planning.rows import RowGraph
from diagmem.planning.schedulers.lives import Row, RowStep, row_lives, shared_bytes, sum_lives

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
    def has_joins(self) -> bool:
        """Whether some op has several inputs of which it may ask for one or the other first."""
        return any(len(self.rows.ops[op].needs) > 1 for op in range(self.begin, self.end)) or len(self.sinks()) > 1

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

    def peak_bytes(self, steps: tuple[RowStep, ...]) -> int:
        """The most bytes that live at a step of the segment, with all that merely passes it by."""
        change = [0] * (len(steps) + 1)
        dying: dict[int, set[Row]] = defaultdict(set)
        lives = row_lives(self.rows, steps)
        for life in lives:
            size = self.rows.row_bytes[life.tensor]
            change[life.first] += size
            if not self._is_needed_later(life.tensor):
                change[life.end] -= size
                dying[life.end - 1].add((life.tensor, life.row))
        for op, first, end in sum_lives(self.rows, steps):
            change[first] += self.rows.ops[op].accumulator_bytes
            change[end] -= self.rows.ops[op].accumulator_bytes
        peak = live = self._passing_bytes({(life.tensor, life.row) for life in lives})
        for at, delta in enumerate(change[:-1]):
            live += delta
            if live > peak:
                peak = max(peak, live - shared_bytes(self.rows, steps[at], dying[at]))
        return peak

    def _passing_bytes(self, touched: set[Row]) -> int:
        """Bytes of the rows that live through the segment without being touched by it."""
        graph = self.rows.graph
        streamed = graph.inputs if self.input_rows and not self.pushed_before else ()
        total = 0
        for tensor in graph.tensors:
            index = tensor.index
            is_older = graph.producer.get(index, -1) < self.begin and index not in streamed and not tensor.is_constant
            if is_older and self._is_needed_later(index):
                left = sum((index, row) not in touched for row in range(self.rows.rows[index]))
                total += left * self.rows.row_bytes[index]
        return total


def _row_to_row(rows: RowGraph, op: int, reader: int) -> bool:
    """Whether row y of the reader needs row y of what the op makes, and no other."""
    if not rows.ops[op].makes_rows or not rows.ops[reader].makes_rows:
        return False
    (need,) = (need for need in rows.ops[reader].needs if need.tensor in rows.ops[op].makes)
    turns = range(rows.ops[reader].turns)
    return rows.ops[op].turns == len(turns) and all(need.first[y] == y and need.end[y] == y + 1 for y in turns)
