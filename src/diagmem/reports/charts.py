"""Charts: live bytes over time, how separation arises, what less memory costs, and which core touches what when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from diagmem.kernels import Library
from diagmem.kernels.overlaps import overlaps
from diagmem.kernels.rows import RowGraph, row_graph
from diagmem.model.graph import Node, Tensor
from diagmem.model.schedule import PUSH, Along, How, Multicore, Phase, Split, Step
from diagmem.planning.cores.multicore import running_steps, step_work
from diagmem.planning.cores.split import BARRIER_INSTRUCTIONS, SharedOp, critical_path
from diagmem.planning.plan import Plan
from diagmem.reports.blocks import Front, Picture, fronts
from diagmem.reports.drawing import (
    KB,
    Axes,
    Drawing,
    byte_ticks,
    clipped,
    kb,
    legend,
    line,
    path,
    plain,
    rect,
    short_kb,
    tag,
    text,
)


def live_drawing(before: Plan, after: Plan, width: float = 760, height: float = 260) -> Drawing:
    """For each step: bytes of all live tensors kept whole (before), and what is left of them with overlap (after). A
    run row by row has many more steps than one layer by layer: then both are drawn over the work that is done."""
    whole, least, by_work = Picture(before).live, after.pressure, after.runs_by_rows
    begins = [_begins(plan, by_work) for plan in (before, after)]
    limit = max([before.arena_bytes, after.arena_bytes, *whole, 1])
    axes = Axes(76, 64, width, height, max(1, *(at[-1] for at in begins)), 1.08 * limit)
    title = f"Live bytes of {after.graph.name} {'over the run' if by_work else 'at each step'}"
    x_label = "percent of the run, by estimated instructions" if by_work else "step"
    body = [
        text(axes.left, 22, title, "title"),
        *axes.frame(x_label, "bytes", y_words=short_kb, y_unit=KB if limit >= 2 * KB else 1),
        tag("path", d=path(_steps(axes, begins[0], whole), close=True), class_="area"),
        tag("path", d=path(_steps(axes, begins[1], least), close=True), class_="area2"),
        line(axes.left, axes.y(before.arena_bytes), axes.right, axes.y(before.arena_bytes), "ghost"),
        line(axes.left, axes.y(after.arena_bytes), axes.right, axes.y(after.arena_bytes), "limit"),
        text(axes.right, axes.y(before.arena_bytes) - 5, f"arena before {kb(before.arena_bytes)}", "small soft end"),
        text(axes.right, axes.y(after.arena_bytes) - 5, _after_words(after), "small limit-text end"),
        *legend(axes.left, 46, (("area", "whole tensors"), ("area2", "lower bound with overlap"))),
    ]
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def _after_words(after: Plan) -> str:
    words = f"arena after {kb(after.arena_bytes)}"
    return f"{words}, proven optimal" if after.optimal else f"{words}, bound {kb(after.lower_bound_bytes)}"


def _begins(plan: Plan, by_work: bool) -> list[float]:
    """Where each step begins, and the last one ends: by its number, or in percent of the run's work."""
    steps = plan.schedule.steps
    if not by_work:
        return [*range(len(steps) + 1)]
    done = [0.0, *accumulate(step_work(plan.graph, step) for step in steps)]
    return [100 * work / max(1.0, done[-1]) for work in done]


def _steps(axes: Axes, begins: Sequence[float], values: Sequence[int]) -> list[tuple[float, float]]:
    spans = zip(pairwise(begins), values, strict=False)
    corners = [(axes.x(side), axes.y(value)) for span, value in spans for side in span]
    return [(axes.left, axes.bottom), *corners, (axes.x(begins[-1]), axes.bottom)]


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    top: float
    px_per_byte: float
    height: float

    def x(self, offset: float) -> float:
        return self.left + offset * self.px_per_byte

    def y(self, done: float) -> float:
        return self.top + self.height * done


