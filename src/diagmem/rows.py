"""A graph seen row by row: which input rows each output row needs, and how many bytes a row takes.

A *row* is one index of the height axis of an image (batch 1, height, width, depth); any other tensor is one row. What a
row needs is read off `accesses`, so it is the same truth that overlaps come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diagmem.accesses import Accesses, Runs
from diagmem.graph import Graph, IntArray, Node, Tensor
from diagmem.kernels import Library
from diagmem.ops import kind_of


def rows_of(tensor: Tensor) -> int:
    """How many rows a tensor has."""
    return tensor.shape[1] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else 1


def row_bytes(tensor: Tensor) -> int:
    return tensor.size_bytes // rows_of(tensor)


@dataclass(frozen=True, slots=True)
class Need:
    """Turn y of an operation reads rows [first[y], end[y]) of `tensor`; none where end <= first."""

    tensor: int
    first: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowOp:
    """An operation as turns. As a rule turn y makes row y of the output.

    An accumulator takes one input row a turn into `accumulator_bytes` of sums, and makes its output at the last turn.
    An operation that `is_whole` has a single turn: it reads and writes whole tensors, which must lie in one piece.
    """

    index: int
    turns: int
    needs: tuple[Need, ...]
    makes: tuple[int, ...]
    accumulator_bytes: int = 0
    is_whole: bool = False

    def makes_at(self, turn: int) -> range | None:
        """The output rows that are made at this turn; None: all rows of all outputs."""
        if self.is_whole:
            return None
        if self.accumulator_bytes:
            return range(1) if turn == self.turns - 1 else range(0)
        return range(turn, turn + 1)


@dataclass(frozen=True)
class RowGraph:
    """`ops` in file order, by index."""

    graph: Graph
    ops: tuple[RowOp, ...]

    @cached_property
    def rows(self) -> tuple[int, ...]:
        return tuple(rows_of(t) for t in self.graph.tensors)

    @cached_property
    def row_bytes(self) -> tuple[int, ...]:
        return tuple(row_bytes(t) for t in self.graph.tensors)

    def in_one_piece(self, input_rows: bool) -> frozenset[int]:
        """Tensors that must lie in one piece: what the caller sees whole, and what a whole operation reads or writes.
        `input_rows`: the caller hands the input over row by row."""
        touched = {t for op in self.ops if op.is_whole for t in (*op.makes, *(need.tensor for need in op.needs))}
        given = () if input_rows else self.graph.inputs
        return frozenset({*given, *self.graph.outputs, *touched})


def row_graph(graph: Graph, library: Library) -> RowGraph:
    return RowGraph(graph, tuple(_row_op(node, library) for node in graph.nodes))


def _row_op(node: Node, library: Library) -> RowOp:
    kind, order = kind_of(node.op.kind), library.order(node)
    inputs = {tensor.index: (position, tensor) for position, tensor in node.activations()}
    if kind is None or order is None or kind.is_alias or len(node.outputs) != 1:
        return _whole(node)
    sums = kind.accumulator_bytes(node)
    if sums is not None:
        turns = rows_of(node.input(0))
        need = Need(node.input(0).index, tuple(range(turns)), tuple(range(1, turns + 1)))
        return RowOp(node.op.index, turns, (need,), (node.output.index,), sums)
    if rows_of(node.output) == 1:
        return _whole(node)
    accesses = kind.accesses(node, order)
    needs = tuple(_need(accesses, node, [p for p, t in node.activations() if t.index == index]) for index in inputs)
    if any(need.end[0] >= rows_of(inputs[need.tensor][1]) > 1 for need in needs):
        # Already the first row needs everything (transpose, a flip): nothing is gained by rows.
        return _whole(node)
    return RowOp(node.op.index, rows_of(node.output), needs, (node.output.index,))


def _whole(node: Node) -> RowOp:
    needs = {t.index: Need(t.index, (0,), (rows_of(t),)) for _, t in node.activations()}
    return RowOp(node.op.index, 1, tuple(needs.values()), tuple(t.index for t in node.outputs), is_whole=True)


def _need(accesses: Accesses, node: Node, positions: list[int]) -> Need:
    """The rows of one input tensor that each output row reads, from every position that the tensor stands at."""
    tensor, output = node.input(positions[0]), node.output
    turn_of_step = _turn_of_step(accesses, output)
    turns, in_row = rows_of(output), tensor.elems // rows_of(tensor)
    first = np.full(turns, rows_of(tensor), dtype=np.int64)
    end = np.zeros(turns, dtype=np.int64)
    for position in positions:
        runs = accesses.reads[position]
        for element_low, element_high, from_turn, to_turn in _spans(runs or Runs.none(), turn_of_step):
            for turn in (from_turn, to_turn):
                np.minimum.at(first, turn, element_low // in_row)
                np.maximum.at(end, turn, element_high // in_row + 1)
    reads = first < end
    first[~reads] = end[~reads] = 0
    return Need(tensor.index, tuple(first.tolist()), tuple(end.tolist()))


def _turn_of_step(accesses: Accesses, output: Tensor) -> IntArray:
    """The output row that each step of the kernel works for: the one that it, or the next step that writes, writes."""
    written, step, _ = accesses.writes[0].touches()
    turn = np.full(accesses.steps, rows_of(output) - 1, dtype=np.int64)
    turn[step] = written // (output.elems // rows_of(output))
    return np.minimum.accumulate(turn[::-1])[::-1]


def _spans(runs: Runs, turn_of_step: IntArray) -> list[tuple[IntArray, IntArray, IntArray, IntArray]]:
    """Lowest and highest element, first and last turn, of each run; runs over several turns are taken apart."""
    last = runs.step + (runs.length - 1) * runs.stride + runs.hold - 1
    begin, finish = turn_of_step[runs.step], turn_of_step[last]
    inside = (begin == finish) | (runs.stride == 0)
    short = Runs(*(getattr(runs, name)[inside] for name in Runs.__slots__))
    ends = short.start + (short.length - 1) * short.pitch
    low, high = np.minimum(short.start, ends), np.maximum(short.start, ends)
    element, first, final = Runs(*(getattr(runs, name)[~inside] for name in Runs.__slots__)).touches()
    return [
        (low, high, begin[inside], finish[inside]),
        (element, element, turn_of_step[first], turn_of_step[final]),
    ]
