"""Schedules and places made at random, without the planner: whole ops and rows mixed, some rows recomputed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from diagmem.kernels import library
from diagmem.model.graph import Graph, Tensor
from diagmem.model.schedule import PUSH, PushState, Schedule, Step
from diagmem.planning.plan import Plan
from diagmem.validation import Fault, Finding, Rules, replay
from tests.ops.simulation import by_step, places
from tests.validation.shadow_memory import Shadow, row_of, sums_of, turns_of, windows

DIAGMEM = library("diagmem")
LARGE = 1 << 20
ANY_WORK = Rules(recompute=1e9)


@dataclass(frozen=True)
class Laid:
    """A plan: what runs when, and what lies where."""

    graph: Graph
    schedule: Schedule
    rows: Mapping[int, tuple[int, ...]]
    scratch: Mapping[int, int]

    @classmethod
    def of(cls, plan: Plan) -> Laid:
        rows = {t: found for t, found in plan.row_offsets.items() if plan.graph.tensors[t].view is None}
        return cls(plan.graph, plan.schedule, rows, plan.scratch)

    def findings(self, arena_bytes: int = LARGE, rules: Rules = ANY_WORK) -> list[Finding]:
        return replay(self.graph, DIAGMEM, self.schedule, self.rows, self.scratch, arena_bytes, rules)

    def faults(self) -> set[Fault]:
        """But those of alignment, which lose no bytes."""
        return {finding.fault for finding in self.findings()} - {Fault.MISALIGNED}

    def loses_bytes(self) -> bool:
        return Shadow(self.graph, DIAGMEM, self.rows, self.scratch).loses_bytes(self.schedule)

    @cached_property
    def whole(self) -> set[int]:
        """The tensors, none of them views, that must lie in one piece."""
        return in_one_piece(self.graph, self.schedule)

    def moved(self, chance: random.Random, shift: Sequence[int]) -> Laid:
        """With a tensor, a row of one, or sums or the state elsewhere."""
        rows, scratch = dict(self.rows), dict(self.scratch)
        picked = chance.choice([*rows, *([-1] * len(scratch))])
        by = chance.choice(shift)
        if picked < 0:
            op = chance.choice(sorted(scratch))
            scratch[op] = max(0, scratch[op] + by)
        elif picked in self.whole:
            by = max(by, -min(rows[picked]))
            rows[picked] = tuple(at + by for at in rows[picked])
        else:
            row = chance.randrange(len(rows[picked]))
            rows[picked] = tuple(max(0, at + by) if n == row else at for n, at in enumerate(rows[picked]))
        return Laid(self.graph, self.schedule, rows, scratch)

    def onto(self, chance: random.Random) -> Laid:
        """With something moved right onto, or close to, something else."""
        starts = [at for found in self.rows.values() for at in found] + list(self.scratch.values())
        target, near = chance.choice(starts), chance.choice([0, 0, 1, -1, 2, -3, 4, 8, -8])
        laid = self.moved(chance, [0])
        rows, scratch = dict(laid.rows), dict(laid.scratch)
        picked = chance.choice([*rows, *([-1] * len(scratch))])
        if picked < 0:
            scratch[chance.choice(sorted(scratch))] = max(0, target + near)
        elif picked in self.whole:
            size = self.graph.tensors[picked].row_bytes
            rows[picked] = tuple(max(0, target + near) + n * size for n in range(len(rows[picked])))
        else:
            row = chance.randrange(len(rows[picked]))
            rows[picked] = tuple(max(0, target + near) if n == row else at for n, at in enumerate(rows[picked]))
        return Laid(self.graph, self.schedule, rows, scratch)


def in_one_piece(graph: Graph, schedule: Schedule) -> set[int]:
    """The tensors, none of them views, that must lie in one piece."""
    is_streamed = any(step.op == PUSH for step in schedule.steps)
    found = {*graph.outputs, *(graph.inputs[1:] if is_streamed else graph.inputs)}
    for step in schedule.steps:
        if step.op != PUSH and step.turn is None:
            found |= {t for t in (*graph.ops[step.op].inputs, *graph.ops[step.op].outputs) if t >= 0}
    return {graph.tensors[t].base for t in found} | {t.base for t in graph.tensors if _crosses_rows(graph, t)}


def _crosses_rows(graph: Graph, view: Tensor) -> bool:
    """Whether a row of a view lies in several rows of its base."""
    if view.view is None:
        return False
    base, at = graph.tensors[view.base], places(view)
    row_elems = base.elems // base.rows
    rows = ({(view.view.offset_elems + at[e]) // row_elems for e in row_of(view, row)} for row in range(view.rows))
    return any(len(found) > 1 for found in rows)


def mixed(graph: Graph, chance: random.Random) -> Laid:
    """A schedule of whole ops and of turns, some of them repeated, in an order that respects what turns read."""
    turns = [0 if chance.random() < 0.3 else turns_of(node, DIAGMEM) for node in graph.nodes]
    first = graph.tensors[graph.inputs[0]]
    is_streamed = first.rows > 1 and chance.random() < 0.4
    maker = _Maker(graph, turns, is_streamed)
    steps: list[Step] = []
    while True:
        ready = maker.ready()
        if not ready:
            break
        again = [step for step in steps if step.turn is not None and maker.makes_rows(step.op)]
        steps.append(chance.choice(again) if again and chance.random() < 0.15 else chance.choice(ready))
        maker.run(steps[-1])
    schedule = Schedule(tuple(steps))
    return Laid(graph, schedule, *_apart(graph, schedule, chance))


class _Maker:
    """What has been made so far, element by element of each tensor with bytes of its own."""

    def __init__(self, graph: Graph, turns: Sequence[int], is_streamed: bool) -> None:
        self.graph, self.turns, self.is_streamed = graph, turns, is_streamed
        self.done: dict[int, int] = {}
        self.made: set[tuple[int, int]] = set()
        for index in graph.inputs[1:] if is_streamed else graph.inputs:
            self._write(graph.tensors[index], range(graph.tensors[index].elems))

    def makes_rows(self, op: int) -> bool:
        return op != PUSH and sums_of(self.graph.nodes[op]) is None

    def ready(self) -> list[Step]:
        found = []
        if self.is_streamed and self.done.get(PUSH, 0) < self.graph.tensors[self.graph.inputs[0]].rows:
            found.append(Step(PUSH, self.done.get(PUSH, 0)))
        for op, turns in enumerate(self.turns):
            turn = self.done.get(op, 0)
            step = Step(op, turn if turns else None)
            if turn < max(1, turns) and all(self._is_made(*look) for look in self._looks(step)):
                found.append(step)
        return found

    def run(self, step: Step) -> None:
        turn = step.turn or 0
        self.done[step.op] = max(self.done.get(step.op, 0), turn + 1)
        if step.op == PUSH:
            tensor = self.graph.tensors[self.graph.inputs[0]]
            self._write(tensor, row_of(tensor, turn))
            return
        node = self.graph.nodes[step.op]
        if step.turn is None or (sums_of(node) is not None and turn == node.input(0).rows - 1):
            for tensor in node.outputs:
                self._write(tensor, range(tensor.elems))
        elif sums_of(node) is None:
            self._write(node.output, row_of(node.output, turn))

    def _looks(self, step: Step) -> list[tuple[Tensor, Sequence[int]]]:
        node = self.graph.nodes[step.op]
        inputs = {t.index: t for _, t in node.activations()}.values()
        if step.turn is None:
            return [(tensor, range(tensor.elems)) for tensor in inputs]
        if sums_of(node) is not None:
            return [(node.input(0), row_of(node.input(0), step.turn))]
        accesses = DIAGMEM.accesses(node)
        assert accesses is not None
        window = windows(node, accesses)[step.turn]
        return [
            (node.input(p), [e for at, elements in by_step(runs).items() if at in window for e in elements])
            for p, runs in enumerate(accesses.reads)
            if runs is not None
        ]

    def _places(self, tensor: Tensor, elements: Sequence[int]) -> set[tuple[int, int]]:
        at, first = places(tensor), tensor.offset_bytes // tensor.dtype.size_bytes
        return {(tensor.base, first + at[element]) for element in elements}

    def _write(self, tensor: Tensor, elements: Sequence[int]) -> None:
        self.made |= self._places(tensor, elements)

    def _is_made(self, tensor: Tensor, elements: Sequence[int]) -> bool:
        return self._places(tensor, elements) <= self.made


def _apart(
    graph: Graph, schedule: Schedule, chance: random.Random
) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """Everything at a place of its own; rows that need not lie in one piece in any order. Reshapes may stay."""
    whole, at = in_one_piece(graph, schedule), 64
    rows: dict[int, tuple[int, ...]] = {}
    for tensor in graph.tensors:
        if tensor.is_constant or tensor.view is not None:
            continue
        found = [at + row * (tensor.row_bytes + (0 if tensor.index in whole else 4)) for row in range(tensor.rows)]
        if tensor.index not in whole:
            chance.shuffle(found)
        rows[tensor.index] = tuple(found)
        at = max(found) + tensor.row_bytes + 4
    for op in graph.ops:
        if op.kind == "RESHAPE" and graph.tensors[op.outputs[0]].view is None and chance.random() < 0.5:
            source = graph.tensors[op.inputs[0]]
            if source.view is None and source.index in rows:
                size = graph.tensors[op.outputs[0]].row_bytes
                rows[op.outputs[0]] = tuple(rows[source.index][0] + n * size for n in range(len(rows[op.outputs[0]])))
    scratch = {}
    for index in dict.fromkeys(step.op for step in schedule.steps if step.turn is not None):
        held = PushState.of(graph, schedule.ops).size_bytes if index == PUSH else sums_of(graph.nodes[index])
        if held is not None:
            scratch[index] = -(-at // 4) * 4
            at = scratch[index] + held
    return rows, scratch
