"""A graph seen row by row: the turns of each operation, what they need, and how many bytes a row takes.

What each output row reads, and how far it may lie over what it reads, is derived from `accesses`, the same source as
overlaps of whole tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.kernels import Library
from diagmem.model.graph import Graph, IntArray, Node, Tensor, span
from diagmem.model.schedule import PUSH
from diagmem.ops import OpKind, Unsupported, kind_of, node_macs
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CPointers, CRow, CRows


@dataclass(frozen=True, slots=True)
class Need:
    """Turn y of an operation reads rows [first[y], end[y]) of `tensor`; none where end <= first.

    `apart[y]`: for each of these rows, separation(output row below, this row above) in bytes within the turn; nothing
    where they may not overlap.
    """

    tensor: int
    first: tuple[int, ...]
    end: tuple[int, ...]
    apart: tuple[tuple[int, ...], ...]


class _Reads(NamedTuple):
    """Reads of one tensor: for each the turn, the row, and the separation that it asks for."""

    turn: IntArray
    row: IntArray
    apart: IntArray


@dataclass(frozen=True)
class Turns:
    """A node with one output, whose row y is made at turn y."""

    node: Node
    accesses: Accesses

    @cached_property
    def _written(self) -> tuple[IntArray, IntArray]:
        """Every element that is written, and the step that writes it."""
        written, step, _ = self.accesses.writes[0].touches()
        return written, step

    @cached_property
    def are_apart(self) -> bool:
        """Whether rows are written one after the other, none together with another."""
        written, step = self._written
        row = written // (self.node.output.elems // self.node.output.rows)
        order = np.argsort(step, kind="stable")
        changes = np.diff(row[order])
        return bool((changes >= 0).all() and (np.diff(step[order])[changes > 0] > 0).all())

    @cached_property
    def of_step(self) -> IntArray:
        """The turn of each kernel step: the row that it, or the next step that writes, writes."""
        output = self.node.output
        written, step = self._written
        turn = np.full(self.accesses.steps, output.rows - 1, dtype=np.int64)
        turn[step] = written // (output.elems // output.rows)
        return np.minimum.accumulate(turn[::-1])[::-1]

    @cached_property
    def written_before(self) -> IntArray:
        """For each kernel step, the end of what is written of its turn's row before it, in bytes from the row's
        start."""
        output = self.node.output
        written, step = self._written
        ends = np.zeros(self.accesses.steps + 1, dtype=np.int64)
        np.maximum.at(ends, step + 1, (written + 1) * output.dtype.size_bytes)
        np.maximum.accumulate(ends, out=ends)
        before: IntArray = np.maximum(0, ends[:-1] - self.of_step * output.row_bytes)
        return before

    def need(self, tensor: Tensor) -> Need:
        """What the turns read of an input, at all positions where it stands."""
        reads = [
            reads
            for position, t in self.node.activations()
            if t.index == tensor.index
            for reads in self._reads(position)
        ]
        turn, row, apart = (np.concatenate(column) for column in zip(*reads, strict=True))
        turns = self.node.output.rows
        first = np.full(turns, tensor.rows, dtype=np.int64)
        end = np.zeros(turns, dtype=np.int64)
        np.minimum.at(first, turn, row)
        np.maximum.at(end, turn, row + 1)
        first, end = np.where(first < end, first, 0), np.where(first < end, end, 0)
        largest = np.full((turns, int((end - first).max(initial=1))), -tensor.row_bytes, dtype=np.int64)
        np.maximum.at(largest, (turn, row - first[turn]), apart)
        rows = tuple(tuple(line[:count]) for line, count in zip(largest.tolist(), (end - first).tolist(), strict=True))
        return Need(tensor.index, tuple(first.tolist()), tuple(end.tolist()), rows)

    def _reads(self, position: int) -> Iterator[_Reads]:
        """Runs that stay within a turn and a row are looked at as a whole, the others element by element."""
        runs, tensor = self.accesses.reads[position] or Runs.none(), self.node.input(position)
        row_elems = tensor.elems // tensor.rows
        last = runs.last_steps
        final = runs.start + (runs.length - 1) * runs.pitch
        is_short = self.of_step[runs.step] == self.of_step[last]
        is_short &= runs.start // row_elems == final // row_elems
        is_short &= (runs.stride == 0) | self._is_even(runs.step + runs.hold - 1, last)
        # Along a run the separation is largest at one of its ends, where nothing may be written yet; if all is read at
        # once, at its lowest element.
        at_once = runs.picked(is_short & (runs.stride == 0))
        lowest = at_once.start + (at_once.length - 1) * (at_once.pitch < 0) * at_once.pitch
        yield self._asked(tensor, lowest, at_once.step + at_once.hold - 1)
        swept = runs.picked(is_short & (runs.stride != 0))
        for nth in (np.zeros_like(swept.length), np.minimum(1, swept.length - 1), swept.length - 1):
            step = swept.step + nth * swept.stride + swept.hold - 1
            yield self._asked(tensor, swept.start + nth * swept.pitch, step)
        yield from self._one_by_one(tensor, runs.picked(~is_short))

    def _one_by_one(self, tensor: Tensor, runs: Runs) -> Iterator[_Reads]:
        """What is held over several turns is read at each of them, and may not be overlapped."""
        element, begin, finish = runs.touches()
        turn, last_turn = self.of_step[begin], self.of_step[finish]
        crosses = turn != last_turn
        yield self._asked(tensor, element[~crosses], finish[~crosses])
        count = (last_turn - turn + 1)[crosses]
        nth = np.arange(count.sum(), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        row = np.repeat(element[crosses] // (tensor.elems // tensor.rows), count)
        apart = np.full(len(row), self.node.output.row_bytes, dtype=np.int64)
        yield _Reads(np.repeat(turn[crosses], count) + nth, row, apart)

    def _is_even(self, first: IntArray, last: IntArray) -> npt.NDArray[np.bool_]:
        """Whether an element of the output is written at each step from the first to the last."""
        grown = self.written_before[last] - self.written_before[first]
        even: npt.NDArray[np.bool_] = grown == (last - first) * self.node.output.dtype.size_bytes
        return even

    def _asked(self, tensor: Tensor, element: IntArray, step: IntArray) -> _Reads:
        """Reads of elements, each for the last time at a step."""
        row_elems = tensor.elems // tensor.rows
        row, written = element // row_elems, self.written_before[step]
        apart = written - element % row_elems * tensor.dtype.size_bytes
        return _Reads(self.of_step[step], row, np.where(written > 0, apart, -tensor.row_bytes))


class KnownTurns:
    """Needs by what they follow from: a network repeats its layers."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Need, ...] | None] = {}

    def needs(self, node: Node, accesses: Accesses) -> tuple[Need, ...] | None:
        """What the turns of a node with one output read of each of its inputs; None where rows are written together."""
        inputs = {tensor.index: tensor for _, tensor in node.activations()}
        places = list(inputs)
        key = (
            accesses.steps,
            tuple(None if runs is None else _content(runs) for runs in (*accesses.reads, *accesses.writes)),
            tuple((position, places.index(tensor.index)) for position, tensor in node.activations()),
            tuple((t.rows, t.elems, t.dtype) for t in (node.output, *inputs.values())),
        )
        if key not in self._found:
            turns = Turns(node, accesses)
            self._found[key] = tuple(turns.need(t) for t in inputs.values()) if turns.are_apart else None
        found = self._found[key]
        return found and tuple(replace(need, tensor=t) for need, t in zip(found, inputs, strict=True))


