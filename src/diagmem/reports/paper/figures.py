"""The paper's nine figures made anew, and two of our own."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from diagmem.backends.c.program import Program
from diagmem.frontends import tflite, zoo
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels import Library, library
from diagmem.model.errors import TraceError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, last_reads
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan
from diagmem.planning.planner import planned
from diagmem.reports.arena import arena_drawing, before_after_drawing
from diagmem.reports.charts import cores_drawing, live_drawing, separation_drawing
from diagmem.reports.drawing import Axes, Drawing, line, number, path, tag, text, text_width
from diagmem.reports.pages import Figure
from diagmem.reports.paper.document import ANALYTICAL, EXACT, EXAMPLE, PRINTED, reproduce
from diagmem.reports.trace import Panel, op_panel, plan_panel, trace_drawing
from diagmem.tracing.analysis import run_plan, trace_ops
from diagmem.tracing.kernel import NATIVE
from diagmem.tracing.model import build_model, side_by_side

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


REFERENCE = library("tflm-reference")
"""The paper's kernels."""

Layer = Callable[[Builder, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Maker:
    """How a figure is made; `name` is that of its file."""

    name: str
    caption: str
    draw: Callable[[], Drawing]

    def figure(self) -> Figure:
        try:
            return Figure(self.name, self.caption, self.draw())
        except TraceError as error:
            return Figure(self.name, f"{self.caption} Not drawn: {error}.", None)


def example_plans(graph: Graph | None = None) -> tuple[Plan, Plan]:
    """The example model, without overlap in file order, and ours. `graph`: the model, where its weights matter."""
    made = planned(graph or zoo.build(EXAMPLE), Options(schedule="best", skip="all"))
    return made.baseline, made.plan


def _model_traces() -> Drawing:
    graph = tflite.parse(to_tflite(zoo.build(EXAMPLE), seed=0), EXAMPLE)
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        panels = [
            plan_panel(run_plan(build_model(Program.running(plan), NATIVE, Path(place)), plan), words)
            for words, plan in zip(("before overlap", "after overlap"), example_plans(graph), strict=True)
        ]
    return trace_drawing(panels, EXAMPLE, same_scale=True)


def _four_traces() -> Drawing:
    layers: dict[str, tuple[Layer, tuple[int, ...]]] = {
        "a, ReLU": (lambda b, x: b.relu(x), (1, 16, 16, 8)),
        "b, matrix multiplication": (lambda b, x: b.fully_connected(x, 96), (1, 96)),
        "c, depthwise convolution": (lambda b, x: b.depthwise(x, 3), (1, 16, 16, 8)),
        "d, convolution": (lambda b, x: b.conv(x, 8, 3), (1, 16, 16, 8)),
    }
    panels = [_op_trace(words, _graph(layer, shape)) for words, (layer, shape) in layers.items()]
    return trace_drawing(panels, "the C kernels that diagmem emits, on x86")


def _op_trace(words: str, graph: Graph) -> Panel:
    node = tflite.parse(to_tflite(graph, seed=0), words).nodes[0]
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        model = build_model(side_by_side([node]), NATIVE, Path(place))
        found = op_panel(model, trace_ops(model, (node,))[0])
    return Panel(f"{words}: {found.title.split(': ')[-1]}", found.raster, found.bands)


def _separation() -> Drawing:
    drawing = separation_drawing(_node(lambda b, x: b.conv(x, 4, 3), (1, 6, 6, 3)), REFERENCE)
    if drawing is None:
        raise ValueError("the reference kernels' loops are known")
    return drawing


def _reads(with_min_r: bool) -> Drawing:
    node = _strided_depthwise()
    found = pattern(node, REFERENCE)
    bound = found.bound(_slope(node))
    if with_min_r:
        return reads_drawing("minR of a depthwise 3x3 convolution, stride 2", found, bound, with_min_r=True)
    ringed = [(step, at) for step, at in found.reads if at - bound.a * step == bound.b]
    return reads_drawing("Reads of a depthwise 3x3 convolution, stride 2", found, bound, ringed)


def _cases() -> Drawing:
    down, up = _strided_depthwise(), _node(lambda b, x: b.conv(x, 4, 1), (1, 6, 6, 2))
    patterns = [pattern(node, REFERENCE) for node in (down, up)]
    bounds = [found.bound(_slope(node)) for found, node in zip(patterns, (down, up), strict=True)]
    words = ("A: minR rises faster than maxW (depthwise, stride 2)", "B: maxW rises faster (1x1, channels doubled)")
    return cases_drawing(
        "What sets O_s: the largest distance of maxW above minR", zip(words, patterns, bounds, strict=True)
    )


def _threads() -> Drawing:
    found = pattern(_node(lambda b, x: b.conv(x, 1, 5), (1, 20, 20, 1)), REFERENCE)
    alone, shared = threaded_overlap(found, 1), threaded_overlap(found, 4)
    title = f"A 5x5 convolution by four threads in step: O_s {shared} elements, {alone} with one thread"
    return threads_drawing(title, found, threads=4)


def _densenet() -> Drawing:
    graph = zoo.build("densenet_121")
    found = reproduce(graph, is_sequential=False)[ANALYTICAL]
    return before_after_drawing(found.original, found.optimised, last_step=len(graph.ops) // 5)


def _strided_depthwise() -> Node:
    return _node(lambda b, x: b.depthwise(x, 3, 2), (1, 12, 12, 2))


def _slope(node: Node) -> Fraction:
    """Equations (7) and (12): elements of the input per element of the output, from one row to the next."""
    _, height, width, depth = node.input(0).shape
    _, out_height, out_width, out_depth = node.output.shape
    return Fraction(height // out_height * width * depth, out_width * out_depth)


def _node(layer: Layer, shape: tuple[int, ...]) -> Node:
    return _graph(layer, shape).nodes[0]


def _graph(layer: Layer, shape: tuple[int, ...]) -> Graph:
    builder = Builder("layer", DType.INT8)
    return builder.graph(layer(builder, builder.input(*shape)))


MAKERS = tuple(
    Maker(name, PRINTED["captions"][name], draw)
    for name, draw in (
        ("heap", lambda: arena_drawing(reproduce(zoo.build(EXAMPLE), is_sequential=True)[EXACT].original)),
        ("traces", _model_traces),
        ("four_operations", _four_traces),
        ("separation", _separation),
        ("reads", lambda: _reads(with_min_r=False)),
        ("min_r", lambda: _reads(with_min_r=True)),
        ("cases", _cases),
        ("threads", _threads),
        ("cores", lambda: cores_drawing(planned(zoo.build("kws_dscnn_int8"), Options(cores=2)).plan)),
        ("densenet", _densenet),
        ("before_after", lambda: before_after_drawing(*example_plans(), last_step=12)),
        ("live", lambda: live_drawing(*example_plans())),
    )
)
