"""The values of a run, and who looks at them: what each step must find in memory, derived from the model alone.

A *value* is what one step writes of a part of a tensor, within one unit of its root: a whole tensor, or a row. A row
that is made again is a new value. Who reads a tensor looks at the latest values of the elements that its kernel, or
the turn of it, touches.

What has state is run twice in a row: what a variable is after the first run is what the second one must find, whatever
the caller has written in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import Graph, IntArray, Tensor
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.model.views import distinct
from diagmem.validation.findings import Fault, Finding
from diagmem.validation.kernel import Kernel
from diagmem.validation.memory import NOBODY, Family, Memory, Part
from diagmem.validation.places import Held, Placed

BEFORE_RUN = -1
"""The step at which the caller fills the graph's inputs; it reads its outputs at step len(schedule.steps)."""


class Read(NamedTuple):
    """A look at what a unit holds of a tensor, by a step of an op, or by the caller after the run (op None). The tensor
    is None where it looks at its own scratch, sums or state."""

    step: int
    op: int | None
    turn: int | None
    tensor: int | None
    unit: int


@dataclass(slots=True, eq=False)
class Value:
    """Bytes [low, high) of the arena, not all of them its own if it is a view, made at a step by the output `output` of
    an op; None: before the run, by the caller, or not a tensor. `reads` by step."""

    label: str
    row: int | None
    low: int
    high: int
    made: int
    op: int | None = None
    turn: int | None = None
    output: int | None = None
    part: Part | None = None
    unit: int = 0
    reads: list[Read] = field(default_factory=list)


class Slot(NamedTuple):
    """Where the latest value of a part of a root is looked up."""

    root: int
    part: int
    unit: int


