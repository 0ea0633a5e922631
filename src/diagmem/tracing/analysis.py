"""What a trace says about operations, their rows, and a plan: overlaps, live windows, the real peak, and the grid of
cells that a picture of the run is painted from."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.backends.c.program import Program
from diagmem.kernels import signature
from diagmem.model.graph import IntArray, Node
from diagmem.model.schedule import PUSH, Step
from diagmem.planning.plan import Plan
from diagmem.tracing.calls import Role
from diagmem.tracing.model import TracedModel, offsets_apart
from diagmem.tracing.recording import (
    ALWAYS,
    NEVER,
    SEEDS,
    CallTrace,
    Counts,
    Flags,
    Kind,
    Recorder,
    Span,
    TouchedBytes,
    TracedOverlap,
    Value,
    observe,
    overlap_of,
    trace,
    traced_separation,
)


@dataclass(frozen=True, slots=True)
class TracedRow:
    """`input` and `output` are the model's tensors, or count the call's buffers where it belongs to no model. `node`:
    the operation that was computed, if known; only then can a planner use the row. `exact`: by closed form."""

    kind: str
    input: int
    output: int
    input_bytes: int
    output_bytes: int
    overlap: TracedOverlap
    counts: Counts
    position: int
    number: int
    node: Node | None = None
    exact: int | None = None
    scratch_bytes: int = 0

    @property
    def agrees(self) -> bool:
        """Whether closed form and trace say the same, if there are both. An operation that loads nothing (ARG_MAX along
        an axis of one element) has no limit, whatever the closed form says of its loads."""
        if self.exact is None or self.exact == self.overlap.monotone:
            return True
        return not self.counts.loads and self.exact < self.overlap.monotone

    def to_json(self) -> dict[str, Any]:
        return {
            "op": None if self.node is None else self.node.op.number,
            "kind": self.kind,
            "input": self.input,
            "output": self.output,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "exact": self.exact,
            "algorithmic": None,
            "analytical": None,
            "paper": None,
            "traced": self.overlap.monotone,
            "traced_largest": self.overlap.largest,
            **self.counts.to_json(),
            "scratch_bytes": self.scratch_bytes,
            "position": self.position,
            "number": self.number,
            "signature": None if self.node is None else signature(self.node),
        }


def call_rows(trace: CallTrace, node: Node | None) -> list[TracedRow]:
    """The rows of a traced call. `node`: the operation that it computes; inputs and outputs in the same order."""
    call = trace.call
    sources, targets = call.places(Role.INPUT), call.places(Role.OUTPUT)
    activations = list(node.activations()) if node else []
    return [
        TracedRow(
            node.op.kind if node else call.function,
            activations[i][1].index if node else i,
            node.outputs[o].index if node else o,
            len(source),
            len(target),
            trace.overlaps[i][o],
            trace.counts,
            activations[i][0] if node else i,
            o,
            node,
            scratch_bytes=sum(len(place) for place in call.places(Role.SCRATCH)),
        )
        for i, source in enumerate(sources)
        for o, target in enumerate(targets)
    ]


class RowRead(NamedTuple):
    """A row that is read while another one is made: separation(row made below, this row above) in bytes, by closed form
    and as traced. `is_loaded`: whether the compiled code reads it at all."""

    tensor: int
    row: int
    exact: int
    traced: int
    is_loaded: bool

    @property
    def agrees(self) -> bool:
        """Code that does without a row (softmax over a single channel) sets no limit, whatever the closed form says."""
        return self.exact == self.traced or (not self.is_loaded and self.exact > self.traced)


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """One turn of an op. `made`: the row that it computes. `reads`: the rows that it may overlap."""

    node: Node
    made: int
    counts: Counts
    reads: tuple[RowRead, ...]


@dataclass(frozen=True, slots=True)
class TracedTurns:
    """All turns of an op. `pairs`: how many times a row is read while another one is made; for `differing` of these
    closed form and trace say different things."""

    node: Node
    turns: int
    pairs: int
    differing: int
    counts: Counts

    @classmethod
    def of(cls, turns: Sequence[TracedTurn]) -> TracedTurns:
        reads = [read for turn in turns for read in turn.reads]
        total = [sum(column) for column in zip(*(turn.counts.to_json().values() for turn in turns), strict=True)]
        return cls(turns[0].node, len(turns), len(reads), sum(not read.agrees for read in reads), Counts(0, *total))

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.node.op.number,
            "kind": self.node.op.kind,
            "output": self.node.output.index,
            "turns": self.turns,
            "pairs": self.pairs,
            "differing": self.differing,
            **self.counts.to_json(),
        }


def traced_turn(program: Program, step: Step, span: Span) -> TracedTurn:
    """`program`: every row in a place of its own."""
    op, node, turn = program.rows.ops[step.op], program.graph.nodes[step.op], step.turn or 0
    made = (op.makes_at(turn) or range(0)) if op.makes_rows else range(0)
    reads = []
    for out in made:
        written = span.first_write[_place(program, op.makes[0], out)]
        for need in op.needs:
            for row, exact in enumerate(need.apart[turn], need.first[turn]):
                read = span.last_read[_place(program, need.tensor, row)]
                is_loaded = bool((read != ALWAYS).any())
                reads.append(RowRead(need.tensor, row, exact, traced_separation(written, read), is_loaded))
    return TracedTurn(node, turn, span.counts, tuple(reads))


def _place(program: Program, tensor: int, row: int) -> slice:
    """Where a row lies in the traced space."""
    begin = program.how_rows_lie(tensor).offsets[row]
    return slice(begin, begin + program.graph.tensors[tensor].row_span_bytes)


def remade_places(program: Program, step: Step) -> Iterator[slice]:
    """The places of the rows that the step computes, perhaps again."""
    op = program.rows.ops[step.op]
    if step.turn is not None and op.makes_rows:
        yield from (_place(program, tensor, step.turn) for tensor in op.makes)


def gathered(turns: Sequence[TracedTurn]) -> tuple[TracedTurns, ...]:
    """By op, in the model's order."""
    found: dict[int, list[TracedTurn]] = {}
    for turn in turns:
        found.setdefault(turn.node.op.index, []).append(turn)
    return tuple(TracedTurns.of(found[op]) for op in sorted(found))


