"""Activations that the op before them can apply itself."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import Graph, Node
from diagmem.ops import Activation
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
