"""Separation explained: the live windows of an operation's output and input, moved together until they touch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from diagmem.kernels import Library
from diagmem.model.graph import Node
from diagmem.planning.overlaps import overlaps
from diagmem.reports.drawing import Drawing
from diagmem.reports.fronts import Front, fronts
from diagmem.reports.svg import line, path, rect, tag, text


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
    for (_, before), (done, after) in itertools.pairwise(front):
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