@dataclass(frozen=True, slots=True)
class Lost:
    """An address at which, by the trace, two buffers of a plan hold values at once."""

    first: str
    second: str
    byte: int

    def __str__(self) -> str:
        return f"'{self.first}' and '{self.second}' are both in use at byte {self.byte} of the arena"


class _Lives(NamedTuple):
    """For some bytes of the traced space: when each is written, and when last used."""

    byte: IntArray
    begin: IntArray
    end: IntArray


class TracedWindows:
    """For each byte of the traced space, when it is first written and last used, over a whole run; a byte that is
    recomputed lives again."""

    def __init__(self, space_bytes: int) -> None:
        self._begin = np.full(space_bytes, NEVER, dtype=np.int64)
        self._end = np.full(space_bytes, ALWAYS, dtype=np.int64)
        self._ended: list[_Lives] = []

    def add(self, span: Span) -> None:
        written, read = np.flatnonzero(span.first_write != NEVER), np.flatnonzero(span.last_read != ALWAYS)
        self._begin[written] = np.minimum(self._begin[written], span.first_write[written])
        self._end[read] = np.maximum(self._end[read], span.last_read[read])
        # A value that is never read still destroys what was there.
        self._end[written] = np.maximum(self._end[written], span.first_write[written])

    def end_lives(self, places: Iterable[slice]) -> None:
        """The values there are about to be recomputed."""
        for place in places:
            byte = np.arange(place.start, place.stop)
            self._ended.append(_Lives(byte, self._begin[byte], self._end[byte]))
            self._begin[byte], self._end[byte] = NEVER, ALWAYS

    def begin_early(self, place: range) -> None:
        """Something is there before the run."""
        self._begin[place.start : place.stop] = ALWAYS

    def end_late(self, place: range) -> None:
        """It is needed after the run."""
        self._end[place.start : place.stop] = NEVER

    def lives(self) -> _Lives:
        """All of them, except for bytes that are never used."""
        last = _Lives(np.arange(len(self._begin)), self._begin, self._end)
        byte, begin, end = (np.concatenate(column) for column in zip(*self._ended, last, strict=True))
        used = (begin != NEVER) & (end != ALWAYS)
        return _Lives(byte[used], begin[used], end[used])


def lost_values(plan: Plan, apart: Sequence[int], windows: TracedWindows) -> Iterator[Lost]:
    """Pairs of buffers that share an address while both hold values there, with the first such address of each.
    `apart`: where each of the plan's buffers was traced, ascending, and the end of the last one."""
    byte, begin, end = windows.lives()
    buffer = np.searchsorted(np.array(apart), byte, side="right") - 1
    address = byte + (np.array(plan.buffer_offsets, dtype=np.int64) - np.array(apart[:-1], dtype=np.int64))[buffer]
    order = np.lexsort((begin, address))
    buffer, address, begin, end = buffer[order], address[order], begin[order], end[order]
    # At one address by the time of their beginning, lives are apart if each has ended when the next one begins.
    clash = (address[1:] == address[:-1]) & (begin[1:] < end[:-1]) & (buffer[1:] != buffer[:-1])
    found: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(clash).tolist():
        found.setdefault((int(buffer[at]), int(buffer[at + 1])), int(address[at]))
    for (first, second), lowest in found.items():
        yield Lost(plan.buffers[first].name, plan.buffers[second].name, lowest)