def _content(runs: Runs) -> tuple[bytes, ...]:
    return tuple(getattr(runs, name).tobytes() for name in Runs.__slots__)


@dataclass(frozen=True, slots=True)
class RowOp:
    """An operation as turns. As a rule turn y makes row y of the output.

    An accumulator takes one input row a turn into `accumulator_bytes` of sums, and makes its output at the last turn.
    An operation that `is_whole` has a single turn: it reads and writes whole tensors, which must lie in one piece.
    `macs`: multiply-accumulates of all turns.
    """

    index: int
    turns: int
    needs: tuple[Need, ...]
    makes: tuple[int, ...]
    macs: int
    accumulator_bytes: int = 0
    is_whole: bool = False

    @property
    def makes_rows(self) -> bool:
        """Whether each turn makes a row, from nothing but its inputs."""
        return not self.is_whole and not self.accumulator_bytes

    def makes_at(self, turn: int) -> range | None:
        """The output rows that are made at this turn; None: all rows of all outputs."""
        if self.is_whole:
            return None
        if self.accumulator_bytes:
            return range(1) if turn == self.turns - 1 else range(0)
        return range(turn, turn + 1)


@dataclass(frozen=True)
class RowGraph:
    """`ops` in file order, by index. `unsummed`: the numbers of those that could take rows into sums, and run whole."""

    graph: Graph
    ops: tuple[RowOp, ...]
    unsummed: frozenset[int] = frozenset()

    def with_whole(self, numbers: Iterable[int]) -> RowGraph:
        """The same where the ops of these numbers take no rows into sums."""
        whole = frozenset(numbers) - self.unsummed
        parts = _written_parts(self.graph) if whole else {}
        nodes = zip(self.graph.nodes, self.ops, strict=True)
        ops = (
            _of_parts(_whole(node), parts, self.graph) if node.op.number in whole and op.accumulator_bytes else op
            for node, op in nodes
        )
        return replace(self, ops=tuple(ops), unsummed=self.unsummed | whole) if whole else self

    @cached_property
    def rows(self) -> tuple[int, ...]:
        return tuple(t.rows for t in self.graph.tensors)

    @cached_property
    def row_bytes(self) -> tuple[int, ...]:
        return tuple(t.row_bytes for t in self.graph.tensors)

    def macs(self, ops: Iterable[int]) -> Fraction:
        """Multiply-accumulates of turns of these ops, all turns of one alike; the caller's rows cost nothing."""
        turns = Counter(op for op in ops if op != PUSH)
        return sum((Fraction(self.ops[op].macs * count, self.ops[op].turns) for op, count in turns.items()), Fraction())


