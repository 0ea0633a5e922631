"""A graph seen row by row: the turns of each operation, what they need, and how many bytes a row takes.

What each output row reads, and how far it may lie over what it reads, is read off `accesses`, so it is the same truth
that overlaps of whole tensors come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from diagmem.kernels import Library
from diagmem.model.graph import Graph, Node, Tensor
from diagmem.model.schedule import PUSH
from diagmem.model.views import span
from diagmem.ops import CPointers, CRow, CRows, OpKind, Unsupported, kind_of
from diagmem.ops.turns import KnownTurns, Need


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
    """`ops` in file order, by index."""

    graph: Graph
    ops: tuple[RowOp, ...]

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
    kind = kind_of(node.op.kind)
    macs = 0 if kind is None else kind.macs(node)
    return RowOp(node.op.index, 1, tuple(needs.values()), tuple(t.index for t in node.outputs), macs, is_whole=True)