class Cell(enum.IntEnum):
    """What happened in a cell."""

    NOTHING = 0
    IN_USE = 1
    LOADED = 2
    STORED = 3
    UPDATED = 4


class Raster:
    """Cells of a run in [start, end) instructions over `space_bytes`. A cell knows whether anything in it was loaded,
    stored or updated, and whether any of its bytes was in use: held a value that is read later."""

    def __init__(self, space_bytes: int, start: int, end: int, columns: int = 1000, rows: int = 480) -> None:
        self.space_bytes, self.start, self.end = space_bytes, start, max(end, start + 1)
        self.columns, self.rows = min(columns, self.end - start), min(rows, space_bytes)
        shape = self.rows, self.columns
        self.loaded, self.stored, self.updated = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        self._uses = np.zeros((self.rows, self.columns + 1), dtype=np.int64)

    def add(self, touches: TouchedBytes) -> None:
        """Marks touches, and how long the values that they replaced were in use."""
        kind = touches.events["kind"][touches.event]
        column = self._column(touches.events["time"].astype(np.int64))[touches.event]
        row = self._row(touches.byte)
        updates = touches.is_update[touches.event]
        for grid, chosen in (
            (self.loaded, kind == Kind.LOAD),
            (self.stored, (kind == Kind.STORE) & ~updates),
            (self.updated, updates),
        ):
            grid[row[chosen], column[chosen]] = True
        self._use(touches.dead_byte, touches.dead_birth, touches.dead_last_read)

    def finish(self, values: Value, kept: Iterable[range]) -> None:
        """The run is over: `values` is what the bytes hold now, `kept` the bytes that the caller reads."""
        until = values.last_read.copy()
        for place in kept:
            until[place.start : place.stop] = self.end - 1
        byte = np.flatnonzero((until != ALWAYS) & (until >= values.birth))
        self._use(byte, values.birth[byte], until[byte])

    @property
    def in_use(self) -> Flags:
        return np.cumsum(self._uses, axis=1)[:, :-1] > 0

    @property
    def cells(self) -> npt.NDArray[np.uint8]:
        """For each cell its most telling `Cell`, the lowest offsets first."""
        found = np.zeros((self.rows, self.columns), dtype=np.uint8)
        for cell, grid in (
            (Cell.IN_USE, self.in_use),
            (Cell.LOADED, self.loaded),
            (Cell.STORED, self.stored),
            (Cell.UPDATED, self.updated),
        ):
            found[grid] = cell
        return found

    def _use(self, byte: IntArray, birth: IntArray, last_read: IntArray) -> None:
        row = self._row(byte)
        np.add.at(self._uses, (row, self._column(birth)), 1)
        np.add.at(self._uses, (row, self._column(last_read) + 1), -1)

    def _column(self, time: IntArray) -> IntArray:
        return np.clip((time - self.start) * self.columns // (self.end - self.start), 0, self.columns - 1)

    def _row(self, byte: IntArray) -> IntArray:
        return byte * self.rows // self.space_bytes


@dataclass(frozen=True, slots=True)
class SharingPair:
    """An op's input and output, or a row of each, that share addresses in a plan. The input starts `distance` bytes
    above the output; `separation` bytes, by what was traced, is the least that is safe at any larger distance too.
    `turn`: the row that is made, of the row `row`; None where all is made at once."""

    op: int
    input: int
    output: int
    separation: int
    distance: int
    turn: int | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True)
class ModelTrace:
    """`rows`: of the ops that run whole; `turns`: of those that run a row at a time. `pairs`: those that overlap in the
    plan. `lost`: where the plan, by what was traced, destroys a value."""

    rows: tuple[TracedRow, ...]
    turns: tuple[TracedTurns, ...]
    pairs: tuple[SharingPair, ...]
    lost: tuple[Lost, ...]


def trace_ops(model: TracedModel, nodes: Sequence[Node]) -> list[TracedRow]:
    """The rows of operations that were laid out side by side."""
    rows: list[TracedRow] = []
    left = iter(zip(model.program.nodes, nodes, strict=True))

    def take(span: Span) -> None:
        laid_out, node = next(left)
        for row in _rows(model, laid_out, span):
            # In terms of the operation that was laid out.
            source, target = node.input(row.position).index, node.outputs[row.number].index
            rows.append(replace(row, node=node, input=source, output=target))

    trace(model.executable, model.contents, take, lambda number: nodes[number].label)
    return rows


