"""What less memory costs in work: a front of plans as a picture, each of them a point that a script may make a
button."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagmem.reports.axes import KB, Axes, kb, short_kb
from diagmem.reports.drawing import Drawing
from diagmem.reports.svg import line, plain, tag, text

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
