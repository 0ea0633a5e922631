"""Ops that compute the same from the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from diagmem.model.graph import Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller
from diagmem.transforms.drop_dead import has_effect


def merge_duplicates(graph: Graph, choice: Choice) -> Graph:
    """Of ops of one known kind with equal attributes and inputs, and outputs of equal shape and quantisation, only the
    first stays. What the caller wants to see stays too, and what is written into another tensor."""
    first: dict[Any, Node] = {}
    instead: dict[int, int] = {}
    merged = []
    for node in graph.nodes:
        if kind_of(node.op.kind) is None or has_effect(node):
            continue
        inputs = tuple(instead.get(t, t) for t in node.op.inputs)
        if any(t.view is not None for t in node.outputs):
            continue
        results = tuple((t.shape, t.dtype, t.quantisation) for t in node.outputs)
        twin = first.setdefault((node.op.kind, node.attributes, inputs, results), node)
        if twin is node or not choice(node.op) or any(is_seen_by_caller(graph, t) for t in node.op.outputs):
            continue
        merged.append(node.op.index)
        instead.update(zip(node.op.outputs, twin.op.outputs, strict=True))
    return edited(graph, without=merged, instead=instead, tensors=_views(graph, instead)) if merged else graph


def _views(graph: Graph, instead: Mapping[int, int]) -> Iterator[Tensor]:
    """Views of what is gone, as views of what stands in for it."""
    for tensor in graph.tensors:
        if tensor.view is not None and tensor.base in instead:
            yield replace(tensor, view=replace(tensor.view, base=instead[tensor.base]))
