"""Replays a plan that runs row by row, on shadow memory: each row that a step reads must still be there, whole.

Every byte of the arena carries the mark of the row, or the sums, that it holds. A step checks the marks of all that it
reads, then marks what it writes. Where it writes over what it reads, the two are compared byte by byte: no byte may be
read after it is written. What a step reads, and when, follows from `accesses`. It knows nothing of how the plan was
made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from diagmem.graph import Graph, IntArray, Node, Tensor
from diagmem.kernels import Library, library
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, Runs
from diagmem.rows import RowGraph, RowOp, row_graph
from diagmem.schedule import PUSH, PushState, Schedule, Step
from diagmem.shadow import FAR
from diagmem.validate import Fault, Finding

if TYPE_CHECKING:
    from diagmem.plans import Plan

ROUNDING = 1
"""Multiply-accumulates that a ratio may be off."""

RowOffsets = Mapping[int, Sequence[int]]
"""Tensor -> the address of each of its rows."""


def validate_rows(plan: Plan) -> list[Finding]:
    """What is wrong with a plan that runs row by row; nothing, if it is safe."""
    return replay_rows(
        plan.graph,
        plan.schedule,
        plan.row_offsets,
        plan.scratch_offsets,
        library(plan.options.kernels),
        plan.arena_bytes,
        keep_inputs=plan.options.keep_inputs,
        recompute=plan.recompute,
    )


def replay_rows(
    graph: Graph,
    schedule: Schedule,
    row_offsets: RowOffsets,
    sum_offsets: Mapping[int, int],
    kernels: Library,
    arena_bytes: int,
    *,
    keep_inputs: bool = False,
    recompute: float = 1.0,
) -> list[Finding]:
    """What is wrong first, if anything is. `sum_offsets`: op -> address of the sums that it keeps between its steps;
    PUSH -> that of the state kept between the caller's rows. `recompute`: rows may be made again, up to so many times
    the multiply-accumulates of a run that makes each once."""
    rows = row_graph(graph, kernels)
    memory = np.zeros(arena_bytes, dtype=np.int64)
    run = _Run(rows, kernels, row_offsets, sum_offsets, memory, _marks(rows))
    try:
        run.check_places(rows.in_one_piece(any(step.op == PUSH for step in schedule.steps)))
        run.fill(schedule)
        turns = dict.fromkeys([PUSH, *range(len(rows.ops))], 0)
        for at, step in enumerate(schedule.steps):
            run.check_turn(at, step, turns)
            run.step(at, step)
        run.check_turns(schedule, turns)
        run.check_work(schedule, recompute)
        run.check_results(keep_inputs)
    except _Found as found:
        return [found.finding]
    return []


class _Found(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def _marks(rows: RowGraph) -> list[int]:
    """The mark of each tensor's row 0; rows count on from there, and tensors from each other. 0: nothing."""
    return list(itertools.accumulate(rows.rows[:-1], initial=1))


def _mark_of_sums(op: int) -> int:
    """Below 0 for all ops, and for PUSH."""
    return -2 - op


