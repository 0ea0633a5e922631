"""The paper's nine figures made anew, and two of our own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from diagmem.backends.c.program import Program
from diagmem.frontends import tflite, zoo
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.builder import Builder
from diagmem.kernels import library
from diagmem.model.errors import TraceError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.planning.options import Options
from diagmem.planning.plan import Plan
from diagmem.planning.planner import planned
from diagmem.reports.arena import arena_drawing, before_after_drawing
from diagmem.reports.cores import cores_drawing
from diagmem.reports.drawing import Drawing
from diagmem.reports.live import live_drawing
from diagmem.reports.paper.document import Figure
from diagmem.reports.paper.procedure import ANALYTICAL, EXACT, reproduce
from diagmem.reports.paper.published import EXAMPLE
from diagmem.reports.reads import cases_drawing, pattern, reads_drawing, threaded_overlap, threads_drawing
from diagmem.reports.separation import separation_drawing
from diagmem.reports.trace import Panel, op_panel, plan_panel, trace_drawing
from diagmem.tracing.analysis.model import alone, build_model
from diagmem.tracing.analysis.model_trace import run_plan, trace_ops
from diagmem.tracing.capture.kernel import NATIVE

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


def example_plans() -> tuple[Plan, Plan]:
    """The example model, without overlap in file order, and ours."""
    made = planned(zoo.build(EXAMPLE), Options(remove=()))
    return made.baseline, made.plan


def _heap() -> Drawing:
    return arena_drawing(reproduce(zoo.build(EXAMPLE), is_sequential=True)[EXACT].original)


def _before_after() -> Drawing:
    return before_after_drawing(*example_plans(), last_step=12)


def _live() -> Drawing:
    return live_drawing(*example_plans())


def _model_traces() -> Drawing:
    graph = tflite.parse(to_tflite(zoo.build(EXAMPLE), seed=0), EXAMPLE)
    made = planned(graph, Options(remove=()))
    plans = {"before overlap": made.baseline, "after overlap": made.plan}
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        panels = [
            plan_panel(run_plan(build_model(Program.running(plan), NATIVE, Path(place)), plan), words)
            for words, plan in plans.items()
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
        model = build_model(alone(node), NATIVE, Path(place))
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


def _cores() -> Drawing:
    return cores_drawing(planned(zoo.build("kws_dscnn_int8"), Options(cores=2)).plan)


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


MAKERS = (
    Maker(
        "heap",
        "Figure 1: the example model's intermediate tensors placed by the paper's heap, without overlap. Addresses "
        "across, steps down.",
        _heap,
    ),
    Maker(
        "traces",
        "Figure 2: memory trace of the example model's generated C, before and after: 96 KB and 64 KB.",
        _model_traces,
    ),
    Maker(
        "four_operations",
        "Figure 3: memory traces of four operations. Our matrix multiplication keeps its sums in registers, so its "
        "output is written once, but it reads the whole input for each block of outputs and can hardly overlap "
        "either.",
        _four_traces,
    ),
    Maker(
        "separation",
        "Figure 4: safe overlap. Addresses across, time down: the output grows while the input is used up. The "
        "input may move left until the two windows touch.",
        _separation,
    ),
    Maker(
        "reads",
        "Figure 5: reads of a depthwise convolution; those ringed lie on a line under all of them.",
        lambda: _reads(with_min_r=False),
    ),
    Maker(
        "min_r",
        "Figure 6: the same, with minR, the least offset that is read at a step or later, and its linear bound.",
        lambda: _reads(with_min_r=True),
    ),
    Maker("cases", "Figure 7: the two cases of equation (11).", _cases),
    Maker(
        "threads",
        "Figure 8: four threads in step, each with a quarter of the output. Computed from the kernel's loops: real "
        "threads drift besides.",
        _threads,
    ),
    Maker(
        "cores",
        "Figure 8, answered: keyword spotting on two cores in the arena of one, 9760 bytes, as it is planned and run. "
        "Addresses across, time down; a barrier behind each row. Stripes: each core some channels, all over.",
        _cores,
    ),
    Maker(
        "densenet",
        "Figure 9: the first fifth of DenseNet, original and optimised by the paper's procedure. At the peak "
        "nothing overlaps.",
        _densenet,
    ),
    Maker(
        "before_after",
        "The example model as diagmem plans it: 96 KB before, 64 KB after. The first 13 steps; the others need less.",
        _before_after,
    ),
    Maker("live", "Live bytes of the example model, whole tensors against the bound with overlap.", _live),
)
