"""Ops that compute the same in every run: their results become constants."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import ABSENT, Graph, Node, Tensor
from diagmem.ops.folding import folded
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller


def fold_constants(graph: Graph, choice: Choice) -> Graph:
    """One op after the other, so that chains of them go as a whole. What the caller sees stays computed, for he looks
    for it in the arena; what would take too much flash stays too."""
    tensors, gone = list(graph.tensors), []
    for op in graph.ops:
        if not choice(op) or any(is_seen_by_caller(graph, t) or graph.tensors[t].is_variable for t in op.outputs):
            continue
        inputs = tuple(None if t == ABSENT else tensors[t] for t in op.inputs)
        values = folded(Node(op, inputs, tuple(tensors[t] for t in op.outputs)))
        if values is not None:
            gone.append(op.index)
            for t, found in zip(op.outputs, values, strict=True):
                tensors[t] = replace(tensors[t], is_constant=True, data=found)
    return edited(graph, without=gone, tensors=_changed(graph, tensors)) if gone else graph


def _changed(graph: Graph, tensors: list[Tensor]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not graph.tensors[tensor.index]]
