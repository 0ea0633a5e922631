"""Scales and zero points by TFLite's int8 rules, from how the values are spread."""

from __future__ import annotations

import numpy as np

from diagmem.frontends.zoo.spread import Floats
from diagmem.frontends.zoo.weights import Weights, rounded
from diagmem.model.graph import DType, Graph, Quantisation

RANGE_DEVIATIONS = 5.0
"""Standard deviations that the range of a tensor covers."""

SOFTMAX = Quantisation((1 / 256,), (-128,))
"""The only quantisation that TFLite's int8 softmax writes."""

COPYING = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "CONCATENATION", "PAD", "STRIDED_SLICE"})
"""Kinds whose kernels do not rescale, so that inputs and output must share one quantisation."""


def quantise(graph: Graph, weights: Weights) -> dict[int, Quantisation]:
    """Tensor index -> quantisation, for the int8 tensors and the int32 biases; empty for a float graph."""
    found = _activations(graph, weights)
    for index, filters in weights.filters.items():
        if graph.tensors[index].dtype is DType.INT8:
            found[index] = _symmetric(filters.scales, filters.axis)
    for index, vector in weights.vectors.items():
        if graph.tensors[index].dtype is DType.INT8:
            found[index] = _symmetric(rounded(np.abs(vector).max(keepdims=True) / 127))
    for op in graph.ops:
        if len(op.inputs) == 3 and graph.tensors[op.inputs[2]].dtype is DType.INT32 and op.inputs[1] in found:
            data, filters_of = found[op.inputs[0]], found[op.inputs[1]]
            found[op.inputs[2]] = _symmetric(data.scales[0] * np.array(filters_of.scales))
    return found


def _activations(graph: Graph, weights: Weights) -> dict[int, Quantisation]:
    leader = _leaders(graph)
    bounds: dict[int, tuple[float, float]] = {}
    members = [i for i in weights.spreads if graph.tensors[i].dtype is DType.INT8]
    copies = {op.outputs[0] for op in graph.ops if op.kind in COPYING}
    for index in members:
        if index not in copies:  # A copy stays within the range of what it copies.
            low, high = weights.spreads[index].bounds(RANGE_DEVIATIONS)
            group_low, group_high = bounds.get(leader[index], (0.0, 0.0))
            bounds[leader[index]] = min(low, group_low), max(high, group_high)
    found = {index: _asymmetric(*bounds[leader[index]]) for index in members}
    softmaxes = [op.outputs[0] for op in graph.ops if op.kind == "SOFTMAX"]
    return found | {index: SOFTMAX for index in softmaxes if index in found}


def _leaders(graph: Graph) -> list[int]:
    """For each tensor, the least index among those that must share its quantisation."""
    leader = list(range(len(graph.tensors)))

    def find(index: int) -> int:
        while leader[index] != index:
            index = leader[index]
        return index

    for node in graph.nodes:
        if node.op.kind in COPYING:
            roots = {find(t.index) for t in (node.output, *(t for _, t in node.activations()))}
            for root in roots:
                leader[root] = min(roots)
    return [find(index) for index in leader]


def _asymmetric(low: float, high: float) -> Quantisation:
    scale = float(rounded(np.array([(high - low) / 255]))[0])
    return Quantisation((scale,), (int(np.clip(round(-128 - low / scale), -128, 127)),))


def _symmetric(scales: Floats, axis: int = 0) -> Quantisation:
    return Quantisation(tuple(float(s) for s in scales.astype(np.float32)), (0,) * len(scales), axis)
