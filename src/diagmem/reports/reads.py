"""Reads and writes of one operation, step by step, and the lines that bound them: the paper's figures 5 to 7.

Steps across, offsets in elements up. minR is the least offset read at a step or later, maxW the highest written so far.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from diagmem.kernels import Library
from diagmem.model.graph import Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, last_reads
from diagmem.reports.axes import Axes
from diagmem.reports.drawing import Drawing
from diagmem.reports.svg import line, number, path, tag, text, text_width

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bound:
    """minR(i) >= max(0, a*i + b), in elements."""

    a: Fraction
    b: Fraction

    def __call__(self, step: Fraction | int) -> Fraction:
        return max(Fraction(0), self.a * step + self.b)

    @property
    def crossing(self) -> Fraction:
        """The step from which on the line is above zero."""
        return max(Fraction(0), -self.b / self.a)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What an operation with one input in RAM does. `reads`: (step, element) of each read, the last step of a held
    one. `min_r[i]`: the least element read at step i or later."""

    accesses: Accesses
    reads: tuple[tuple[int, int], ...]
    min_r: tuple[int, ...]
    in_elems: int

    @property
    def steps(self) -> int:
        return self.accesses.steps

    def bound(self, a: Fraction) -> Bound:
        """The highest line of slope `a` under all reads."""
        return Bound(a, min(element - a * step for step, element in self.reads))


def pattern(node: Node, library: Library) -> Pattern:
    """The reads of an operation whose loops the library knows, and whose input 0 lies in RAM."""
    kind, order = kind_of(node.op.kind), library.order(node)
    if kind is None or order is None:
        raise ValueError(f"{node.label}: {library.name} does not know its loops")
    accesses = kind.accesses(node, order)
    runs, elems = accesses.reads[0], node.input(0).elems
    if runs is None:
        raise ValueError(f"{node.label}: its input is constant")
    element, first, last = runs.touches()
    reads = sorted({(s, e) for e, f, t in zip(element, first, last, strict=True) for s in range(f, t + 1)})
    least = [elems] * accesses.steps
    for at, step in enumerate(last_reads(runs, elems).tolist()):
        if step >= 0:
            least[step] = min(least[step], at)
    min_r = list(itertools.accumulate(reversed(least), min))[::-1]
    return Pattern(accesses, tuple(reads), tuple(min_r), elems)


def reads_drawing(
    title: str, found: Pattern, bound: Bound, ringed: Iterable[tuple[int, int]] = (), with_min_r: bool = False
) -> Drawing:
    """Every read as a dot; those that define the bound ringed, or minR and its bound drawn."""
    axes = Axes(76, 70, 640, 320, found.steps, found.in_elems)
    end: Fraction = min(Fraction(found.steps), (found.in_elems - bound.b) / bound.a)
    body = [
        text(axes.left, 22, title, "title"),
        *axes.frame("step i", "offset in the input (elements)"),
        _dots(axes, found.reads),
        tag("path", d=path(axes.at(p) for p in _line(bound, end)), class_="curve3"),
    ]
    if with_min_r:
        body.append(tag("path", d=path(axes.at(p) for p in _stairs(found.min_r, axes.y_limit)), class_="curve2"))
    body += [tag("circle", cx=axes.x(s), cy=axes.y(e), r=5.5, class_="ring") for s, e in ringed]
    names = [("dots", "reads"), ("curve3", "max(0, a·i + b)")] + ([("curve2", "minR(i), exact")] if with_min_r else [])
    body += _names(axes.left, 48, names)
    return Drawing(axes.right + 24, axes.bottom + 46, "".join(body), title)


def cases_drawing(title: str, cases: Iterable[tuple[str, Pattern, Bound]]) -> Drawing:
    """minR, its bound, and maxW, side by side; the least distance between bound and maxW is marked."""
    body, left, bottom = [text(76, 22, title, "title")], 76.0, 0.0
    for words, found, bound in cases:
        top = min(max(found.steps, found.in_elems), 2 * found.steps)
        end = min(Fraction(found.steps), (top - bound.b) / bound.a)
        axes = Axes(left, 92, 340, 300, found.steps, top)
        worst = max((bound.crossing, Fraction(found.steps)), key=lambda i: i - bound(i))
        body += [
            text(axes.left, 78, words, "small"),
            *axes.frame("step i", "elements" if left < 100 else ""),
            tag("path", d=path(axes.at(p) for p in _stairs(found.min_r, axes.y_limit)), class_="curve"),
            tag("path", d=path(axes.at(p) for p in _line(bound, end)), class_="curve3"),
            tag("path", d=path([axes.at((0, 0)), axes.at((found.steps, found.steps))]), class_="curve2"),
            *_distance(axes, worst, bound),
        ]
        left, bottom = axes.right + 76, axes.bottom
    body += _names(76, 48, [("curve", "minR(i), exact"), ("curve3", "max(0, a·i + b)"), ("curve2", "maxW(i) = i")])
    return Drawing(left - 40, bottom + 46, "".join(body), title)