def separation_drawing(node: Node, library: Library, width: float = 640, height: float = 260) -> Drawing | None:
    """For an operation with one input in RAM, its output below and its input as close above as is safe; addresses
    across, time down. None where the library's loops are not known."""
    found, overlap = fronts(node, library, samples=4096, tolerance=None), next(overlaps(node, library, ("exact",)))
    needed = next((front for front in found.needed if front), None) if found else None
    if found is None or needed is None or overlap.exact is None:
        return None
    written, out_bytes, in_bytes = found.written[0], overlap.output.size_bytes, overlap.input.size_bytes
    apart = out_bytes - overlap.exact
    scale = _Scale(40, 92, width / (apart + in_bytes), height)
    middle = scale.y(0.5)
    rotated = f"rotate(90 {scale.left - 12:g} {middle:g})"
    body = [
        *_window(scale, "made", 0, out_bytes, [*_stairs(written), (1, 0)]),
        *_window(scale, "used", apart, in_bytes, [*_stairs(needed), (0, in_bytes)]),
        *_meeting(scale, written, needed, apart),
        rect(scale.x(apart), scale.top, scale.x(out_bytes) - scale.x(apart), height, "shared"),
        *_span(scale.x(0), scale.x(out_bytes), scale.top - 44, "output", "curve2"),
        *_span(scale.x(apart), scale.x(apart + in_bytes), scale.top - 14, "input", "curve3"),
        *_span(scale.x(0), scale.x(apart), scale.y(1) + 34, "separation", "limit"),
        *_span(scale.x(apart), scale.x(out_bytes), scale.y(1) + 34, "safe overlap O_s", "save-line"),
        text(scale.left, scale.y(1) + 66, "addresses →", "small soft"),
        text(scale.left - 12, middle, "time →", "small soft mid", transform=rotated),
    ]
    title = "Output and input of an operation in time: their live windows touch, and never meet"
    return Drawing(scale.x(apart + in_bytes) + 40, scale.y(1) + 80, "".join(body), title)


def _stairs(front: Front) -> list[tuple[float, int]]:
    """A front does not slope, it jumps at the end of each step: what the step reads it reads before it writes."""
    corners: list[tuple[float, int]] = [front[0]]
    for (_, before), (done, after) in pairwise(front):
        corners += [(done, before), (done, after)]
    return corners


def _window(scale: _Scale, class_: str, start: int, size_bytes: int, outline: list[tuple[float, int]]) -> Iterator[str]:
    points = [(scale.x(start + at), scale.y(done)) for done, at in outline]
    yield rect(scale.x(start), scale.top, scale.x(size_bytes) - scale.x(0), scale.height, f"{class_} alloc")
    yield tag("path", d=path(points, close=True), class_=f"{class_} live")


def _meeting(scale: _Scale, written: Front, needed: Front, apart: int) -> Iterator[str]:
    """Where the windows touch, for the first time."""
    for (done, end), (_, start) in zip(written, needed, strict=True):
        if end == apart + start:
            yield tag("circle", cx=scale.x(end), cy=scale.y(done), r=8, class_="ring")
            return


def _span(x: float, end: float, y: float, words: str, class_: str) -> Iterator[str]:
    """A dimension line with its name above it."""
    yield line(x, y, end, y, class_)
    for side in (x, end):
        yield line(side, y - 5, side, y + 5, class_)
    yield text((x + end) / 2, y - 7, words, "small mid")


RADIUS = 6


@dataclass(frozen=True, slots=True)
class Point:
    """A plan: how many times the multiply-accumulates it does, what its arena takes, and in a few words how it runs."""

    work: float
    arena_bytes: int
    words: str


def front_drawing(points: Sequence[Point], width: float = 320, height: float = 170) -> Drawing:
    """The points from left to right, with a line through them: below it there is no plan."""
    most = max((point.work for point in points), default=1.0)
    sizes = [point.arena_bytes for point in points] or [0]
    limit = max(1, *sizes)
    # Work starts at once the network's: a scale from 0 would show nothing of what is added.
    axes = Axes(70, 16, width, height, max(0.05, most - 1) * 1.06, 1.1 * limit)
    places = [axes.at((point.work - 1, point.arena_bytes)) for point in points]
    body = [
        *axes.frame(
            "times the multiply-accumulates",
            "arena",
            x_words=lambda more: f"{1 + more:g}",
            y_words=short_kb,
            y_unit=KB if limit >= 2 * KB else 1,
            x_unit=0.01,
        ),
        *(_stair(before, after) for before, after in pairwise(places)),
        *(_point(number, point, place) for number, (point, place) in enumerate(zip(points, places, strict=True))),
    ]
    title = f"What less memory costs in work: {len(points)} plans, from {kb(max(sizes))} to {kb(min(sizes))}"
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def _stair(before: tuple[float, float], after: tuple[float, float]) -> str:
    """More work is of no use until it is enough for the next plan."""
    return line(*before, after[0], before[1], "curve") + line(after[0], before[1], *after, "curve")


