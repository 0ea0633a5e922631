"""What C code that runs row by row is made from: steps of single rows, and where each row lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diagmem.backends.c.program import Program, Written
from diagmem.errors import PlanError
from diagmem.graph import Graph, Node
from diagmem.ops import CCall, CPointers, CRow, CRows
from diagmem.ops.kind import SUM_BYTES
from diagmem.plans import Plan
from diagmem.row_storage import RowStorage
from diagmem.rows import RowGraph, row_graph
from diagmem.schedule import PUSH, PushState, Step


@dataclass(frozen=True, kw_only=True)
class RowProgram(Program):
    """`offsets` are those of tensors in one piece, `row_offsets` those of the rows of all tensors. `sum_offsets`: op ->
    where it keeps its sums; PUSH -> where the state of a run lies that waits for the caller's next row."""

    steps: tuple[Step, ...]
    row_offsets: Mapping[int, tuple[int, ...]]
    sum_offsets: Mapping[int, int]

    @classmethod
    def of_rows(cls, plan: Plan) -> RowProgram:
        steps = plan.schedule.steps
        return cls(
            plan.graph,
            _ops(steps),
            plan.offsets,
            plan.arena_bytes,
            plan.lower_bound_bytes,
            plan.source,
            plan.options.kernels,
            steps=steps,
            row_offsets=plan.row_offsets,
            sum_offsets=plan.scratch_offsets,
        )

    @classmethod
    def rows_from_json(cls, graph: Graph, source: Graph, plan: Mapping[str, Any]) -> RowProgram:
        """From what `diagmem plan --schedule rows --json` writes. `graph`: the model's, without what is removed."""
        index_of = {PUSH: PUSH, **{op.number: op.index for op in graph.ops}}
        turns = zip(plan["schedule"], plan["rows"], strict=True)
        steps = tuple(Step(index_of[op], turn) for op, turn in turns)
        pieces = {int(t["index"]): int(t["offset"]) for t in plan["tensors"] if "rows" not in t}
        tables: dict[int, dict[int, int]] = {}
        for index, offset in pieces.items():
            size = graph.tensors[index].row_bytes
            tables[index] = {row: offset + row * size for row in range(graph.tensors[index].rows)}
        for row in plan["tensors"]:
            if "rows" in row:
                tables.setdefault(int(row["index"]), {})[int(row["rows"][0])] = int(row["offset"])
        return cls(
            graph,
            _ops(steps),
            pieces,
            int(plan["arena_bytes"]),
            plan.get("lower_bound_bytes"),
            source,
            str(plan["kernels"]),
            steps=steps,
            row_offsets={index: tuple(table[row] for row in sorted(table)) for index, table in tables.items()},
            sum_offsets={index_of[int(s["op"])]: int(s["offset"]) for s in plan["scratch"]},
        )

    def check(self) -> None:
        """Raises PlanError unless every op has all its turns and every row lies inside the arena, aligned."""
        if any(len(set(self.visits.get(op.index, ()))) != op.turns for op in self.rows.ops):
            raise PlanError("the plan does not run each op of the model once; is it another model's?")
        for tensor in self.tensors:
            offsets, size = self.row_offsets.get(tensor.index, ()), tensor.row_bytes
            if len(offsets) != tensor.rows:
                raise PlanError(f"the plan has no place for tensor {tensor.index} '{tensor.label}'")
            for offset in offsets:
                if offset < 0 or offset + size > self.arena_bytes or offset % tensor.dtype.size_bytes:
                    raise PlanError(f"tensor {tensor.index} '{tensor.label}' does not fit at offset {offset}")

    @cached_property
    def rows(self) -> RowGraph:
        return row_graph(self.graph, self.library)

    @cached_property
    def visits(self) -> Mapping[int, tuple[int, ...]]:
        """Op -> its turns in the order in which it has them. It may have some again, to make a row again."""
        found: dict[int, list[int]] = {}
        for step in self.steps:
            found.setdefault(step.op, []).append(step.turn or 0)
        return {op: tuple(turns) for op, turns in found.items()}

    @property
    def input_rows(self) -> bool:
        """Whether the caller hands the input over a row at a time."""
        return PUSH in self.sum_offsets

    @property
    def state(self) -> PushState:
        return PushState.of(self.graph, [step.op for step in self.steps])

    @property
    def align_bytes(self) -> int:
        held = [self.state.at_bytes if op == PUSH else SUM_BYTES for op in self.sum_offsets]
        return max([super().align_bytes, *held])

    @cached_property
    def by_rows(self) -> Mapping[int, RowStorage]:
        """How the tensors lie of which rows are passed on."""
        pushed = self.graph.inputs if self.input_rows else ()
        passed = {t for call in self.calls.values() if call is not None for t in _by_rows(call)}
        return {t: RowStorage.of(self.row_offsets[t]) for t in sorted({*pushed, *passed})}

    def written(self) -> Iterator[Written]:
        number = 0
        for step in self.steps:
            if step.op == PUSH:
                continue
            op, node = self.rows.ops[step.op], self.graph.nodes[step.op]
            for tensor in node.outputs:
                if step.turn is None:
                    yield Written(number, node, tensor, self.offsets[tensor.index])
                else:
                    made = op.makes_at(step.turn) or ()
                    yield from (Written(number, node, tensor, self.row_offsets[tensor.index][r], r) for r in made)
            number += 1

    def _call(self, node: Node) -> CCall:
        is_whole = self.rows.ops[node.op.index].is_whole
        return self.library.call(node) if is_whole else self.library.row_call(node)


def _ops(steps: tuple[Step, ...]) -> tuple[int, ...]:
    """Each op once, in the order of their first steps."""
    return tuple(dict.fromkeys(step.op for step in steps if step.op != PUSH))


def _by_rows(call: CCall) -> Iterator[int]:
    """The tensors of which a call gets rows."""
    for argument in call.arguments:
        for one in argument.tensors if isinstance(argument, CPointers) else (argument,):
            if isinstance(one, CRow | CRows):
                yield one.tensor.index
