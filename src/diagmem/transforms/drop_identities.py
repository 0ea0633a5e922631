"""Ops that change no value that can reach them: a RELU of what is never negative, a product with 1, a sum with 0, a
QUANTIZE there and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.ops import Unsupported, kind_of
from diagmem.transforms._editing import Choice, edited, is_movable, is_seen_by_caller
from diagmem.transforms.channel_links import Array
from diagmem.transforms.channel_ranges import Range, ranges_of

ALONE = ("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "ABS", "QUANTIZE")
WITH_A_CONSTANT = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
"""Kinds that make each element of the element at its place."""

STORED = (DType.INT8, DType.INT16)


def drop_identities(graph: Graph, choice: Choice) -> Graph:
    """Every value that each channel can have is tried, so it is exact; of integers only. The op's readers read its
    input, or, of two in a row, that of the first, if that has the same scale. What the caller sees stays."""
    candidates = [node for node in graph.nodes if node.op.kind in ALONE + WITH_A_CONSTANT and choice(node.op)]
    if not candidates or any(tensor.view is not None for tensor in graph.tensors):
        return graph
    ranges, instead = ranges_of(graph), dict[int, int]()
    for node in candidates:
        source = next((s for s, made in _sources(graph, node, ranges) if _is_same(s, node.output, made)), None)
        if source is not None and not is_seen_by_caller(graph, node.output.index) and is_movable(node.output):
            instead[node.output.index] = instead.get(source.index, source.index)
    gone = [graph.producer[tensor] for tensor in instead]
    return edited(graph, without=gone, instead=instead) if gone else graph


Values = tuple[Array, Array, Array]
"""[value, channel]: what goes in, what comes out, and which of these can happen."""


def _sources(graph: Graph, node: Node, ranges: dict[int, Range]) -> Iterator[tuple[Tensor, Values]]:
    """The op's input, with what becomes of its values; then, of an op behind another, that one's input."""
    data = next((t for _, t in node.activations()), None)
    if data is None or data.dtype not in STORED or not data.shape or not is_movable(data):
        return
    info, found = np.iinfo(data.dtype.numpy), ranges[data.index]
    values = np.repeat(np.arange(info.min, info.max + 1)[:, None], data.shape[-1], axis=1)
    made = _applied(node, data, values)
    if made is None:
        return
    yield data, (values, made, (found.low <= values) & (values <= found.high))
    before = graph.nodes[graph.producer[data.index]] if data.index in graph.producer else None
    if before is None or before.op.kind != "QUANTIZE" or node.op.kind != "QUANTIZE":
        return
    for source, (given, between, can_be) in _sources(graph, before, ranges):
        if source.index == before.input(0).index:
            at = between.astype(np.int64) - info.min
            yield source, (given, np.take_along_axis(made, at, axis=0), can_be)


def _applied(node: Node, data: Tensor, values: Array) -> Array | None:
    """What a pointwise op makes of values [value, channel] of its one input in RAM; None where it is none such."""
    others = [t for t in node.inputs if t is not None and t.index != data.index]
    rows = [
        t
        for t in others
        if t.data is not None and t.elems in (1, data.shape[-1]) and t.shape[-1:] in ((), (1,), data.shape[-1:])
    ]
    kind = kind_of(node.op.kind)
    if kind is None or len(node.outputs) != 1 or len(rows) < len(others) or node.output.shape != data.shape:
        return None
    given = [values.astype(data.dtype.numpy) if t.index == data.index else t.data for t in node.inputs if t is not None]
    inputs = tuple(
        t if t is None else replace(t, shape=values.shape if t.index == data.index else (t.elems,)) for t in node.inputs
    )
    flat = [v if v is None or v.shape == values.shape else v.reshape(-1) for v in given]
    try:
        return kind.reference(Node(node.op, inputs, (replace(node.output, shape=values.shape),)), flat)[0]
    except (Unsupported, ModelError):
        return None


def _is_same(source: Tensor, target: Tensor, values: Values) -> bool:
    given, made, can_be = values
    is_alike = (source.shape, source.dtype, source.quantisation) == (target.shape, target.dtype, target.quantisation)
    return is_alike and bool((given == made)[can_be].all())