def trace_plan(model: TracedModel, plan: Plan) -> ModelTrace:
    """What every op that runs does, and the plan checked. `model`: the plan's buffers apart."""
    rows: list[TracedRow] = []
    turns: list[TracedTurn] = []
    windows = TracedWindows(model.program.arena_bytes)
    left = iter(model.steps)

    def take(span: Span) -> None:
        step = next(left)
        is_known = step.op != PUSH and model.program.calls[step.op] is not None
        if step.turn is not None:
            windows.end_lives(remade_places(model.program, step))
            turns.append(traced_turn(model.program, step, span))
        elif is_known:
            rows.extend(_rows(model, model.program.graph.nodes[step.op], span))
        windows.add(span)

    trace(model.executable, model.contents, take, model.label)
    _fill(windows, model, plan)
    pairs = (*_pairs(plan, rows), *_row_pairs(plan, turns))
    return ModelTrace(tuple(rows), gathered(turns), pairs, tuple(lost_values(plan, offsets_apart(plan), windows)))


def _fill(windows: TracedWindows, model: TracedModel, plan: Plan) -> None:
    """The caller writes inputs before the run and reads outputs after it; the state of a run that waits for it is there
    all the time."""
    for tensor in () if model.program.input_rows else plan.graph.inputs:
        windows.begin_early(model.place(tensor))
    for tensor in (*plan.graph.outputs, *(plan.graph.inputs if plan.options.keep_inputs else ())):
        windows.end_late(model.place(tensor))
    if model.program.input_rows:
        begin = model.program.scratch[PUSH]
        state = range(begin, begin + model.program.state.size_bytes)
        windows.begin_early(state)
        windows.end_late(state)


def _pairs(plan: Plan, rows: Sequence[TracedRow]) -> Iterator[SharingPair]:
    shared = {(overlap.op, overlap.input, overlap.output) for overlap in plan.overlaps}
    for row in rows:
        op = -1 if row.node is None else row.node.op.index
        if (op, row.input, row.output) in shared:
            distance = plan.offsets[row.input] - plan.offsets[row.output]
            yield SharingPair(op, row.input, row.output, row.output_bytes - row.overlap.monotone, distance)


def _row_pairs(plan: Plan, turns: Sequence[TracedTurn]) -> Iterator[SharingPair]:
    for turn in turns:
        output, made = turn.node.output, turn.made
        for read in turn.reads:
            tensor = plan.graph.tensors[read.tensor]
            distance = plan.row_offsets[read.tensor][read.row] - plan.row_offsets[output.index][made]
            if -tensor.row_bytes < distance < output.row_bytes:
                yield SharingPair(turn.node.op.index, read.tensor, output.index, read.traced, distance, made, read.row)


def _rows(model: TracedModel, node: Node, span: Span) -> Iterator[TracedRow]:
    for position, source in node.activations():
        for number, target in enumerate(node.outputs):
            if source.base == target.base:
                continue
            separation = model.program.library.separation(node, position, number)
            yield TracedRow(
                node.op.kind,
                source.index,
                target.index,
                source.span_bytes,
                target.span_bytes,
                overlap_of(span, model.place(source.index), model.place(target.index)),
                span.counts,
                position,
                number,
                node,
                None if separation is None else max(0, target.span_bytes - separation),
            )


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan as it ran. `peak_bytes`: the end of the highest byte touched. `op_ends`: in instructions."""

    raster: Raster
    op_ends: tuple[int, ...]
    peak_bytes: int


def run_plan(model: TracedModel, plan: Plan) -> PlanRun:
    """Runs a plan's own layout twice: the first run tells how long the picture must be."""
    starts: list[int] = []
    ends: list[int] = []
    contents = model.contents(SEEDS[0])
    touched = np.zeros(model.program.arena_bytes, dtype=np.bool_)

    def take(span: Span) -> None:
        np.logical_or(touched, (span.first_write != NEVER) | (span.last_read != ALWAYS), out=touched)
        starts.append(span.counts.start)
        ends.append(span.counts.end)

    model.executable.run(contents, Recorder(model.executable.space_bytes, take))
    raster = Raster(model.program.arena_bytes, min(starts, default=0), max(ends, default=0))
    recorder = observe(model.executable, contents, raster.add)
    raster.finish(recorder.values, [model.place(tensor) for tensor in plan.graph.outputs])
    return PlanRun(raster, tuple(ends), int(np.flatnonzero(touched).max(initial=-1)) + 1)