class ReplayedRun:
    """A run of a schedule, or two. After `walk`, `values` are all values in the arena, by the step that made them. The
    steps of the second run are counted on from those of the first: see `when`."""

    def __init__(
        self,
        graph: Graph,
        kernels: Sequence[Kernel],
        schedule: Schedule,
        placed: Placed,
        held: Iterable[Held],
        staged: Iterable[Held] = (),
    ) -> None:
        self.graph, self.kernels, self.schedule = graph, kernels, schedule
        self.placed, self.held = placed, {item.op: item for item in held}
        self.staged: dict[int, list[Held]] = {}
        for item in staged:
            self.staged.setdefault(item.step, []).append(item)
        turned = {step.op for step in schedule.steps if step.turn is not None}
        self.is_streamed = PUSH in turned
        self.makes_rows = {op for op in turned if op != PUSH and not kernels[op].sums_bytes}
        self.memory = Memory(graph, placed.rows, _touched(graph, turned))
        for root in self.memory.has_views:
            self.memory.families[root] = Family(self.memory, root, self._parts(root))
        self.runs = 2 if graph.variables else 1
        self.run_steps = len(schedule.steps) + 2
        self.values: list[Value] = []
        self._latest: dict[Slot, Value] = {}
        self._held_now: dict[int, Value] = {}
        self._staged_now: dict[int, Value] = {}
        self._staying = {graph.producer[tensor] for tensor in self.memory.staying}
        self._done: set[int] = set()
        self._looks: dict[Step, list[tuple[Tensor, list[Slot]]]] = {}
        self._makes: dict[Step, list[tuple[Slot, Part, int]]] = {}
        self._rows_read: dict[tuple[int, int], list[list[int]] | None] = {}

    def _parts(self, root: int) -> list[Part]:
        """What is written of a root that has views."""
        found = [Part(root)] if self._is_given(root) or (self.is_streamed and root == self.graph.inputs[0]) else []
        for index in self.memory.members[root]:
            tensor, op = self.graph.tensors[index], self.graph.producer.get(index)
            if self._is_given_view(tensor):
                found.append(Part(index))
                continue
            if op is None or tensor.is_variable or index in self.memory.staying or not tensor.elems:
                continue
            by_turns = tensor.view is not None and op in self.makes_rows
            found += [Part(index, turn) for turn in range(tensor.rows)] if by_turns else [Part(index)]
        return found

    def _is_given(self, root: int) -> bool:
        """Whether its bytes are there before the run."""
        tensor = self.graph.tensors[root]
        if root in self.graph.inputs:
            return not (self.is_streamed and root == self.graph.inputs[0])
        return tensor.is_variable or (root not in self.graph.producer and root not in self.graph.families)

    def _is_given_view(self, tensor: Tensor) -> bool:
        """Whether it is a part of a tensor that is there before the run."""
        return (
            tensor.view is not None and tensor.elems > 0 and (tensor.is_variable or tensor.index in self.graph.inputs)
        )

    def when(self, step: int) -> tuple[int, int]:
        """The run, and the step in it."""
        return (step - BEFORE_RUN) // self.run_steps, (step - BEFORE_RUN) % self.run_steps + BEFORE_RUN

    def faults_of_parts(self) -> Iterator[Finding]:
        for root, family in sorted(self.memory.families.items()):
            if family.is_written_twice:
                yield Finding(Fault.WRITTEN_TWICE, tensor=self.graph.tensors[root].label)

    def walk(self, used: Iterable[int], kept: Iterable[int]) -> Iterator[Finding]:
        """Goes through the runs, and yields what is read before it is made. `used`: the tensors that matter; `kept`:
        those that the caller looks at after a run. State is looked at after the last one."""
        roots = sorted({self.memory.root[t] for t in used})
        for run in range(self.runs):
            first = run * self.run_steps
            for root in roots:
                self._give(self.graph.tensors[root], first + BEFORE_RUN, with_state=run == 0)
            end = first + len(self.schedule.steps)
            self._held_now.clear()
            self._staged_now.clear()
            if self.is_streamed:
                self._hold(PUSH, first + BEFORE_RUN, Read(end, None, None, None, 0))
            for at, step in enumerate(self.schedule.steps, first):
                yield from self._step(at, step)
            for index in sorted(kept):
                tensor = self.graph.tensors[index]
                is_looked_at = run == self.runs - 1 or not tensor.is_variable
                if is_looked_at and not tensor.is_constant and tensor.elems:
                    yield from self._look(Read(end, None, None, index, 0), self._slots(tensor, None))

    def _give(self, root: Tensor, at: int, with_state: bool) -> None:
        """Fills what is there before a run. State is given once, and then kept."""
        if self._is_given(root.index) and root.elems and not root.is_constant and (with_state or not root.is_variable):
            for slot in self._slots(root, None):
                self._made(slot, Part(root.index), at, None, None, None)
        family = self.memory.families.get(root.index)
        for number, part in enumerate(family.parts if family is not None else ()):
            tensor = self.graph.tensors[part.tensor]
            if self._is_given_view(tensor) and (with_state or not tensor.is_variable):
                for unit in family.units_in(part) if family is not None else ():
                    self._made(Slot(root.index, number, unit), part, at, None, None, None)

    def _step(self, at: int, step: Step) -> Iterator[Finding]:
        op, turn = step.op, step.turn
        if op == PUSH:
            tensor = self.graph.tensors[self.graph.inputs[0]]
            self._made(Slot(tensor.index, 0, turn or 0), Part(tensor.index), at, None, None, None)
            return
        self._copy_weights(at)
        for tensor, slots in self._looked_at(step):
            yield from self._look(Read(at, op, turn, tensor.index, 0), slots)
        self._hold_within(at, op, turn)
        if op in self._staged_now:
            self._staged_now[op].reads.append(Read(at, op, turn, None, 0))
        for slot, part, output in self._made_by(step):
            self._made(slot, part, at, op, turn, output)
        self._done.add(op)

    def _look(self, read: Read, slots: list[Slot]) -> Iterator[Finding]:
        """Notes a look at values; one that finds none is a finding. A reshape that stays where it is reads nothing."""
        op, tensor = read.op, self.graph.tensors[read.tensor or 0]
        missing = [slot for slot in slots if slot not in self._latest]
        if op is None or op not in self._staying:
            for slot in slots:
                if slot in self._latest:
                    self._latest[slot].reads.append(read._replace(unit=slot.unit))
        number = None if op is None else self.graph.ops[op].number
        early = [slot for slot in missing if slot.part != NOBODY]
        if (early or not self._is_named(tensor)) and not tensor.is_variable:
            row = early[0].unit if early and self.memory.units[tensor.index] > 1 else None
            yield Finding(Fault.OP_TOO_EARLY, read.step, op, tensor.label, row=row, number=number)
        if len(early) < len(missing):
            yield Finding(Fault.NOT_WRITTEN, None if op is None else read.step, op, tensor.label, number=number)

    def _is_named(self, tensor: Tensor) -> bool:
        """Whether the reshapes have run that give its bytes this name."""
        base = tensor.base
        while base in self.memory.staying:
            if self.graph.producer[base] not in self._done:
                return False
            base = self.memory.staying[base]
        return True

    def _hold_within(self, at: int, op: int, turn: int | None) -> None:
        """Scratch lives during a step; sums from the first turn to the last."""
        if op not in self.held:
            return
        own = Read(at, op, turn, None, 0)
        if turn is not None and self.kernels[op].sums_bytes and op in self._held_now:
            self._held_now[op].reads.append(own)
        else:
            self._hold(op, at, own)

    def _copy_weights(self, at: int) -> None:
        """Makes the copies that are due at a step. All steps of their ops read them."""
        for item in self.staged.get(self.when(at)[1], ()):
            low = self.placed.staged.get(item.op)
            if low is not None:
                self._staged_now[item.op] = Value(item.name, None, low, low + item.size_bytes, at)
                self.values.append(self._staged_now[item.op])

    def _hold(self, op: int, at: int, read: Read) -> None:
        item, low = self.held[op], self.placed.held.get(op)
        if low is not None:
            self._held_now[op] = Value(item.name, None, low, low + item.size_bytes, at, reads=[read])
            self.values.append(self._held_now[op])

    def _made(self, slot: Slot, part: Part, at: int, op: int | None, turn: int | None, output: int | None) -> None:
        tensor = self.graph.tensors[part.tensor]
        is_row = self.memory.units[slot.root] > 1
        row = part.turn if part.turn is not None else slot.unit if is_row and tensor.view is None else None
        is_inside = self.memory.is_in_arena(slot.root)
        extent = self.memory.extent(tensor, part.turn, slot.unit) if is_inside else (0, 0)
        value = Value(tensor.label, row, *extent, at, op, turn, output, part, slot.unit)
        self._latest[slot] = value
        if is_inside:
            self.values.append(value)

    def _slots(self, tensor: Tensor, elements: IntArray | None) -> list[Slot]:
        """All that some elements of a tensor are made of; None: all elements."""
        root = self.memory.root[tensor.index]
        family = self.memory.families.get(root)
        if family is not None:
            return [Slot(root, part, unit) for part, unit in family.looked_at(tensor, elements)]
        if elements is None:
            return [Slot(root, 0, unit) for unit in range(self.memory.units[root])]
        elems = self.memory.unit_elems(tensor)
        return [Slot(root, 0, int(unit)) for unit in distinct(elements // elems)]

    def _looked_at(self, step: Step) -> list[tuple[Tensor, list[Slot]]]:
        """What a step reads: tensors, and what the elements that it touches are made of."""
        if step not in self._looks:
            tensors = {t.index: t for _, t in self.graph.nodes[step.op].activations() if t.elems}
            self._looks[step] = [(t, self._looked_at_by(step, t)) for t in tensors.values()]
        return self._looks[step]

    def _looked_at_by(self, step: Step, tensor: Tensor) -> list[Slot]:
        kernel, turn = self.kernels[step.op], step.turn
        if turn is None:
            return self._slots(tensor, None)
        if kernel.sums_bytes:
            if tensor.index != kernel.node.input(0).index:
                return self._slots(tensor, None)
            row_elems = tensor.elems // tensor.rows
            return self._slots(tensor, np.arange(turn * row_elems, (turn + 1) * row_elems, dtype=np.int64))
        root = self.memory.root[tensor.index]
        if root in self.memory.families:
            runs = kernel.reads(tensor.index, turn)
            return self._slots(tensor, None if runs is None else np.concatenate([r.touches()[0] for r in runs]))
        key = step.op, tensor.index
        if key not in self._rows_read:
            self._rows_read[key] = _by_turn(kernel, tensor, self.memory.unit_elems(tensor))
        rows = self._rows_read[key]
        return self._slots(tensor, None) if rows is None else [Slot(root, 0, row) for row in rows[turn]]

    def _made_by(self, step: Step) -> list[tuple[Slot, Part, int]]:
        """What a step writes, and of which output."""
        if step not in self._makes:
            self._makes[step] = list(self._makings(step))
        return self._makes[step]

    def _makings(self, step: Step) -> Iterator[tuple[Slot, Part, int]]:
        op, turn = step.op, step.turn
        if turn is not None and self.kernels[op].sums_bytes:
            if turn < self.kernels[op].turns - 1:
                return
            turn = None
        for output, tensor in enumerate(self.graph.nodes[op].outputs):
            root = self.memory.root[tensor.index]
            if tensor.index in self.memory.staying or not tensor.elems:
                continue
            family = self.memory.families.get(root)
            part = Part(tensor.index, None if tensor.view is None or tensor.is_variable else turn)
            number = 0 if family is None else family.parts.index(part)
            if family is not None and tensor.view is not None:
                units: Iterable[int] = family.units_in(part)
            else:
                units = range(self.memory.units[root]) if turn is None else (turn,)
            for unit in units:
                yield Slot(root, number, unit), part, output


def _touched(graph: Graph, turned: set[int]) -> Iterator[int]:
    """The tensors that turns touch, one row of them or more."""
    for op in turned:
        if op == PUSH:
            yield graph.inputs[0]
        else:
            yield from (t.index for _, t in graph.nodes[op].activations())
            yield from graph.ops[op].outputs


def _by_turn(kernel: Kernel, tensor: Tensor, unit_elems: int) -> list[list[int]] | None:
    """The units of a tensor that each turn of a kernel reads; None where that is not known."""
    found = kernel.rows_read(tensor, unit_elems)
    if found is None:
        return None
    turn, row = found
    bounds = np.searchsorted(turn, np.arange(kernel.turns + 1))
    return [row[a:b].tolist() for a, b in pairwise(bounds)]
