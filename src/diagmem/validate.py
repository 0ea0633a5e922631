"""Replays a plan on shadow memory: each read must find the bytes that its tensor last wrote.

It takes the graph, the order, the addresses, and what each kernel touches at which of its own steps; lifetimes follow
from those. It knows nothing of how the plan was made. It is exact: a finding is a byte that is lost, and a plan without
findings loses none. The only plans judged more strictly are those in which two results of one operation, or an
operation of unknown order and its input, share a byte.

A value is what one op writes: a tensor, or a view, a part of one. Who reads a tensor reads all values that it is made
of. Only values that share addresses can harm each other, so bytes are looked at pair by pair.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diagmem.graph import Graph, Node, Tensor
from diagmem.kernels import Library
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses
from diagmem.schedule import Schedule
from diagmem.shadow import FAR, Layout, Touched, Touches, clash, shared_bytes

if TYPE_CHECKING:
    from diagmem.plans import Plan

_BEFORE_RUN = -1


class Fault(enum.Enum):
    """What can be wrong with a plan."""

    OP_UNKNOWN = "the schedule names an op that the graph does not have"
    OP_MISSING = "the schedule leaves an op out"
    OP_REPEATED = "the schedule runs an op twice"
    OP_TOO_EARLY = "an op runs before its input is made"
    NOT_WRITTEN = "a tensor is read of which no op writes some part"
    NO_PLACE = "a tensor has no place in the arena"
    VIEW_ASTRAY = "a view does not lie where the tensor that it is part of has it"
    OUTSIDE = "a tensor lies partly outside the arena"
    MISALIGNED = "a tensor's offset is not a multiple of its alignment"
    OVERWRITTEN = "an op reads a byte that another tensor has overwritten"
    RESULT_LOST = "a graph output, or what else must survive the run, is overwritten"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `byte` is an address in the arena; `writer` overwrote it at step `writer_step`."""

    fault: Fault
    step: int | None = None
    op: int | None = None
    tensor: str | None = None
    byte: int | None = None
    writer: str | None = None
    writer_step: int | None = None

    def __str__(self) -> str:
        where = (
            ""
            if self.step is None
            else f"step {self.step}, op {self.op}: "
            if self.op is not None
            else "after the run: "
        )
        parts = [f"{where}{self.fault.value}"]
        parts += [f"tensor '{self.tensor}'"] if self.tensor is not None else []
        parts += [f"byte {self.byte}"] if self.byte is not None else []
        parts += [f"overwritten by '{self.writer}' at step {self.writer_step}"] if self.writer is not None else []
        return "; ".join(parts)


def validate(plan: Plan) -> list[Finding]:
    """All that is wrong with a plan; nothing, if it is safe."""
    options = plan.options
    return replay(
        plan.graph,
        plan.schedule,
        plan.offsets,
        options.library,
        plan.arena_bytes,
        scratch=plan.scratch_offsets,
        align_bytes=options.align_bytes,
        keep_inputs=options.keep_inputs,
        external_io=options.external_io,
    )


def replay(
    graph: Graph,
    schedule: Schedule,
    offsets: Mapping[int, int],
    library: Library,
    arena_bytes: int,
    *,
    scratch: Mapping[int, int] | None = None,
    align_bytes: int = 1,
    keep_inputs: bool = False,
    external_io: bool = False,
) -> list[Finding]:
    """All that is wrong with `offsets` (tensor -> address) and `scratch` (op -> address) under this schedule."""
    run = _Run(graph, schedule, offsets, library, scratch or {}, keep_inputs, external_io)
    found = list(run.faults_of_order())
    if not found:
        found += run.faults_of_place(arena_bytes, align_bytes)
        found += run.lost_bytes()
    return found


