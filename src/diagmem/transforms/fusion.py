"""Ops done by a neighbour: activations by the op before them, PAD by the op behind it."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import ExplicitPadding, Graph, Node, Op, Window1D
from diagmem.ops import Activation
from diagmem.ops.convolution import conv_2d, depthwise_conv_2d
from diagmem.ops.moving.pad import zero_paddings_of
from diagmem.ops.pooling import pool_2d
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller

ACTIVATIONS = {"RELU": Activation.RELU, "RELU6": Activation.RELU6, "RELU_N1_TO_1": Activation.RELU_N1_TO_1}

PRODUCERS = frozenset(
    ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D", "ADD", "SUB", "MUL", "DIV")
)
"""Ops whose kernels end with a clamp."""


def fuse_activation(graph: Graph, choice: Choice) -> Graph:
    """Exact, because it moves a clamp past nothing: the activation is all that reads its input, which the caller does
    not see, has the scale of that input, and its producer has no activation yet, or the same one."""
    for number in [op.number for op in graph.ops if op.kind in ACTIVATIONS and choice(op)]:
        node = next(node for node in graph.nodes if node.op.number == number)
        graph = _fused(graph, node) or graph
    return graph


def _fused(graph: Graph, node: Node) -> Graph | None:
    source, target = node.input(0), node.output
    index = graph.producer.get(source.index)
    if index is None or graph.readers(source.index) != (node.op.index,) or is_seen_by_caller(graph, source.index):
        return None
    producer, activation = graph.ops[index], ACTIVATIONS[node.op.kind]
    if producer.kind not in PRODUCERS or producer.attributes.activation not in (Activation.NONE, activation):
        return None
    if (source.dtype, source.quantisation) != (target.dtype, target.quantisation):
        return None
    attributes = replace(producer.attributes, activation=activation)
    fused = replace(producer, outputs=(target.index,), attributes=attributes)
    return edited(graph, without=[node.op.index], ops={index: fused})


WINDOWS = {
    "CONV_2D": conv_2d.window_of,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d.window_of,
    "MAX_POOL_2D": pool_2d.window_of,
}
"""Ops that take a PAD over. An average leaves its own border out, so that would not be the same."""


def fold_pad(graph: Graph, choice: Choice) -> Graph:
    """Only height and width are padded, with what stands for 0, and every reader is one of `WINDOWS`. A convolution
    reads 0 beyond its borders. A max pooling reads nothing there, so its image must have nothing below 0, and every
    window a part of it."""
    for number in [op.number for op in graph.ops if op.kind in ("PAD", "PADV2") and choice(op)]:
        node = next(node for node in graph.nodes if node.op.number == number)
        graph = _folded(graph, node) or graph
    return graph


def _folded(graph: Graph, node: Node) -> Graph | None:
    """The graph without this op; None where it must stay."""
    source, target = node.input(0), node.output
    pads = zero_paddings_of(node)
    is_image = pads is not None and len(pads) == 4 and not any((*pads[0], *pads[3]))
    if not is_image or pads is None or source.is_constant or is_seen_by_caller(graph, target.index):
        return None
    if target.view is not None or target.index in graph.families:
        return None
    readers: dict[int, Op] = {}
    for index in graph.consumers.get(target.index, ()):
        reader = _with_border(graph, graph.nodes[index], source.index, pads)
        if reader is None:
            return None
        readers[index] = reader
    return edited(graph, without=[node.op.index], ops=readers)


def _with_border(graph: Graph, node: Node, source: int, pads: list[tuple[int, int]]) -> Op | None:
    """The op, reading what is padded; None if that is not the same."""
    if node.op.kind not in WINDOWS or node.op.inputs[0] in node.op.inputs[1:]:
        return None
    window = WINDOWS[node.op.kind](node)
    (top, bottom), (left, right) = pads[1], pads[2]
    rows, cols = window.rows, window.cols
    padding = ExplicitPadding(
        top + rows.pad_before, bottom + rows.pad_after, left + cols.pad_before, right + cols.pad_after
    )
    op = replace(node.op, inputs=(source, *node.op.inputs[1:]), attributes=replace(node.attributes, padding=padding))
    folded = WINDOWS[op.kind](Node(op, (graph.tensors[source], *node.inputs[1:]), node.outputs))
    if op.kind == "MAX_POOL_2D" and not (
        _is_never_negative(graph, source) and _reads_always(folded.rows) and _reads_always(folded.cols)
    ):
        return None
    return op


def _is_never_negative(graph: Graph, tensor: int) -> bool:
    producer = graph.producer.get(tensor)
    if producer is None:
        return False
    op = graph.ops[producer]
    return op.kind in ("RELU", "RELU6") or getattr(op.attributes, "activation", None) in (
        Activation.RELU,
        Activation.RELU6,
    )


def _reads_always(axis: Window1D) -> bool:
    """Whether every window has a part of the image in it."""
    return len(axis.first_reads()[0]) == axis.size_out