def threads_drawing(title: str, found: Pattern, threads: int) -> Drawing:
    """Reads and writes of an operation whose steps are dealt out to threads in equal stretches; one step of each at a
    time."""
    rounds = -(-found.steps // threads)
    axes = Axes(76, 70, 640, 340, rounds, found.steps + found.in_elems)
    split = axes.y(found.steps)
    body = [text(axes.left, 22, title, "title"), *axes.frame("round", "offset (elements)")]
    for thread in range(threads):
        spans: dict[int, list[int]] = {}
        for step, at in found.reads:
            if step // rounds == thread:
                spans.setdefault(step % rounds, []).append(at)
        bars = "".join(
            f"M{number(axes.x(nth + 0.5))} {number(axes.y(found.steps + min(read)))}"
            f"V{number(axes.y(found.steps + max(read) + 1))}"
            for nth, read in spans.items()
        )
        body.append(tag("path", d=bars, class_=f"thread thread{thread % 4}", stroke_width=axes.width / rounds))
    body += [
        _dots(axes, ((step % rounds, step) for step in range(found.steps)), "dots2"),
        line(axes.left, split, axes.right, split, "axis"),
        text(axes.right + 6, split - 8, "input", "small"),
        text(axes.right + 6, split + 18, "output", "small"),
        *_names(axes.left, 48, [("thread thread0", "reads, a colour for each thread"), ("dots2", "writes")]),
    ]
    return Drawing(axes.right + 64, axes.bottom + 46, "".join(body), title)


def threaded_overlap(found: Pattern, threads: int) -> int:
    """O_s in elements if the steps are dealt out so; a round's reads come before its writes."""
    rounds = -(-found.steps // threads)
    needed = [found.in_elems] * (rounds + 1)
    for step, at in found.reads:
        needed[step % rounds] = min(needed[step % rounds], at)
    needed = list(itertools.accumulate(reversed(needed), min))[::-1]
    # After any round the last thread has written furthest.
    begin = rounds * (threads - 1)
    apart = max(min(found.steps, begin + nth + 1) - needed[nth + 1] for nth in range(rounds - 1))
    return max(0, found.steps - apart)


def _distance(axes: Axes, step: Fraction, bound: Bound) -> Iterator[str]:
    x, high, low = axes.x(float(step)), axes.y(float(step)), axes.y(float(bound(step)))
    yield line(x, high, x, low, "limit")
    for y in (high, low):
        yield line(x - 5, y, x + 5, y, "limit")
    is_right = x > (axes.left + axes.right) / 2
    words = f"{float(step - bound(step)):g}"
    yield text(x + (-8 if is_right else 8), (high + low) / 2 + 4, words, f"limit-text{' end' if is_right else ''}")


def _line(bound: Bound, end: Fraction) -> list[Point]:
    bend = min(bound.crossing, end)
    return [(0, float(bound(0))), (float(bend), float(bound(bend))), (float(end), float(bound(end)))]


def _stairs(values: Iterable[int], limit: float) -> list[Point]:
    """The value of step i up to i, as far as it is shown."""
    points = [(max(0, step + side), value) for step, value in enumerate(values) for side in (-1, 0)]
    return [(step, value) for step, value in points if value <= limit]


def _dots(axes: Axes, points: Iterable[tuple[int, int]], class_: str = "dots") -> str:
    """Many dots as one path of strokes without length."""
    at = "".join(f"M{number(axes.x(x))} {number(axes.y(y))}h0" for x, y in points)
    return tag("path", d=at, class_=class_)


def _names(x: float, y: float, names: Iterable[tuple[str, str]]) -> Iterator[str]:
    for class_, words in names:
        dash = (
            f"M{number(x + 12)} {number(y - 4)}h0" if class_.startswith("dots") else f"M{number(x)} {number(y - 4)}h24"
        )
        yield tag("path", d=dash, class_=class_)
        yield text(x + 30, y, words, "small soft")
        x += 30 + text_width(words, 11) + 18
