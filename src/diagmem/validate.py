"""Replays a plan on shadow memory: each read must find the bytes that its tensor last wrote.

It takes the graph, the order, the addresses, and what each kernel touches at which of its own steps; lifetimes follow
from those. It knows nothing of how the plan was made. It is exact: a finding is a byte that is lost, and a plan without
findings loses none. The only plans judged more strictly are those in which two results of one operation, or an
operation of unknown order and its input, share a byte.

Only values that share addresses can harm each other, so bytes are looked at pair by pair, in runs.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diagmem.accesses import Accesses, Runs
from diagmem.graph import Graph, IntArray, Node, Tensor
from diagmem.kernels import Library
from diagmem.ops import kind_of
from diagmem.schedule import Schedule

if TYPE_CHECKING:
    from diagmem.plans import Plan

_BEFORE_RUN = -1
_FAR = 1 << 60
"""Kernel step of what is never written (+) or never read (-)."""


class Fault(enum.Enum):
    """What can be wrong with a plan."""

    OP_UNKNOWN = "the schedule names an op that the graph does not have"
    OP_MISSING = "the schedule leaves an op out"
    OP_REPEATED = "the schedule runs an op twice"
    OP_TOO_EARLY = "an op runs before its input is made"
    NO_PLACE = "a tensor has no place in the arena"
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
class _Touches:
    """For each element e of a tensor the kernel step of a touch: base[e // cell] + slope * (e % cell)."""

    cell: int
    slope: int
    base: IntArray

    @classmethod
    def whole(cls, elems: int, step: int) -> _Touches:
        """All elements at one step."""
        return cls(max(1, elems), 0, np.array([step], dtype=np.int64))

    @classmethod
    def of(cls, runs: Sequence[Runs], elems: int, latest: bool) -> _Touches:
        """The last touch of each element, or the first."""
        parts = [_runs_to_touches(r, elems, latest) for r in runs]
        if len(parts) == 1:
            return parts[0]
        pick = np.maximum if latest else np.minimum
        every = np.arange(elems, dtype=np.int64)
        return cls(1, 0, pick.reduce([part.at(every) for part in parts]))

    def at(self, elems: IntArray) -> IntArray:
        return self.base[elems // self.cell] + self.slope * (elems % self.cell)


def _runs_to_touches(runs: Runs, elems: int, latest: bool) -> _Touches:
    pick: np.ufunc = np.maximum if latest else np.minimum
    never = -_FAR if latest else _FAR
    if not len(runs.start):
        return _Touches.whole(elems, never)
    if (runs.pitch == 1).all() and (runs.stride == runs.stride[0]).all():
        # Runs that move alike are compared cell by cell: for a convolution a cell is a pixel.
        cell = math.gcd(elems, int(np.gcd.reduce(runs.start)), int(np.gcd.reduce(runs.length)))
        slope = int(runs.stride[0])
        cells = Runs(runs.start // cell, runs.length // cell, runs.pitch, runs.step, runs.stride * cell, runs.hold)
    else:
        cell, slope, cells = 1, 0, runs
    index, first, last = cells.touches()
    base = np.full(elems // cell, never, dtype=np.int64)
    pick.at(base, index, last if latest else first)
    return _Touches(cell, slope, base)


@dataclass(frozen=True, slots=True)
class _Read:
    """A look at a value: by the inputs `positions` of an op, or by the caller after the run (op None)."""

    step: int
    op: int | None
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Value:
    """Bytes [start, end) of the arena, made at a step by an op's output (None: before the run, or scratch).

    A reshape that lies where its source lies is the same value.
    """

    name: str
    start: int
    end: int
    elem_bytes: int
    made: int
    op: int | None
    output: int | None
    reads: tuple[_Read, ...]

    @property
    def elems(self) -> int:
        return (self.end - self.start) // self.elem_bytes


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

    def _with_caller(self) -> set[int]:
        """Graph inputs and outputs, and what reshapes tie to them."""
        found = {*self.graph.inputs, *self.graph.outputs}
        ties = [(node.op.inputs[0], node.op.outputs[0]) for node in self.graph.nodes if _is_reshape(node)]
        for source, target in [*ties, *reversed(ties)]:
            if source in found or target in found:
                found |= {source, target}
        return found

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
                maker = self.graph.producer.get(tensor.index)
                if maker is not None and not tensor.is_variable and maker not in seen:
                    yield Finding(Fault.OP_TOO_EARLY, step, op, tensor.label)
        for op in range(len(self.graph.ops)):
            if op not in seen:
                yield Finding(Fault.OP_MISSING, op=op)

    def _inputs(self, op: int) -> list[Tensor]:
        return [tensor for _, tensor in self.graph.nodes[op].activations()]

    def faults_of_place(self, arena_bytes: int, align_bytes: int) -> Iterator[Finding]:
        used = {t for op in self.graph.ops for t in (*op.inputs, *op.outputs)} | {*self.graph.inputs, *self.kept}
        for tensor in self.graph.tensors:
            if tensor.index not in used or tensor.is_constant:
                continue
            offset = self.offsets.get(tensor.index)
            if offset is not None:
                align = math.lcm(align_bytes, tensor.dtype.size_bytes)
                yield from _misplaced(tensor.label, offset, tensor.size_bytes, arena_bytes, align)
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
        start, end = np.array([v.start for v in values]), np.array([v.end for v in values])
        made = np.array([v.made for v in values])
        for number, value in enumerate(values):
            if value.reads:
                meets = (start < value.end) & (end > value.start)
                meets &= (made >= value.made) & (made <= value.reads[-1].step)
                meets[number] = False
                for other in np.flatnonzero(meets):
                    finding = self._loss(value, values[other])
                    if finding is not None:
                        yield finding

    def _values(self) -> Iterator[_Value]:
        """All values in the arena, scratch included."""
        first = self._first_of_value()
        reads: dict[int, list[_Read]] = defaultdict(list)
        for step, op in enumerate(self.schedule.ops):
            positions: dict[int, list[int]] = defaultdict(list)
            for position, tensor in self.graph.nodes[op].activations():
                positions[first.get(tensor.index, tensor.index)].append(position)
            for tensor_index, at in positions.items():
                if not self._stays(self.graph.nodes[op]):
                    reads[tensor_index].append(_Read(step, op, tuple(at)))
        for index in self.kept:
            reads[first.get(index, index)].append(_Read(len(self.schedule.ops), None))
        for index in sorted(set(first.values())):
            yield self._tensor_value(self.graph.tensors[index], tuple(reads[index]))
        for node in self.graph.nodes:
            offset, size_bytes = self.scratch.get(node.op.index), self.library.scratch_bytes(node)
            if offset is not None and size_bytes:
                op, step = node.op.index, self.step_of[node.op.index]
                own = (_Read(step, op),)
                yield _Value(_scratch_name(node), offset, offset + size_bytes, 1, step, op, None, own)

    def _tensor_value(self, tensor: Tensor, reads: tuple[_Read, ...]) -> _Value:
        start = self.offsets[tensor.index]
        op = None if tensor.is_variable else self.graph.producer.get(tensor.index)
        made = _BEFORE_RUN if op is None else self.step_of[op]
        output = None if op is None else self.graph.ops[op].outputs.index(tensor.index)
        size = tensor.dtype.size_bytes
        return _Value(tensor.label, start, start + tensor.size_bytes, size, made, op, output, reads)

    def _first_of_value(self) -> dict[int, int]:
        """For each tensor with a place, the first tensor of the line of reshapes that lie where it lies."""
        first = {t: t for t in self.offsets}
        for op in self.schedule.ops:
            node = self.graph.nodes[op]
            if self._stays(node):
                first[node.op.outputs[0]] = first[node.op.inputs[0]]
        return first

    def _stays(self, node: Node) -> bool:
        """Whether it is a reshape whose output lies where its input lies, so that nothing moves."""
        return _is_reshape(node) and self.offsets.get(node.op.inputs[0], -1) == self.offsets.get(node.op.outputs[0], -2)

    def _loss(self, value: _Value, writer: _Value) -> Finding | None:
        """The first read of `value` that finds a byte of `writer`."""
        for read in value.reads:
            if read.step < writer.made:
                continue
            in_turn = read.step == writer.made != value.made
            byte = _clash(value, self._read_touches(value, read), writer, self._write_touches(writer), in_turn)
            if byte is not None:
                fault = Fault.RESULT_LOST if read.op is None else Fault.OVERWRITTEN
                return Finding(fault, read.step, read.op, value.name, byte, writer.name, writer.made)
        return None

    def _read_touches(self, value: _Value, read: _Read) -> _Touches:
        """The last kernel step that reads each element; an op of unknown order reads all to the very end."""
        accesses = None if read.op is None else self._accesses(read.op)
        runs = [] if accesses is None else [accesses.reads[p] for p in read.positions]
        known = [r for r in runs if r is not None]
        if not known or len(known) < len(runs):
            return _Touches.whole(value.elems, _FAR // 4)
        return _Touches.of(known, value.elems, latest=True)

    def _write_touches(self, value: _Value) -> _Touches:
        """The first kernel step that writes each element; what is written in unknown order is written at once."""
        accesses = None if value.op is None or value.output is None else self._accesses(value.op)
        if accesses is None or value.output is None:
            return _Touches.whole(value.elems, -1)
        return _Touches.of([accesses.writes[value.output]], value.elems, latest=False)

    def _accesses(self, op: int) -> Accesses | None:
        """What an op touches; None where that is not known. Runtimes copy reshapes in an order of their own."""
        if op not in self.known:
            node = self.graph.nodes[op]
            kind = kind_of(node.op.kind)
            self.known[op] = None if kind is None or kind.is_alias else self.library.accesses(node)
        return self.known[op]


def _clash(value: _Value, reads: _Touches, writer: _Value, writes: _Touches, in_turn: bool) -> int | None:
    """An address that is read after it was written, None if there is none.

    `in_turn`: both happen within one op, so that kernel steps decide (a step reads before it writes); else any byte
    that both touch is lost. Addresses fall into stretches on which both steps change evenly. There, among addresses
    that are equal modulo both element sizes, the difference of the two is largest at an end.
    """
    low, high = max(value.start, writer.start), min(value.end, writer.end)
    if low >= high:
        return None
    starts = np.union1d(
        _grid(low, high, value.start, reads.cell * value.elem_bytes),
        _grid(low, high, writer.start, writes.cell * writer.elem_bytes),
    )
    ends = np.append(starts[1:], high)
    lost: list[int] = []
    for phase in range(math.lcm(value.elem_bytes, writer.elem_bytes)):
        for at in (np.minimum(starts + phase, ends - 1), np.maximum(ends - 1 - phase, starts)):
            read = reads.at((at - value.start) // value.elem_bytes)
            written = writes.at((at - writer.start) // writer.elem_bytes)
            bad = read > written if in_turn else (read > -_FAR // 2) & (written < _FAR // 2)
            lost.extend(at[bad][:1].tolist())
    return min(lost, default=None)


def _grid(low: int, high: int, origin: int, pitch: int) -> IntArray:
    """`low`, and the multiples of `pitch` above `origin` that lie in [low, high)."""
    first = origin + -(-(low - origin) // pitch) * pitch
    return np.append(np.int64(low), np.arange(first, high, pitch, dtype=np.int64))


def _is_reshape(node: Node) -> bool:
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_alias or len(node.outputs) != 1 or not node.inputs or node.inputs[0] is None:
        return False
    source, target = node.inputs[0], node.outputs[0]
    changes = source.is_constant or source.is_variable or target.is_variable
    return not changes and source.size_bytes == target.size_bytes


def _misplaced(name: str, offset: int, size_bytes: int, arena_bytes: int, align_bytes: int) -> Iterator[Finding]:
    if offset < 0 or offset + size_bytes > arena_bytes:
        yield Finding(Fault.OUTSIDE, tensor=name, byte=offset)
    if offset % align_bytes:
        yield Finding(Fault.MISALIGNED, tensor=name, byte=offset)


def _scratch_name(node: Node) -> str:
    return f"scratch of {node.label}"
