"""Charts: live bytes over time, how separation arises, and what less memory costs in work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from diagmem.kernels import Library
from diagmem.kernels.overlaps import overlaps
from diagmem.model.graph import Node
from diagmem.planning.cores.multicore import step_work
from diagmem.planning.plan import Plan
from diagmem.reports.blocks import Front, Picture, fronts
from diagmem.reports.drawing import KB, Axes, Drawing, kb, legend, line, path, plain, rect, short_kb, tag, text


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
        *legend(axes.left, 46, (("area", "whole tensors"), ("area2", "with overlap: no placement can do with less"))),
    ]
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def _after_words(after: Plan) -> str:
    words = f"arena after {kb(after.arena_bytes)}"
    return f"{words}, proven the least" if after.optimal else f"{words}, bound {kb(after.lower_bound_bytes)}"


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
        text(scale.left - 12, scale.y(0.5), "time →", "small soft mid", transform=_rotated(scale, 0.5)),
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


def _rotated(scale: _Scale, done: float) -> str:
    return f"rotate(90 {scale.left - 12:g} {scale.y(done):g})"


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
    limit = max([1, *(point.arena_bytes for point in points)])
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
    title = f"What less memory costs in work: {len(points)} plans, from {_range_words(points)}"
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def _stair(before: tuple[float, float], after: tuple[float, float]) -> str:
    """More work is of no use until it is enough for the next plan."""
    return line(*before, after[0], before[1], "curve") + line(after[0], before[1], *after, "curve")


def _point(number: int, point: Point, place: tuple[float, float]) -> str:
    words = f"{kb(point.arena_bytes)} at {point.work:.2f} times the work: {point.words}"
    mark = tag("circle", cx=place[0], cy=place[1], r=RADIUS, class_="made")
    beside = text(place[0] + 10, place[1] - 8, kb(point.arena_bytes), "small")
    return tag("g", tag("title", plain(words)), mark, beside, class_="point", data_point=number)


def _range_words(points: Sequence[Point]) -> str:
    sizes = [point.arena_bytes for point in points] or [0]
    return f"{kb(max(sizes))} to {kb(min(sizes))}"