@dataclass(frozen=True, slots=True)
class _Read:
    """A look at a tensor: by the inputs `positions` of an op, or by the caller after the run (op None)."""

    step: int
    tensor: int
    op: int | None
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Value:
    """Bytes of the arena, made at a step by an op's output (None: before the run, or scratch).

    `reads` by step. A reshape that lies where its source lies is the same value.
    """

    name: str
    layout: Layout
    made: int
    op: int | None
    output: int | None
    reads: tuple[_Read, ...]


class _Run:
    """One run of a plan. Lookups that several checks share are made once."""

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        offsets: Mapping[int, int],
        library: Library,
        scratch: Mapping[int, int],
        keep_inputs: bool,
        external_io: bool,
    ) -> None:
        self.graph, self.schedule, self.offsets, self.library, self.scratch = graph, schedule, offsets, library, scratch
        self.step_of = {op: step for step, op in enumerate(schedule.ops)}
        self.outside = self._with_caller() if external_io else set()
        self.kept = {*graph.outputs, *(graph.inputs if keep_inputs else ())}
        variables = {t.index for t in graph.tensors if t.is_variable}
        self.kept |= variables & offsets.keys() if library.keeps_variables else variables
        self.outside |= variables if library.keeps_variables else set()
        self.known: dict[int, Accesses | None] = {}
        self.parts: dict[int, dict[int, int]] = {}

    def _with_caller(self) -> set[int]:
        """Graph inputs and outputs, what reshapes tie to them, and views of all these."""
        found = {*self.graph.inputs, *self.graph.outputs}
        ties = [(node.op.inputs[0], node.op.outputs[0]) for node in self.graph.nodes if _is_reshape(node)]
        for source, target in [*ties, *reversed(ties)]:
            if source in found or target in found:
                found |= {source, target}
        return found | {t.index for t in self.graph.tensors if t.base in found}

    def faults_of_order(self) -> Iterator[Finding]:
        seen: set[int] = set()
        for step, op in enumerate(self.schedule.ops):
            if not 0 <= op < len(self.graph.ops):
                yield Finding(Fault.OP_UNKNOWN, step, op)
                continue
            if op in seen:
                yield Finding(Fault.OP_REPEATED, step, op)
            seen.add(op)
            for tensor in self._inputs(op):
                if not tensor.is_variable and any(maker not in seen for maker in self._makers(tensor)):
                    yield Finding(Fault.OP_TOO_EARLY, step, op, tensor.label)
                if self._is_in_part_unwritten(tensor):
                    yield Finding(Fault.NOT_WRITTEN, step, op, tensor.label)
        for op in range(len(self.graph.ops)):
            if op not in seen:
                yield Finding(Fault.OP_MISSING, op=op)
        for index in self.graph.outputs:
            if self._is_in_part_unwritten(self.graph.tensors[index]):
                yield Finding(Fault.NOT_WRITTEN, tensor=self.graph.tensors[index].label)

    def _makers(self, tensor: Tensor) -> list[int]:
        """The ops that write a tensor, or parts of it."""
        return [self.graph.producer[t] for t in self._parts(tensor) if t in self.graph.producer]

    def _parts(self, tensor: Tensor) -> dict[int, int]:
        """The tensors that hold bytes of this one, with how many."""
        if tensor.base not in self.graph.families:
            return {tensor.index: tensor.size_bytes}
        if tensor.index not in self.parts:
            others = (self.graph.tensors[t] for t in self.graph.families[tensor.base])
            own = Layout.of(tensor, tensor.offset_bytes)
            found = {t.index: shared_bytes(own, Layout.of(t, t.offset_bytes)) for t in others}
            self.parts[tensor.index] = {t: size_bytes for t, size_bytes in found.items() if size_bytes}
        return self.parts[tensor.index]

    def _is_in_part_unwritten(self, tensor: Tensor) -> bool:
        if tensor.base not in self.graph.families or tensor.base in self.graph.inputs:
            return False
        parts = self._parts(tensor)
        return sum(size for t, size in parts.items() if t in self.graph.producer) < tensor.size_bytes

    def _inputs(self, op: int) -> list[Tensor]:
        return [tensor for _, tensor in self.graph.nodes[op].activations()]

    def faults_of_place(self, arena_bytes: int, align_bytes: int) -> Iterator[Finding]:
        used = {t for op in self.graph.ops for t in (*op.inputs, *op.outputs)} | {*self.graph.inputs, *self.kept}
        used |= self.graph.families.keys()
        for tensor in self.graph.tensors:
            if tensor.index not in used or tensor.is_constant:
                continue
            offset = self.offsets.get(tensor.index)
            if offset is not None:
                align = math.lcm(align_bytes, tensor.dtype.size_bytes)
                yield from _misplaced(tensor.label, offset, tensor.span_bytes, arena_bytes, align)
                if offset != self.offsets.get(tensor.base, -1) + tensor.offset_bytes:
                    yield Finding(Fault.VIEW_ASTRAY, tensor=tensor.label, byte=offset)
            elif tensor.index not in self.outside:
                yield Finding(Fault.NO_PLACE, tensor=tensor.label)
        for node in self.graph.nodes:
            size_bytes, offset = self.library.scratch_bytes(node), self.scratch.get(node.op.index)
            if size_bytes and offset is None:
                yield Finding(Fault.NO_PLACE, tensor=_scratch_name(node))
            elif size_bytes and offset is not None:
                yield from _misplaced(_scratch_name(node), offset, size_bytes, arena_bytes, align_bytes)

    def lost_bytes(self) -> Iterator[Finding]:
        """Each pair of values of which one destroys a byte of the other that is still to be read."""
        values = list(self._values())
        start, end = np.array([v.layout.low for v in values]), np.array([v.layout.high for v in values])
        made = np.array([v.made for v in values])
        for number, value in enumerate(values):
            if value.reads:
                meets = (start < value.layout.high) & (end > value.layout.low)
                meets &= (made >= value.made) & (made <= value.reads[-1].step)
                meets[number] = False
                for other in np.flatnonzero(meets):
                    finding = self._loss(value, values[other])
                    if finding is not None:
                        yield finding

    def _values(self) -> Iterator[_Value]:
        """All values in the arena, scratch included."""
        reads: dict[int, list[_Read]] = defaultdict(list)
        for read in self._reads():
            for value in sorted(self._values_in(read.tensor)):
                reads[value].append(read)
        for index in sorted(self.offsets):
            if self._is_value(index):
                yield self._tensor_value(self.graph.tensors[index], tuple(reads[index]))
        for node in self.graph.nodes:
            offset, size_bytes = self.scratch.get(node.op.index), self.library.scratch_bytes(node)
            if offset is not None and size_bytes:
                op, step = node.op.index, self.step_of[node.op.index]
                own = (_Read(step, -1, op),)
                yield _Value(_scratch_name(node), Layout.block(offset, size_bytes, 1), step, op, None, own)

    def _reads(self) -> Iterator[_Read]:
        """All looks at tensors, by step."""
        for step, op in enumerate(self.schedule.ops):
            positions: dict[int, list[int]] = defaultdict(list)
            for position, tensor in self.graph.nodes[op].activations():
                positions[tensor.index].append(position)
            if not self._stays(self.graph.nodes[op]):
                yield from (_Read(step, tensor, op, tuple(at)) for tensor, at in positions.items())
        yield from (_Read(len(self.schedule.ops), index, None) for index in sorted(self.kept))

    def _tensor_value(self, tensor: Tensor, reads: tuple[_Read, ...]) -> _Value:
        op = None if tensor.is_variable else self.graph.producer.get(tensor.index)
        made = _BEFORE_RUN if op is None else self.step_of[op]
        output = None if op is None else self.graph.ops[op].outputs.index(tensor.index)
        return _Value(tensor.label, self._layout(tensor), made, op, output, reads)

    def _layout(self, tensor: Tensor) -> Layout:
        return Layout.of(tensor, self.offsets[tensor.index])

    def _values_in(self, tensor: int) -> set[int]:
        """The values that a tensor is made of. A reshape that stays is what its source is."""
        found: set[int] = set()
        for part in self._parts(self.graph.tensors[tensor]):
            if self._is_value(part):
                found.add(part)
            elif part in self.graph.producer:
                found |= self._values_in(self.graph.ops[self.graph.producer[part]].inputs[0])
        return found

    def _is_value(self, tensor: int) -> bool:
        """Whether something writes it whole: an op that moves or computes, or the caller. A tensor of which only parts
        are written is none, nor is a part that nobody writes for itself."""
        op = self.graph.producer.get(tensor)
        if op is not None:
            return not self._stays(self.graph.nodes[op])
        return tensor in self.graph.inputs or self.graph.tensors[tensor].base not in self.graph.families

    def _stays(self, node: Node) -> bool:
        """Whether it is a reshape whose output lies where its input lies, so that nothing moves."""
        return _is_reshape(node) and self.offsets.get(node.op.inputs[0], -1) == self.offsets.get(node.op.outputs[0], -2)

    def _loss(self, value: _Value, writer: _Value) -> Finding | None:
        """The first read of `value` that finds a byte of `writer`."""
        if not shared_bytes(value.layout, writer.layout):
            return None
        for read in value.reads:
            if read.step < writer.made:
                continue
            in_turn = read.step == writer.made != value.made
            byte = clash(value.layout, self._read_touches(value, read), self._written(writer), in_turn)
            if byte is not None:
                fault = Fault.RESULT_LOST if read.op is None else Fault.OVERWRITTEN
                return Finding(fault, read.step, read.op, value.name, byte, writer.name, writer.made)
        return None

    def _read_touches(self, value: _Value, read: _Read) -> Touched:
        """The last kernel step that reads each element; an op of unknown order reads all to the very end."""
        if read.tensor < 0:
            return Touched(value.layout, Touches.whole(value.layout.elems, FAR // 4))
        layout = self._layout(self.graph.tensors[read.tensor])
        accesses = None if read.op is None else self._accesses(read.op)
        runs = [] if accesses is None else [accesses.reads[p] for p in read.positions]
        known = [r for r in runs if r is not None]
        if not known or len(known) < len(runs):
            return Touched(layout, Touches.whole(layout.elems, FAR // 4))
        return Touched(layout, Touches.of(known, layout.elems, latest=True))

    def _written(self, value: _Value) -> Touched:
        """The first kernel step that writes each element; what is written in unknown order is written at once."""
        accesses = None if value.op is None or value.output is None else self._accesses(value.op)
        if accesses is None or value.output is None:
            return Touched(value.layout, Touches.whole(value.layout.elems, -1))
        writes = accesses.writes[value.output]
        return Touched(value.layout, Touches.of([writes], value.layout.elems, latest=False))

    def _accesses(self, op: int) -> Accesses | None:
        """What an op touches; None where that is not known. Runtimes copy reshapes in an order of their own."""
        if op not in self.known:
            node = self.graph.nodes[op]
            kind = kind_of(node.op.kind)
            self.known[op] = None if kind is None or kind.is_alias else self.library.accesses(node)
        return self.known[op]


def _is_reshape(node: Node) -> bool:
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_alias or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return False
    source, target = node.inputs[0], node.outputs[0]
    changes = source.is_constant or source.is_variable or target.is_variable
    changes = changes or source.view is not None or target.view is not None
    return not changes and source.size_bytes == target.size_bytes


def _misplaced(name: str, offset: int, size_bytes: int, arena_bytes: int, align_bytes: int) -> Iterator[Finding]:
    if offset < 0 or offset + size_bytes > arena_bytes:
        yield Finding(Fault.OUTSIDE, tensor=name, byte=offset)
    if offset % align_bytes:
        yield Finding(Fault.MISALIGNED, tensor=name, byte=offset)


def _scratch_name(node: Node) -> str:
    return f"scratch of {node.label}"
