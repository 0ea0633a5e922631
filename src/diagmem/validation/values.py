"""The values of a run, and who looks at them: what each step must find in memory, derived from the model alone.

A *value* is what one step writes of a part of a tensor, within one unit of its root: a whole tensor, or a row. A row
that is recomputed is a new value. Who reads a tensor looks at the latest values of the elements that its kernel, or
the turn of it, touches.

What has state is run twice in a row: what a variable is after the first run is what the second one must find, whatever
the caller has written in between.

A *root* is a tensor with bytes of its own. Its views, and reshapes that stay where it lies, are other names for these
bytes. A root that any step touches row by row is looked at in *units* of one row, since its rows may lie anywhere, even
where others of them lie at other times; any other root is one unit. A *part* of a root is what one op writes of it; a
view that is made by turns is one part for each turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import Graph, IntArray, Tensor, distinct, pieces
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.validation.findings import Fault, Finding, Held, Placed, is_reshape
from diagmem.validation.kernel import Kernel, Layout, Touches

NOBODY = -1
"""Writer of elements that no op writes."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one op writes of a root. `turn`: None where all of the tensor counts as one part."""

    tensor: int
    turn: int | None = None


class Memory:
    """`rows`: tensor that is no view -> the address of each row; what is not there lies outside the arena. `by_row`:
    the tensors that some step touches row by row."""

    def __init__(self, graph: Graph, rows: Mapping[int, IntArray], by_row: Iterable[int]) -> None:
        self.graph, self.rows = graph, rows
        self.staying = {
            node.op.outputs[0]: node.op.inputs[0]
            for node in graph.nodes
            if is_reshape(node)
            and not graph.holds_state(node.op.inputs[0])
            and self._is_at_one_place(node.op.inputs[0], node.op.outputs[0])
        }
        self.root = [self._root(tensor) for tensor in graph.tensors]
        split = {self.root[tensor] for tensor in by_row}
        self.units = [graph.tensors[root].rows if root in split else 1 for root in self.root]
        self.unit_bytes = [
            graph.tensors[root].size_bytes // units if units else 0
            for root, units in zip(self.root, self.units, strict=True)
        ]
        self._layouts: dict[tuple[int, int | None, int], Layout] = {}
        self.families: dict[int, Family] = {}

    def _is_at_one_place(self, source: int, target: int) -> bool:
        found = [self.rows.get(tensor) for tensor in (source, target)]
        return found[0] is not None and found[1] is not None and found[0][0] == found[1][0]

    def _root(self, tensor: Tensor) -> int:
        root = tensor.base
        while root in self.staying:
            root = self.staying[root]
        return root

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Root -> all names of its bytes."""
        found: dict[int, list[int]] = {}
        for tensor, root in enumerate(self.root):
            found.setdefault(root, []).append(tensor)
        return found

    @cached_property
    def has_views(self) -> set[int]:
        """The roots that are not one part each, or are read in parts."""
        roots = {self.root[t.index] for t in self.graph.tensors if t.view is not None}
        return {root for root in roots if self.graph.tensors[root].elems}

    def is_in_arena(self, tensor: int) -> bool:
        return self.root[tensor] in self.rows

    def unit_elems(self, tensor: Tensor) -> int:
        """Elements of a tensor, which is no view, in each unit."""
        return self.unit_bytes[tensor.index] // tensor.dtype.size_bytes

    def extent(self, tensor: Tensor, turn: int | None, unit: int) -> tuple[int, int]:
        """The lowest address and the highest end."""
        if tensor.view is None:
            low = int(self.rows[self.root[tensor.index]][unit])
            return low, low + self.unit_bytes[tensor.index]
        layout = self.layout(tensor, turn, unit)
        return layout.low, layout.high

    def layout(self, tensor: Tensor, turn: int | None, unit: int) -> Layout:
        """The bytes of a tensor, or of a turn's part of it, that lie in a unit."""
        key = tensor.index, turn, unit
        if key not in self._layouts:
            start, size = int(self.rows[self.root[tensor.index]][unit]), tensor.dtype.size_bytes
            if tensor.view is None:
                self._layouts[key] = Layout.block(start, self.unit_elems(tensor), size)
            elif self.units[tensor.index] == 1 and turn is None:
                self._layouts[key] = Layout.of(tensor, start + tensor.offset_bytes)
            else:
                family = self.families[self.root[tensor.index]]
                at = family.grains(tensor)[family.picked(tensor, turn, unit)] * family.grain_bytes
                at = start + at - unit * self.unit_bytes[tensor.index]
                self._layouts[key] = Layout(at, family.grain_bytes // size, size)
        return self._layouts[key]

    def picked(self, touches: Touches, first: int, tensor: Tensor, turn: int | None, unit: int) -> Touches:
        """Of touches of a tensor's elements from `first` on, those that `layout` speaks of."""
        if self.units[tensor.index] == 1 and turn is None:
            return touches
        if tensor.view is None:
            elems = self.unit_elems(tensor)
            return touches.picked(np.array([unit - first // elems], dtype=np.int64), elems)
        family = self.families[self.root[tensor.index]]
        return touches.picked(family.picked(tensor, turn, unit), family.grain_bytes // tensor.dtype.size_bytes)


class Family:
    """A root in grains: so many bytes that no view, unit or part begins or ends within one."""

    def __init__(self, memory: Memory, root: int, parts: Sequence[Part]) -> None:
        self.memory, self.root, self.parts = memory, root, tuple(parts)
        tensors = memory.graph.tensors
        self.grain_bytes = memory.unit_bytes[root]
        for member in (tensors[m] for m in memory.members[root]):
            size, found = member.dtype.size_bytes, pieces(member.shape, member.strides)
            starts = int(np.gcd.reduce(found.starts)) if len(found.starts) else 0
            turn_bytes = member.row_bytes if any(p.tensor == member.index and p.turn is not None for p in parts) else 0
            self.grain_bytes = math.gcd(
                self.grain_bytes, member.offset_bytes, found.length * size, starts * size, turn_bytes
            )
        self._grains: dict[int, IntArray] = {}
        self._picked: dict[tuple[int, int | None, int], IntArray] = {}

    def grains(self, tensor: Tensor) -> IntArray:
        """The grains of a tensor, in the order of its elements."""
        if tensor.index not in self._grains:
            size, found = tensor.dtype.size_bytes, pieces(tensor.shape, tensor.strides)
            starts = (found.starts * size + tensor.offset_bytes) // self.grain_bytes
            within = np.arange(found.length * size // self.grain_bytes, dtype=np.int64)
            self._grains[tensor.index] = (starts[:, None] + within).reshape(-1)
        return self._grains[tensor.index]

    def picked(self, tensor: Tensor, turn: int | None, unit: int) -> IntArray:
        """Which of a tensor's grains lie in a unit and belong to a turn."""
        key = tensor.index, turn, unit
        if key not in self._picked:
            is_inside = self.units_of(self.grains(tensor)) == unit
            if turn is not None:
                is_inside &= self._turns(tensor) == turn
            self._picked[key] = np.flatnonzero(is_inside)
        return self._picked[key]

    def units_of(self, grains: IntArray) -> IntArray:
        found: IntArray = grains * self.grain_bytes // self.memory.unit_bytes[self.root]
        return found

    def _turns(self, tensor: Tensor) -> IntArray:
        """The turn that makes each grain of a tensor."""
        return np.arange(len(self.grains(tensor)), dtype=np.int64) * self.grain_bytes // tensor.row_bytes

    @cached_property
    def is_written_twice(self) -> bool:
        count = np.zeros(self.memory.graph.tensors[self.root].size_bytes // self.grain_bytes, dtype=np.int64)
        for tensor in dict.fromkeys(part.tensor for part in self.parts):
            np.add.at(count, self.grains(self.memory.graph.tensors[tensor]), 1)
        return bool((count > 1).any())

    @cached_property
    def _writer(self) -> IntArray:
        """The part that each grain belongs to."""
        tensors = self.memory.graph.tensors
        found = np.full(tensors[self.root].size_bytes // self.grain_bytes, NOBODY, dtype=np.int64)
        number = {part: n for n, part in enumerate(self.parts)}
        for tensor in dict.fromkeys(part.tensor for part in self.parts):
            grains = self.grains(tensors[tensor])
            if Part(tensor) in number:
                found[grains] = number[Part(tensor)]
            else:
                first = number[Part(tensor, 0)]
                found[grains] = first + self._turns(tensors[tensor])
        return found

    def looked_at(self, tensor: Tensor, elements: IntArray | None) -> list[tuple[int, int]]:
        """Parts by number (NOBODY: unwritten), and units, of some elements of a tensor; None: of all."""
        grains = self.grains(tensor)
        if elements is not None:
            grains = grains[distinct(elements * tensor.dtype.size_bytes // self.grain_bytes)]
        units = self.memory.units[self.root]
        count = np.bincount((self._writer[grains] - NOBODY) * units + self.units_of(grains))
        return [(int(n) // units + NOBODY, int(n) % units) for n in np.flatnonzero(count)]

    def units_in(self, part: Part) -> list[int]:
        """The units that a part lies in."""
        tensor = self.memory.graph.tensors[part.tensor]
        grains = self.grains(tensor)
        if part.turn is not None:
            grains = grains[self._turns(tensor) == part.turn]
        return [int(unit) for unit in distinct(self.units_of(grains))]


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
        copies: Iterable[Held] = (),
    ) -> None:
        self.graph, self.kernels, self.schedule = graph, kernels, schedule
        self.placed, self.held = placed, {item.op: item for item in held}
        self.copies: dict[int, list[Held]] = {}
        for item in copies:
            self.copies.setdefault(item.step, []).append(item)
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
        self._copied_now: dict[int, Value] = {}
        self._staying = {graph.producer[tensor] for tensor in self.memory.staying}
        self._done: set[int] = set()
        self._looked_at = cache(self._looks)
        self._made_by = cache(lambda step: [*self._makings(step)])
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
            self._copied_now.clear()
            if self.is_streamed:
                waiting = Read(end, None, None, None, 0)
                self._lay(self.held[PUSH], self.placed.held, self._held_now, first + BEFORE_RUN, waiting)
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
        if op in self._copied_now:
            self._copied_now[op].reads.append(Read(at, op, turn, None, 0))
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
            self._lay(self.held[op], self.placed.held, self._held_now, at, own)

    def _copy_weights(self, at: int) -> None:
        """Makes the copies that are due at a step. All steps of their ops read them."""
        for item in self.copies.get(self.when(at)[1], ()):
            self._lay(item, self.placed.weight_copies, self._copied_now, at)

    def _lay(self, item: Held, places: Mapping[int, int], now: dict[int, Value], at: int, *reads: Read) -> None:
        """Makes what belongs to no tensor, if it has a place."""
        if item.op in places:
            low = places[item.op]
            now[item.op] = Value(item.name, None, low, low + item.size_bytes, at, reads=[*reads])
            self.values.append(now[item.op])

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

    def _looks(self, step: Step) -> list[tuple[Tensor, list[Slot]]]:
        """What a step reads: tensors, and what the elements that it touches are made of."""
        tensors = {t.index: t for _, t in self.graph.nodes[step.op].activations() if t.elems}
        return [(t, self._looked_at_by(step, t)) for t in tensors.values()]

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

    def _makings(self, step: Step) -> Iterator[tuple[Slot, Part, int]]:
        """What a step writes, and of which output."""
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
