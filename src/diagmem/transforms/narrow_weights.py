"""Weights that a file stores narrower than they are multiplied: they stay so, and kernels widen them one by one."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.ops import kinds
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller

NARROW = (DType.FLOAT16, DType.INT8)
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
REAL = {DType.FLOAT32}
WEIGHTS = 1
"""Their position among the inputs."""


def narrow_weights(graph: Graph, choice: Choice) -> Graph:
    """DEQUANTIZE of a constant goes where all who read it are layers that take it as weights as it is stored. Results
    are the same bit for bit: the numbers that are multiplied are."""
    instead: dict[int, int] = {}
    gone: list[int] = []
    for node in graph.nodes:
        if node.op.kind != "DEQUANTIZE" or not choice(node.op) or is_seen_by_caller(graph, node.output.index):
            continue
        stored = _stored(graph, node.input(0))
        readers = [graph.nodes[op] for op in graph.consumers.get(node.output.index, ())]
        if stored is not None and readers and all(_takes(reader, node.output, stored) for reader in readers):
            instead[node.output.index] = stored.index
            gone.append(node.op.index)
    return edited(graph, without=gone, instead=instead) if gone else graph


def _stored(graph: Graph, tensor: Tensor) -> Tensor | None:
    """The constant that it is, or that is made dense before."""
    maker = graph.nodes[graph.producer[tensor.index]] if tensor.index in graph.producer else None
    found = maker.input(0) if maker is not None and maker.op.kind == "DENSIFY" else tensor
    return found if found.is_constant and found.data is not None and found.dtype in NARROW else None


def _takes(reader: Node, wide: Tensor, stored: Tensor) -> bool:
    """Whether there is a kernel for the layer with the weights as they are stored."""
    positions = [position for position, t in enumerate(reader.op.inputs) if t == wide.index]
    if reader.op.kind not in WEIGHTED or positions != [WEIGHTS] or {reader.input(0).dtype, reader.output.dtype} != REAL:
        return False
    try:
        # The bias, which is no matter here, may be made by an operation that has not been folded yet.
        kinds()[reader.op.kind].c_call(replace(reader, inputs=(reader.inputs[0], stored)))
    except ModelError:
        return False
    return True