def _point(number: int, point: Point, place: tuple[float, float]) -> str:
    words = f"{kb(point.arena_bytes)} at {point.work:.2f} times the work: {point.words}"
    mark = tag("circle", cx=place[0], cy=place[1], r=RADIUS, class_="made")
    beside = text(place[0] + 10, place[1] - 8, kb(point.arena_bytes), "small")
    return tag("g", tag("title", plain(words)), mark, beside, class_="point", data_point=number)


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
class _CoreSheet:
    plan: Plan
    cores: int

    def across(self, address: float) -> float:
        return LABELS + WIDTH * address / max(1, self.plan.end_bytes)

    def block(self, low: float, high: float, top: float, height: float, class_: str) -> str:
        return rect(self.across(low), top, self.across(high) - self.across(low), height, class_)

    @cached_property
    def rows(self) -> RowGraph:
        return row_graph(self.plan.graph, self.plan.options.library)

    def wholes(self, tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
        """The bytes of each tensor that has a place."""
        offsets, spans = self.plan.offsets, {tensor.index: tensor.span_bytes for tensor in tensors}
        return [(offsets[index], offsets[index] + span) for index, span in spans.items() if index in offsets]

    def row(self, tensor: int, row: int) -> tuple[int, int]:
        start = self.plan.row_offsets[tensor][row]
        return start, start + self.plan.graph.tensors[tensor].row_bytes


def cores_drawing(plan: Plan, cores: int = 2, last_op: int | None = None) -> Drawing:
    """The run of a plan on so many cores, up to the op `last_op` of those that run, if not to the end. Of a run row by
    row the first steps, as many as can be seen."""
    shared, sheet = plan.multicore, _CoreSheet(plan, cores)
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
    return [max(least, HEIGHT * work / max(1.0, total)) for work in paths]


def _axis(sheet: _CoreSheet, top: float, bottom: float) -> Iterator[str]:
    for tick in byte_ticks(sheet.plan.end_bytes, 8):
        x = sheet.across(tick)
        yield line(x, top - 4, x, top, "axis")
        yield text(x, top - 8, short_kb(tick), "small soft mid")
    end = sheet.across(sheet.plan.end_bytes)
    yield line(end, top - 6, end, bottom, "limit")


def _legend(cores: int) -> Iterator[str]:
    entries = [(CORES[core % len(CORES)], f"core {core} writes") for core in range(cores)]
    return legend(
        LABELS, 46, (*entries, ("t3", "still to be read"), ("shared", "deferred until all cores have read")), 16
    )


def _op(sheet: _CoreSheet, step: Step, split: Split | None, top: float, height: float) -> Iterator[str]:
    read, written = _read(sheet, step), _written(sheet, step)
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
        yield from _parts(sheet, split, phase, written[0], top, part)
        if phase is not phases[-1]:
            yield line(LABELS, top + part, LABELS + WIDTH, top + part, "grid")
        top += part


def _read(sheet: _CoreSheet, step: Step) -> list[tuple[int, int]]:
    """The bytes of each input, or of each row that a turn reads."""
    if step.op == PUSH:
        return []
    if step.turn is None:
        return sheet.wholes(tensor for _, tensor in sheet.plan.graph.nodes[step.op].activations())
    needs = [(n.tensor, range(n.first[step.turn], n.end[step.turn])) for n in sheet.rows.ops[step.op].needs]
    return [sheet.row(tensor, row) for tensor, rows in needs for row in rows]


def _written(sheet: _CoreSheet, step: Step) -> list[tuple[int, int]]:
    """The bytes of each output, or of the row that a turn makes."""
    graph = sheet.plan.graph
    if step.turn is None:
        return sheet.wholes(graph.nodes[step.op].outputs)
    if step.op == PUSH:
        return [sheet.row(graph.inputs[0], step.turn)]
    made = sheet.rows.ops[step.op].makes_at(step.turn) or ()
    return [sheet.row(tensor.index, row) for tensor in graph.nodes[step.op].outputs for row in made]


def _still_read(sheet: _CoreSheet, split: Split, phase: Phase) -> Iterator[tuple[int, int]]:
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


def _parts(
    sheet: _CoreSheet, split: Split, phase: Phase, made: tuple[int, int], top: float, height: float
) -> Iterator[str]:
    """What each core writes of the bytes that are made: its stretch; of channels, which lie all over, a stripe."""
    start, size, units = made[0], made[1] - made[0], split.cut.units
    if split.cut.along is Along.CHANNELS:
        stripe = height / sheet.cores
        for core in range(sheet.cores):
            yield sheet.block(*made, top + core * stripe, stripe, CORES[core % len(CORES)])
        return
    cores = 1 if phase.how is How.ALONE else sheet.cores
    for core in range(cores):
        low, high = (phase.first + phase.units * part // cores for part in (core, core + 1))
        left, right = start + size * low // units, start + size * high // units
        yield sheet.block(left, right, top, height, CORES[core % len(CORES)])
        if phase.how is How.HELD:
            yield sheet.block(left, right, top, height, "shared")
