"""What a trace says about a model and its plan: overlaps of every op, windows of every buffer, and the real peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.tracing.analysis.model import TracedModel, offsets_apart
from diagmem.tracing.analysis.raster import Raster
from diagmem.tracing.analysis.traced_pairs import TracedRow
from diagmem.tracing.analysis.traced_turns import TracedTurn, TracedTurns, gathered, remade_places, traced_turn
from diagmem.tracing.analysis.values import Lost, TracedWindows, lost_values
from diagmem.tracing.capture.events import ALWAYS, NEVER, Recorder, Span
from diagmem.tracing.capture.run import SEEDS, Counts, observe, overlap_of, trace


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
        rows.extend(_renamed(row, node) for row in _rows(model, laid_out, span))

    trace(model.executable, model.contents, take, lambda number: nodes[number].label)
    return rows


def _renamed(row: TracedRow, node: Node) -> TracedRow:
    """The row in terms of the operation that was laid out."""
    return replace(row, node=node, input=node.input(row.position).index, output=node.outputs[row.number].index)


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
                Counts.of(span),
                position,
                number,
                node,
                None if separation is None else max(0, target.span_bytes - separation),
            )


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
    touched = np.zeros(model.program.arena_bytes, dtype=np.bool_)

    def take(span: Span) -> None:
        np.logical_or(touched, (span.first_write != NEVER) | (span.last_read != ALWAYS), out=touched)
        starts.append(span.start)
        ends.append(span.end)

    model.executable.run(contents, Recorder(model.executable.space_bytes, take))
    raster = Raster(model.program.arena_bytes, min(starts, default=0), max(ends, default=0))
    recorder = observe(model.executable, contents, raster.add)
    raster.finish(recorder.values, [model.place(tensor) for tensor in plan.graph.outputs])
    return PlanRun(raster, tuple(ends), int(np.flatnonzero(touched).max(initial=-1)) + 1)
