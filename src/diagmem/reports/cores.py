"""Which core touches which bytes when: addresses across, time down, a row for each phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from diagmem.kernels.rows import RowGraph, row_graph
from diagmem.model.schedule import PUSH, Along, How, Multicore, Phase, Split, Step
from diagmem.planning.cores.multicore import running_steps, step_work
from diagmem.planning.cores.split import BARRIER_INSTRUCTIONS, SharedOp, critical_path
from diagmem.planning.plan import Plan
from diagmem.reports.drawing import Drawing, byte_ticks, clipped, kb, legend, line, rect, short_kb, text

LABELS = 164
WIDTH = 640
HEIGHT = 620
LEAST_OP_PX = 16
LEAST_STEP_PX = 3
LABEL_PX = 13
MOST_STEPS = 130
"""Of a run row by row that are shown."""

CORES = ("made", "t0", "used", "t2")
"""What the parts of the cores look like."""


@dataclass(frozen=True)
class _Sheet:
    plan: Plan
    cores: int

    def across(self, address: float) -> float:
        return LABELS + WIDTH * address / max(1, self.plan.pools.end or self.plan.arena_bytes)

    def block(self, low: float, high: float, top: float, height: float, class_: str) -> str:
        return rect(self.across(low), top, self.across(high) - self.across(low), height, class_)

    @cached_property
    def rows(self) -> RowGraph:
        return row_graph(self.plan.graph, self.plan.options.library)


def cores_drawing(plan: Plan, cores: int = 2, last_op: int | None = None) -> Drawing:
    """The run of a plan on so many cores, up to the op `last_op` of those that run, if not to the end. Of a run row by
    row the first steps, as many as can be seen."""
    shared, sheet = plan.multicore, _Sheet(plan, cores)
    assert shared is not None
    steps = running_steps(plan)
    shown = steps[:MOST_STEPS] if plan.runs_by_rows else steps[: None if last_op is None else last_op + 1]
    heights = _heights([_path(plan, shared, step, cores) for step in shown], plan.runs_by_rows)
    of_all = f", the first {len(shown)} of {len(steps)} steps" if plan.runs_by_rows and len(shown) < len(steps) else ""
    body = [text(LABELS, 22, f"{plan.graph.name} on {cores} cores{of_all}", "title"), *_legend(cores)]
    top = first = 84.0
    labelled = top - LABEL_PX
    for number, (step, height) in enumerate(zip(shown, heights, strict=True)):
        is_next = number == 0 or step.op != shown[number - 1].op
        if is_next and top - labelled >= (LABEL_PX if plan.runs_by_rows else 0):
            body += [
                line(LABELS - 8, top, LABELS + WIDTH, top, "grid"),
                text(LABELS - 8, top + 12, clipped(_label(plan, step), LABELS - 12, 11), "small end"),
            ]
            labelled = top
        body += _op(sheet, step, shared.by_step.get(step), top, height)
        top += height
    body += _axis(sheet, first, top)
    title = f"{plan.graph.name} on {cores} cores in {kb(plan.arena_bytes)}: which core writes which bytes when"
    return Drawing(LABELS + WIDTH + 24, top + 28, "".join(body), title)


def _path(plan: Plan, shared: Multicore, step: Step, cores: int) -> float:
    work, split = step_work(plan.graph, step), shared.by_step.get(step)
    return work + BARRIER_INSTRUCTIONS if split is None else critical_path(split, work, cores)


def _label(plan: Plan, step: Step) -> str:
    if step.op == PUSH:
        return "the caller's row"
    node = plan.graph.nodes[step.op]
    row = "" if step.turn is None else f"[{step.turn}]"
    return f"{node.op.number} {node.op.kind.lower().replace('_', ' ')}{row}"


def _heights(paths: Sequence[float], by_rows: bool) -> list[float]:
    """As the time that steps take, but none too thin to be seen."""
    total, least = sum(paths), LEAST_STEP_PX if by_rows else LEAST_OP_PX
    return [max(least, HEIGHT * path / max(1.0, total)) for path in paths]


def _axis(sheet: _Sheet, top: float, bottom: float) -> Iterator[str]:
    for tick in byte_ticks(sheet.plan.pools.end or sheet.plan.arena_bytes, 8):
        x = sheet.across(tick)
        yield line(x, top - 4, x, top, "axis")
        yield text(x, top - 8, short_kb(tick), "small soft mid")
    end = sheet.across(sheet.plan.pools.end or sheet.plan.arena_bytes)
    yield line(end, top - 6, end, bottom, "limit")


def _legend(cores: int) -> Iterator[str]:
    entries = [(CORES[core % len(CORES)], f"core {core} writes") for core in range(cores)]
    return legend(LABELS, 46, (*entries, ("t3", "still to be read"), ("shared", "held back until all have read")), 16)


def _op(sheet: _Sheet, step: Step, split: Split | None, top: float, height: float) -> Iterator[str]:
    read, written = list(_read(sheet, step)), list(_written(sheet, step))
    if split is None or not written:
        yield from (sheet.block(low, high, top, height, "t3") for low, high in read)
        yield from (sheet.block(low, high, top, height, CORES[0]) for low, high in written)
        return
    phases = list(split.each_phase())
    lengths = [phase.units if phase.how is How.ALONE else phase.units / sheet.cores for phase in phases]
    for phase, length in zip(phases, lengths, strict=True):
        part = height * length / sum(lengths)
        still = read if step.turn is not None else _still_read(sheet, split, phase)
        for low, high in still:
            yield sheet.block(low, high, top, part, "t3")
        yield from _parts(sheet, split, phase, _Band(*written[0], top, part))
        if phase is not phases[-1]:
            yield line(LABELS, top + part, LABELS + WIDTH, top + part, "grid")
        top += part


def _read(sheet: _Sheet, step: Step) -> Iterator[tuple[int, int]]:
    """The bytes of each input, or of each row that a turn reads."""
    plan = sheet.plan
    if step.op == PUSH:
        return
    if step.turn is not None:
        for need in sheet.rows.ops[step.op].needs:
            rows = plan.row_offsets[need.tensor]
            for row in range(need.first[step.turn], need.end[step.turn]):
                yield rows[row], rows[row] + plan.graph.tensors[need.tensor].row_bytes
        return
    for tensor in {t.index: t for _, t in plan.graph.nodes[step.op].activations()}.values():
        if tensor.index in plan.offsets:
            yield plan.offsets[tensor.index], plan.offsets[tensor.index] + tensor.span_bytes


def _written(sheet: _Sheet, step: Step) -> Iterator[tuple[int, int]]:
    """The bytes of each output, or of the row that a turn makes."""
    plan = sheet.plan
    if step.turn is None:
        for tensor in plan.graph.nodes[step.op].outputs:
            if tensor.index in plan.offsets:
                yield plan.offsets[tensor.index], plan.offsets[tensor.index] + tensor.span_bytes
        return
    pushed = [(plan.graph.inputs[0], step.turn)] if step.op == PUSH else []
    made = () if step.op == PUSH else sheet.rows.ops[step.op].makes_at(step.turn) or ()
    for index, row in pushed or ((t.index, row) for t in plan.graph.nodes[step.op].outputs for row in made):
        start = plan.row_offsets[index][row]
        yield start, start + plan.graph.tensors[index].row_bytes


def _still_read(sheet: _Sheet, split: Split, phase: Phase) -> Iterator[tuple[int, int]]:
    """Of each input the bytes that are read in the phase, or later."""
    node = sheet.plan.graph.nodes[split.op]
    op = SharedOp(sheet.plan, node, sheet.cores)
    near = {near.tensor.index: near for near in op.near}
    for _, tensor in node.activations():
        if tensor.index in sheet.plan.offsets:
            start = sheet.plan.offsets[tensor.index]
            low = start
            if tensor.index in near and split.cut.along is not Along.CHANNELS:
                low = int(op.pair(split.cut, near[tensor.index]).in_first[phase.first])
            if low < start + tensor.span_bytes:
                yield low, start + tensor.span_bytes


class _Band(NamedTuple):
    """Bytes [low, high) that are made, and where on the sheet."""

    low: int
    high: int
    top: float
    height: float


def _parts(sheet: _Sheet, split: Split, phase: Phase, made: _Band) -> Iterator[str]:
    """What each core writes: its stretch; of channels, which lie all over, a stripe."""
    start, size, units = made.low, made.high - made.low, split.cut.units
    if split.cut.along is Along.CHANNELS:
        for core in range(sheet.cores):
            stripe = made.height / sheet.cores
            yield sheet.block(start, start + size, made.top + core * stripe, stripe, CORES[core % len(CORES)])
        return
    cores = 1 if phase.how is How.ALONE else sheet.cores
    for core in range(cores):
        low, high = (phase.first + phase.units * part // cores for part in (core, core + 1))
        left, right = start + size * low // units, start + size * high // units
        yield sheet.block(left, right, made.top, made.height, CORES[core % len(CORES)])
        if phase.how is How.HELD:
            yield sheet.block(left, right, made.top, made.height, "shared")
