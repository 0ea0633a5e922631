"""Segments: consecutive ops that are run together, row by row.

Tensors may be named whose rows are dropped after use and recomputed: for each row of their reader, or for each piece of
so many rows of the block that their reader begins. That is how the paper splits operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from diagmem.kernels.rows import RowGraph

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
