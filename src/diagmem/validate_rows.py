"""Replays a plan that runs row by row, on shadow memory: each row that a step reads must still be there, whole.

Every byte of the arena carries the mark of the row, or the sums, that it holds. A step checks the marks of all that it
reads, then marks what it writes; it may not write over anything that it reads. Which rows a step reads follows from
`accesses`. It knows nothing of how the plan was made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from diagmem.graph import Graph
from diagmem.kernels import Library, library
from diagmem.ops import kind_of
from diagmem.rows import RowGraph, RowOp, row_graph
from diagmem.schedule import PUSH, Schedule, Step
from diagmem.validate import Fault, Finding

if TYPE_CHECKING:
    from diagmem.plans import Plan

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
) -> list[Finding]:
    """What is wrong first, if anything is. `sum_offsets`: op -> address of the sums that it keeps between its steps."""
    rows = row_graph(graph, kernels)
    run = _Run(rows, row_offsets, sum_offsets, np.zeros(arena_bytes, dtype=np.int64), _marks(rows))
    try:
        run.check_places(rows.in_one_piece(any(step.op == PUSH for step in schedule.steps)))
        run.fill_inputs(schedule)
        turns = dict.fromkeys(range(len(rows.ops)), 0)
        for at, step in enumerate(schedule.steps):
            run.check_turn(at, step, turns)
            run.step(at, step)
        for op, done in turns.items():
            if done != rows.ops[op].turns:
                raise _Found(Finding(Fault.OP_MISSING, None, op))
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


@dataclass(frozen=True, slots=True)
class _Run:
    rows: RowGraph
    row_offsets: RowOffsets
    sum_offsets: Mapping[int, int]
    memory: np.ndarray[tuple[int], np.dtype[np.int64]]
    marks: list[int]
    source: dict[int, int] = field(default_factory=dict)
    """A tensor that is another one's bytes under a new shape -> that other one."""

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

    def fill_inputs(self, schedule: Schedule) -> None:
        if all(step.op != PUSH for step in schedule.steps):
            for tensor in self.rows.graph.inputs:
                self._write(tensor, range(self.rows.rows[tensor]))

    def check_turn(self, at: int, step: Step, turns: dict[int, int]) -> None:
        """Each op's steps come in order, and none twice."""
        if step.op == PUSH:
            return
        turn = step.rows.start if step.rows is not None else 0
        if step.op not in turns or turn != turns[step.op]:
            raise _Found(Finding(Fault.OP_REPEATED, at, step.op))
        turns[step.op] += 1

    def step(self, at: int, step: Step) -> None:
        if step.op == PUSH:
            if step.rows is not None:
                self._write(self.rows.graph.inputs[0], step.rows)
            return
        op = self.rows.ops[step.op]
        turn = step.rows.start if step.rows is not None else 0
        read = [(need.tensor, row) for need in op.needs for row in range(need.first[turn], need.end[turn])]
        self._check_rows(at, op, read)
        if self._stays_in_place(op):
            self.source[op.makes[0]] = op.needs[0].tensor
            return
        self._check_sums(at, op, turn)
        for tensor in op.makes:
            made = op.makes_at(turn)
            self._write(tensor, range(self.rows.rows[tensor]) if made is None else made)
        self._check_rows(at, op, read)

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
                holder = int(self.memory[offset + wrong[0]])
                fault = Fault.OVERWRITTEN if holder else Fault.OP_TOO_EARLY
                name = f"{self.rows.graph.tensors[tensor].label}[{row}]"
                raise _Found(Finding(fault, at, op.index, name, int(offset + wrong[0]), self._name(holder), at))

    def _resolved(self, read: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Rows by the tensor that wrote them; for a tensor under a new shape, all rows of the old one."""
        for tensor, row in read:
            if tensor in self.source:
                origin = self.source[tensor]
                yield from self._resolved([(origin, r) for r in range(self.rows.rows[origin])])
            else:
                yield tensor, row

    def _check_sums(self, at: int, op: RowOp, turn: int) -> None:
        """Sums are marked at their first step with the op's own negative mark, and must last to the last one."""
        if not op.accumulator_bytes:
            return
        offset = self.sum_offsets[op.index]
        held = self.memory[offset : offset + op.accumulator_bytes]
        if turn == 0:
            held[:] = -1 - op.index
        elif (held != -1 - op.index).any():
            raise _Found(Finding(Fault.OVERWRITTEN, at, op.index, f"sums of op {op.index}"))

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
            return f"sums of op {-1 - mark}"
        tensor = int(np.searchsorted(self.marks, mark, side="right")) - 1
        return f"{self.rows.graph.tensors[tensor].label}[{mark - self.marks[tensor]}]"