def row_graph(graph: Graph, library: Library) -> RowGraph:
    known, parts = KnownTurns(), _written_parts(graph)
    ops = (_row_op(node, library, known, graph) for node in graph.nodes)
    return RowGraph(graph, tuple(_of_parts(op, parts, graph) for op in ops) if parts else tuple(ops))


def sums_of(graph: Graph, library: Library) -> frozenset[int]:
    """The ops that take rows into sums; sooner than by all of a graph's turns."""
    kinds = ((node, kind_of(node.op.kind)) for node in graph.nodes)
    nodes = [node for node, kind in kinds if kind is not None and kind.accumulator_bytes(node) is not None]
    return frozenset(n.op.index for n in nodes if _row_op(n, library, KnownTurns(), graph).accumulator_bytes)


def lines_up(tensor: Tensor, base: Tensor) -> bool:
    """Whether each row of a view is part of that row of its base: what is joined, or cut, along columns or channels."""
    if tensor.view is None:
        return True
    if len(tensor.shape) != 4 or len(base.shape) != 4 or tensor.rows != base.rows or 0 in tensor.shape:
        return False
    row_elems = base.elems // base.rows
    row = tensor.view.offset_elems + span((1, 1, *tensor.shape[2:]), tensor.strides)
    return row <= row_elems and (tensor.rows == 1 or tensor.strides[1] == row_elems)


def _written_parts(graph: Graph) -> dict[int, tuple[int, ...]]:
    """Tensor -> what is written of it, by an op or the caller, for tensors that are part of another one, or have
    parts."""
    written = graph.producer.keys() | {*graph.inputs}
    return {tensor: tuple(t for t in sharing if t in written) for tensor, sharing in graph.sharing.items()}


def _of_parts(op: RowOp, parts: Mapping[int, tuple[int, ...]], graph: Graph) -> RowOp:
    """What an op needs of a tensor, as what it needs of those parts of it that others write: the same rows, or all of
    one that has other rows. What is made in several parts, or read in some, is not overlapped: in a row of the whole
    they lie between each other."""
    if not any(need.tensor in parts for need in op.needs) and not any(tensor in parts for tensor in op.makes):
        return op
    needs: dict[int, Need] = {}
    for need in op.needs:
        for tensor in parts.get(need.tensor, (need.tensor,)):
            turns, rows = len(need.first), graph.tensors[tensor].rows
            is_alike = rows == graph.tensors[need.tensor].rows
            first, end = (need.first, need.end) if is_alike else ((0,) * turns, (rows,) * turns)
            known = needs.get(tensor, Need(tensor, first, end, ()))
            first, end = tuple(map(min, known.first, first)), tuple(map(max, known.end, end))
            needs[tensor] = Need(tensor, first, end, ((),) * turns)
    return replace(op, needs=tuple(needs.values()))


def _row_op(node: Node, library: Library, known: KnownTurns, graph: Graph) -> RowOp:
    touched = (*(t for _, t in node.activations()), *node.outputs)
    if not all(lines_up(t, graph.tensors[t.base]) for t in touched):
        return _whole(node)
    kind, accesses = kind_of(node.op.kind), library.row_accesses(node)
    if kind is None or accesses is None or kind.is_alias or len(node.outputs) != 1 or _cuts_a_constant(node, kind):
        return _whole(node)
    sums = kind.accumulator_bytes(node)
    if sums is not None:
        turns = node.input(0).rows
        need = Need(node.input(0).index, tuple(range(turns)), tuple(range(1, turns + 1)), ((),) * turns)
        return RowOp(node.op.index, turns, (need,), (node.output.index,), kind.macs(node), sums)
    if node.output.rows == 1 or not kind.has_row_kernel(node):
        return _whole(node)
    needs = known.needs(node, accesses)
    rows = {tensor.index: tensor.rows for _, tensor in node.activations()}
    if needs is None or any(need.end[0] >= rows[need.tensor] > 1 for need in needs):
        # Rows that are written together; or the first one needs everything (transpose, a flip): nothing is gained.
        return _whole(node)
    turns = node.output.rows
    return RowOp(node.op.index, turns, needs, (node.output.index,), kind.macs(node))


def _cuts_a_constant(node: Node, kind: OpKind) -> bool:
    """Whether its turns would take rows of a constant: those lie in flash, where no plan places them. As a rule data
    are none."""
    position = kind.signature(node.op.kind).data
    if position >= len(node.inputs) or not node.input(position).is_constant:
        return False
    try:
        arguments = kind.c_row_call(node).arguments
    except Unsupported:
        return True
    parts = (part for a in arguments for part in (a.tensors if isinstance(a, CPointers) else (a,)))
    return any(isinstance(part, CRow | CRows) and part.tensor.is_constant for part in parts)


def _whole(node: Node) -> RowOp:
    needs = {t.index: Need(t.index, (0,), (t.rows,), ((),)) for _, t in node.activations()}
    made = tuple(t.index for t in node.outputs)
    return RowOp(node.op.index, 1, tuple(needs.values()), made, node_macs(node), is_whole=True)
