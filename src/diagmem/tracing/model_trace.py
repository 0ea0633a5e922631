"""What a trace says about a model and its plan: overlaps of every op, windows of every buffer, and the real peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagmem.graph import IntArray, Node
from diagmem.kernels import library
from diagmem.plans import Plan
from diagmem.tracing.events import ALWAYS, NEVER, Recorder, Span
from diagmem.tracing.model import TracedModel
from diagmem.tracing.raster import Raster
from diagmem.tracing.rows import TracedRow
from diagmem.tracing.run import SEEDS, Counts, observe, overlap_of, trace

KERNELS = "diagmem"


@dataclass(frozen=True, slots=True)
class Lost:
    """An address at which two buffers of a plan, by what was traced, hold values at once."""

    first: str
    second: str
    byte: int

    def __str__(self) -> str:
        return f"'{self.first}' and '{self.second}' are both in use at byte {self.byte} of the arena"


@dataclass(frozen=True, slots=True)
class Pair:
    """An op's input and output that share addresses in a plan. The input starts `distance` bytes above the output;
    `separation` bytes, by what was traced, is the least that is safe at any larger distance too."""

    op: int
    input: int
    output: int
    separation: int
    distance: int


@dataclass(frozen=True, slots=True)
class ModelTrace:
    """`pairs`: those that overlap in the plan. `lost`: where the plan, by what was traced, destroys a value."""

    rows: tuple[TracedRow, ...]
    pairs: tuple[Pair, ...]
    lost: tuple[Lost, ...]


def trace_ops(model: TracedModel, nodes: Sequence[Node]) -> list[TracedRow]:
    """The rows of operations that were laid out side by side."""
    rows: list[TracedRow] = []
    left = iter(zip(model.layout.nodes, nodes, strict=True))

    def take(span: Span) -> None:
        laid_out, node = next(left)
        rows.extend(_renamed(row, node) for row in _rows(model, laid_out, span))

    trace(model.program, model.contents, take, lambda number: nodes[number].label)
    return rows


def _renamed(row: TracedRow, node: Node) -> TracedRow:
    """The row in terms of the operation that was laid out."""
    return replace(row, node=node, input=node.input(row.position).index, output=node.outputs[row.number].index)


def trace_plan(model: TracedModel, plan: Plan) -> ModelTrace:
    """The rows of every op that runs, and the plan checked. `model`: the plan's buffers apart."""
    rows: list[TracedRow] = []
    windows = _Windows(model.layout.arena_bytes)
    nodes = model.layout.nodes
    left = iter(nodes)

    def take(span: Span) -> None:
        node = next(left)
        windows.add(span)
        if model.layout.calls[node.op.index] is not None:
            rows.extend(_rows(model, node, span))

    trace(model.program, model.contents, take, lambda number: nodes[number].label)
    windows.fill(model, plan)
    return ModelTrace(tuple(rows), tuple(_pairs(plan, rows)), tuple(_lost(plan, model, windows)))


def _pairs(plan: Plan, rows: Sequence[TracedRow]) -> Iterator[Pair]:
    shared = {(overlap.op, overlap.input, overlap.output) for overlap in plan.overlaps}
    for row in rows:
        op = -1 if row.node is None else row.node.op.index
        if (op, row.input, row.output) in shared:
            distance = plan.offsets[row.input] - plan.offsets[row.output]
            yield Pair(op, row.input, row.output, row.output_bytes - row.overlap.monotone, distance)


def _rows(model: TracedModel, node: Node, span: Span) -> Iterator[TracedRow]:
    for position, source in node.activations():
        for number, target in enumerate(node.outputs):
            if source.base == target.base:
                continue
            separation = library(KERNELS).separation(node, position, number)
            yield TracedRow(
                node.op.kind,
                source.index,
                target.index,
                source.span_bytes,
                target.span_bytes,
                overlap_of(span, model.place(source.index), model.place(target.index)),
                Counts.of(span),
                position,
                number,
                node,
                None if separation is None else max(0, target.span_bytes - separation),
            )


class _Windows:
    """For each byte of the traced space, when it is first written and when last used, over a whole run."""

    def __init__(self, space_bytes: int) -> None:
        self.begin = np.full(space_bytes, NEVER, dtype=np.int64)
        self.end = np.full(space_bytes, ALWAYS, dtype=np.int64)

    def add(self, span: Span) -> None:
        np.minimum(self.begin, span.first_write, out=self.begin)
        np.maximum(self.end, span.last_read, out=self.end)
        # A value that nobody reads still destroys what was there.
        np.maximum(self.end, np.where(span.first_write == NEVER, ALWAYS, span.first_write), out=self.end)

    def fill(self, model: TracedModel, plan: Plan) -> None:
        """The caller writes inputs before the run and reads outputs after it."""
        for tensor in plan.graph.inputs:
            self.begin[_slice(model.place(tensor))] = ALWAYS
        for tensor in (*plan.graph.outputs, *(plan.graph.inputs if plan.options.keep_inputs else ())):
            self.end[_slice(model.place(tensor))] = NEVER


def _slice(place: range) -> slice:
    return slice(place.start, place.stop)


def _lost(plan: Plan, model: TracedModel, windows: _Windows) -> Iterator[Lost]:
    """Pairs of buffers that share an address while both hold values there."""
    placed = [
        (buffer, offset, model.place(buffer.tensors[0]).start)
        for buffer, offset in zip(plan.buffers, plan.buffer_offsets, strict=True)
        if buffer.tensors
    ]

    def window(times: IntArray, own: tuple[int, int], low: int, high: int) -> IntArray:
        offset, apart = own
        return times[apart + low - offset : apart + high - offset]

    for number, (first, *a) in enumerate(placed):
        for second, *b in placed[:number]:
            low, high = max(a[0], b[0]), min(a[0] + first.size_bytes, b[0] + second.size_bytes)
            if low >= high:
                continue
            own, other = (a[0], a[1]), (b[0], b[1])
            clash = window(windows.begin, own, low, high) < window(windows.end, other, low, high)
            clash &= window(windows.begin, other, low, high) < window(windows.end, own, low, high)
            if clash.any():
                yield Lost(first.name, second.name, low + int(clash.argmax()))


@dataclass(frozen=True, slots=True)
class PlanRun:
    """A plan as it really ran. `peak_bytes`: the end of the highest byte touched. `op_ends`: in instructions."""

    raster: Raster
    op_ends: tuple[int, ...]
    peak_bytes: int


def run_plan(model: TracedModel, plan: Plan) -> PlanRun:
    """Runs a plan's own layout: once to know how long it takes, once to look."""
    starts: list[int] = []
    ends: list[int] = []
    contents = model.contents(SEEDS[0])
    touched = np.zeros(model.layout.arena_bytes, dtype=np.bool_)

    def take(span: Span) -> None:
        np.logical_or(touched, (span.first_write != NEVER) | (span.last_read != ALWAYS), out=touched)
        starts.append(span.start)
        ends.append(span.end)

    model.program.run(contents, Recorder(model.program.space_bytes, take))
    raster = Raster(model.layout.arena_bytes, min(starts, default=0), max(ends, default=0))
    recorder = observe(model.program, contents, raster.add)
    raster.finish(recorder.values, [model.place(tensor) for tensor in plan.graph.outputs])
    return PlanRun(raster, tuple(ends), int(np.flatnonzero(touched).max(initial=-1)) + 1)
