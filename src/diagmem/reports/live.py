"""Live bytes over time, against what the plan takes and what no plan can do without."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.planning.plan import Plan
from diagmem.reports.axes import KB, Axes, kb, short_kb
from diagmem.reports.blocks import Picture
from diagmem.reports.drawing import Drawing
from diagmem.reports.svg import line, path, rect, tag, text, text_width


def live_drawing(before: Plan, after: Plan, width: float = 760, height: float = 260) -> Drawing:
    """For each step: bytes of all live tensors kept whole (before), and what is left of them with overlap (after)."""
    whole, least = Picture(before).live, after.pressure
    limit = max([before.arena_bytes, after.arena_bytes, *whole, 1])
    axes = Axes(76, 64, width, height, max(1, len(whole), len(least)), 1.08 * limit)
    title = f"Live bytes of {after.graph.name} at each step"
    body = [
        text(axes.left, 22, title, "title"),
        *axes.frame("step", "bytes", y_words=short_kb, y_unit=KB if limit >= 2 * KB else 1),
        tag("path", d=path(_steps(axes, whole), close=True), class_="area"),
        tag("path", d=path(_steps(axes, least), close=True), class_="area2"),
        line(axes.left, axes.y(before.arena_bytes), axes.right, axes.y(before.arena_bytes), "ghost"),
        line(axes.left, axes.y(after.arena_bytes), axes.right, axes.y(after.arena_bytes), "limit"),
        text(axes.right, axes.y(before.arena_bytes) - 5, f"arena before {kb(before.arena_bytes)}", "small soft end"),
        text(axes.right, axes.y(after.arena_bytes) - 5, _after_words(after), "small limit-text end"),
    ]
    x = axes.left
    for class_, words in (("area", "whole tensors"), ("area2", "with overlap: no placement can do with less")):
        body += [rect(x, 36, 18, 12, class_), text(x + 24, 46, words, "small soft")]
        x += 24 + text_width(words, 11) + 18
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def _after_words(after: Plan) -> str:
    words = f"arena after {kb(after.arena_bytes)}"
    return f"{words}, proven the least" if after.optimal else f"{words}, bound {kb(after.lower_bound_bytes)}"


def _steps(axes: Axes, values: Sequence[int]) -> list[tuple[float, float]]:
    corners = [(axes.x(step + side), axes.y(value)) for step, value in enumerate(values) for side in (0, 1)]
    return [(axes.left, axes.bottom), *corners, (axes.x(len(values)), axes.bottom)]
