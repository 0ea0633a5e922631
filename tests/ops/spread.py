"""Nodes whose tensors are parts of larger ones."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from diagmem.model.graph import Node, Tensor, View

BASE = 99
"""A tensor that no node has."""


@st.composite
def spread_out(draw: st.DrawFn, tensor: Tensor) -> Tensor:
    """The tensor with its axes further apart now and then, as part of a larger one."""
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step = step * size + draw(st.sampled_from((0, 0, 1, 5)))
    return replace(tensor, view=View(BASE, draw(st.integers(0, 3)), tuple(reversed(strides))))


@st.composite
def with_views(draw: st.DrawFn, nodes: st.SearchStrategy[Node]) -> Node:
    """Inputs in RAM and outputs as views."""
    node = draw(nodes)
    inputs = tuple(t if t is None or t.is_constant else draw(spread_out(t)) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(draw(spread_out(t)) for t in node.outputs))