@dataclass(frozen=True, slots=True)
class _Run:
    rows: RowGraph
    kernels: Library
    row_offsets: RowOffsets
    sum_offsets: Mapping[int, int]
    memory: np.ndarray[tuple[int], np.dtype[np.int64]]
    marks: list[int]
    source: dict[int, int] = field(default_factory=dict)
    """A tensor that is another one's bytes under a new shape -> that other one."""
    touched: dict[int, _Touched | None] = field(default_factory=dict)

    def check_places(self, whole: frozenset[int]) -> None:
        """`whole`: the tensors that must lie in one piece."""
        for tensor, offsets in self.row_offsets.items():
            size, made = self.rows.row_bytes[tensor], self.rows.graph.tensors[tensor]
            for offset in offsets:
                if offset < 0 or offset + size > len(self.memory):
                    raise _Found(Finding(Fault.OUTSIDE, tensor=made.label, byte=offset))
                if offset % made.dtype.size_bytes:
                    raise _Found(Finding(Fault.MISALIGNED, tensor=made.label, byte=offset))
            if tensor in whole and any(above - below != size for below, above in itertools.pairwise(offsets)):
                raise _Found(Finding(Fault.NO_PLACE, tensor=made.label))

    def fill(self, schedule: Schedule) -> None:
        """What is there before the first step: the inputs, or the state of a run that waits for them."""
        if all(step.op != PUSH for step in schedule.steps):
            for tensor in self.rows.graph.inputs:
                self._write(tensor, range(self.rows.rows[tensor]))
        else:
            size = PushState.of(self.rows.graph, schedule.ops).size_bytes
            self._held(None, PUSH, size)[:] = _mark_of_sums(PUSH)

    def check_turn(self, at: int, step: Step, turns: dict[int, int]) -> None:
        """Each op's steps come in order, and none twice, unless it makes a row again."""
        turn = step.turn or 0
        next_turn = turns.get(step.op, -1)
        repeats = 0 <= turn < next_turn and step.op != PUSH and self.rows.ops[step.op].makes_rows
        if turn != next_turn and not repeats:
            raise _Found(Finding(Fault.OP_REPEATED, at, step.op))
        turns[step.op] = max(next_turn, turn + 1)

    def check_work(self, schedule: Schedule, recompute: float) -> None:
        """No more is computed again than is allowed."""
        once = self.rows.macs(op.index for op in self.rows.ops for _ in range(op.turns))
        if self.rows.macs(schedule.ops) > recompute * once + ROUNDING:
            raise _Found(Finding(Fault.OP_REPEATED))

    def check_turns(self, schedule: Schedule, turns: dict[int, int]) -> None:
        """After the run: each op has had all its turns, and the state has survived."""
        for op, row_op in enumerate(self.rows.ops):
            if turns[op] != row_op.turns:
                raise _Found(Finding(Fault.OP_MISSING, None, op))
        if turns[PUSH]:
            if turns[PUSH] != self.rows.rows[self.rows.graph.inputs[0]]:
                raise _Found(Finding(Fault.OP_MISSING, None, PUSH))
            self._check_held(None, PUSH, PushState.of(self.rows.graph, schedule.ops).size_bytes)

    def step(self, at: int, step: Step) -> None:
        if step.op == PUSH:
            if step.turn is not None:
                self._write(self.rows.graph.inputs[0], range(step.turn, step.turn + 1))
            return
        op = self.rows.ops[step.op]
        turn = step.turn or 0
        read = [(need.tensor, row) for need in op.needs for row in range(need.first[turn], need.end[turn])]
        self._check_rows(at, op, read)
        if self._stays_in_place(op):
            self.source[op.makes[0]] = op.needs[0].tensor
            return
        if op.accumulator_bytes:
            if turn == 0:
                self._held(at, op.index, op.accumulator_bytes)[:] = _mark_of_sums(op.index)
            self._check_held(at, op.index, op.accumulator_bytes)
        made = op.makes_at(turn)
        for number, tensor in enumerate(op.makes):
            rows = range(self.rows.rows[tensor]) if made is None else made
            self._check_overlap(at, op, read, number, rows)
            self._write(tensor, rows)
        if len(op.makes) > 1 or op.accumulator_bytes:
            self._check_made(at, op, made)

    def _stays_in_place(self, op: RowOp) -> bool:
        """Whether the operation leaves its bytes where they are: a reshape with one address for input and output."""
        kind = kind_of(self.rows.graph.ops[op.index].kind)
        if kind is None or not kind.is_alias or not op.needs:
            return False
        return self.row_offsets[op.needs[0].tensor][0] == self.row_offsets[op.makes[0]][0]

    def _check_rows(self, at: int, op: RowOp, read: list[tuple[int, int]]) -> None:
        for tensor, row in self._resolved(read):
            if tensor not in self.row_offsets:
                raise _Found(Finding(Fault.NO_PLACE, at, op.index, self.rows.graph.tensors[tensor].label))
            offset, size = self.row_offsets[tensor][row], self.rows.row_bytes[tensor]
            wrong = np.flatnonzero(self.memory[offset : offset + size] != self.marks[tensor] + row)
            if len(wrong):
                self._lost(at, op, tensor, row, int(offset + wrong[0]))

    def _lost(self, at: int, op: RowOp, tensor: int, row: int, byte: int, writer: str | None = None) -> None:
        holder = int(self.memory[byte])
        fault = Fault.OVERWRITTEN if holder else Fault.OP_TOO_EARLY
        name = f"{self.rows.graph.tensors[tensor].label}[{row}]"
        raise _Found(Finding(fault, at, op.index, name, byte, writer or self._name(holder), at))

    def _resolved(self, read: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Rows by the tensor that wrote them; for a tensor under a new shape, all rows of the old one, once."""
        yield from ((tensor, row) for tensor, row in read if tensor not in self.source)
        for origin in dict.fromkeys(self.source[tensor] for tensor, _ in read if tensor in self.source):
            yield from self._resolved([(origin, row) for row in range(self.rows.rows[origin])])

    def _check_overlap(self, at: int, op: RowOp, read: list[tuple[int, int]], number: int, made: range) -> None:
        """No byte of what the step reads is written before its last read."""
        if not made:
            return
        target = op.makes[number]
        if op.is_whole:
            read = list(dict.fromkeys((tensor, 0) for tensor, _ in read))
        size = self.rows.row_bytes[target] * len(made)
        low = self.row_offsets[target][made.start]
        for tensor, row in read:
            begin = self.row_offsets[tensor][row]
            end = begin + self.rows.row_bytes[tensor] * (self.rows.rows[tensor] if op.is_whole else 1)
            if begin < low + size and low < end:
                byte = self._first_lost(op, number, made, tensor, row, begin, low)
                if byte is not None:
                    self._lost(at, op, tensor, row, byte, self.rows.graph.tensors[target].label)

    def _first_lost(
        self, op: RowOp, number: int, made: range, tensor: int, row: int, begin: int, low: int
    ) -> int | None:
        touched = self._touched(op)
        if touched is None:
            return max(begin, low)
        turn = None if op.is_whole else made.start
        read = touched.last_reads(tensor, row, turn)
        written = touched.first_writes(number, turn)
        first, last = max(begin, low), min(begin + len(read), low + len(written))
        late = read[first - begin : last - begin] > written[first - low : last - low]
        return first + int(late.argmax()) if late.any() else None

    def _touched(self, op: RowOp) -> _Touched | None:
        """When the op touches what; None where that is not known."""
        if op.index not in self.touched:
            node = self.rows.graph.nodes[op.index]
            kind, accesses = kind_of(node.op.kind), self.kernels.accesses(node)
            is_known = accesses is not None and kind is not None and not kind.is_alias and not op.accumulator_bytes
            self.touched[op.index] = _Touched(node, accesses, self.rows) if accesses and is_known else None
        return self.touched[op.index]

    def _check_made(self, at: int, op: RowOp, made: range | None) -> None:
        """Results of one step do not share bytes with each other, or with the sums that they are made of."""
        for tensor in op.makes:
            rows = range(self.rows.rows[tensor]) if made is None else made
            self._check_rows(at, op, [(tensor, row) for row in rows])
        if op.accumulator_bytes:
            self._check_held(at, op.index, op.accumulator_bytes)

    def _held(self, at: int | None, op: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The bytes of an op's sums, or of the state."""
        offset = self.sum_offsets.get(op)
        if offset is None or offset < 0 or offset + size > len(self.memory):
            raise _Found(Finding(Fault.NO_PLACE, at, op, self._name(_mark_of_sums(op))))
        return self.memory[offset : offset + size]

    def _check_held(self, at: int | None, op: int, size: int) -> None:
        if (self._held(at, op, size) != _mark_of_sums(op)).any():
            raise _Found(Finding(Fault.OVERWRITTEN, at, op, self._name(_mark_of_sums(op))))

    def check_results(self, keep_inputs: bool) -> None:
        for tensor in (*self.rows.graph.outputs, *(self.rows.graph.inputs if keep_inputs else ())):
            for origin, row in self._resolved([(tensor, r) for r in range(self.rows.rows[tensor])]):
                offset = self.row_offsets[origin][row]
                held = self.memory[offset : offset + self.rows.row_bytes[origin]]
                if (held != self.marks[origin] + row).any():
                    raise _Found(Finding(Fault.RESULT_LOST, tensor=self.rows.graph.tensors[tensor].label))

    def _write(self, tensor: int, rows: range) -> None:
        size = self.rows.row_bytes[tensor]
        for row in rows:
            offset = self.row_offsets[tensor][row]
            self.memory[offset : offset + size] = self.marks[tensor] + row

    def _name(self, mark: int) -> str:
        """Whose mark it is."""
        if mark < 0:
            return "state" if mark == _mark_of_sums(PUSH) else f"sums of op {self.rows.graph.ops[-2 - mark].number}"
        tensor = int(np.searchsorted(self.marks, mark, side="right")) - 1
        return f"{self.rows.graph.tensors[tensor].label}[{mark - self.marks[tensor]}]"


@dataclass(frozen=True)
class _Touched:
    """When an op touches the bytes of its inputs and outputs, in steps of its kernel."""

    node: Node
    accesses: Accesses
    rows: RowGraph

    def last_reads(self, tensor: int, row: int, turn: int | None) -> IntArray:
        """For each byte of an input row the last step of the turn that reads it; of all of it where turn is None."""
        source = self.rows.graph.tensors[tensor]
        count = source.elems if turn is None else source.elems // self.rows.rows[tensor]
        last = np.full(count, -FAR, dtype=np.int64)
        for position, other in self.node.activations():
            runs = self.accesses.reads[position] or Runs.none()
            if other.index == tensor:
                element, _, step = _clipped(runs, self._steps(turn)).touches()
                is_inside = (element >= row * count) & (element < (row + 1) * count)
                np.maximum.at(last, element[is_inside] - row * count, step[is_inside])
        return np.repeat(last, source.dtype.size_bytes)

    def first_writes(self, number: int, turn: int | None) -> IntArray:
        """For each byte of an output row, or of all of it, the first step that writes it."""
        target = self.node.outputs[number]
        count = target.elems if turn is None else target.elems // self.rows.rows[target.index]
        first = np.full(count, FAR, dtype=np.int64)
        element, step, _ = _clipped(self.accesses.writes[number], self._steps(turn)).touches()
        np.minimum.at(first, element - (turn or 0) * count, step)
        return np.repeat(first, target.dtype.size_bytes)

    def _steps(self, turn: int | None) -> range:
        if turn is None:
            return range(self.accesses.steps)
        return range(self._ends[turn - 1] if turn else 0, self._ends[turn])

    @cached_property
    def _ends(self) -> list[int]:
        """For each row of the output, one past the last step that writes it."""
        target: Tensor = self.node.output
        ends = np.zeros(self.rows.rows[target.index], dtype=np.int64)
        element, _, step = self.accesses.writes[0].touches()
        np.maximum.at(ends, element // (target.elems // len(ends)), step + 1)
        return [int(end) for end in ends]


def _clipped(runs: Runs, steps: range) -> Runs:
    """The touches that fall into these steps, at least in part."""
    stride = np.maximum(1, runs.stride)
    swept_from = np.clip(-(-(steps.start - runs.step - runs.hold + 1) // stride), 0, runs.length)
    swept_to = np.clip(-(-(steps.stop - runs.step) // stride), 0, runs.length)
    meets = (runs.step < steps.stop) & (runs.step + runs.hold > steps.start)
    first = np.where(runs.stride == 0, 0, swept_from)
    end = np.where(runs.stride == 0, np.where(meets, runs.length, 0), swept_to)
    return Runs.of(
        runs.start + first * runs.pitch,
        np.maximum(0, end - first),
        runs.step + first * runs.stride,
        pitch=runs.pitch,
        stride=runs.stride,
        hold=runs.hold,
    )
