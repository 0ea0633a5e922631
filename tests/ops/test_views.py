"""Operations on parts of larger tensors: what holds for whole tensors holds for the places of their elements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from diagmem.accesses import replayed_separation
from diagmem.graph import DType, Node, Tensor, View
from diagmem.ops import kinds
from diagmem.views import places as numbered_places
from tests.ops.cases import case_modules
from tests.ops.simulation import places, survives

CASES = case_modules()

ORDERS = {"CONV_2D": ("reference", "blocks"), "DEPTHWISE_CONV_2D": ("reference",)}
"""Those of our own kernels, where they are not just the first."""


@st.composite
def spread_out(draw: st.DrawFn, tensor: Tensor) -> Tensor:
    """The tensor as it is, or with its axes further apart, as part of a larger one."""
    strides, step = [], 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step = step * size + draw(st.sampled_from((0, 0, 1, 5)))
    return replace(tensor, view=View(99, draw(st.integers(0, 3)), tuple(reversed(strides))))


@st.composite
def with_views(draw: st.DrawFn, nodes: st.SearchStrategy[Node]) -> Node:
    node = draw(nodes)
    inputs = tuple(t if t is None or t.is_constant else draw(spread_out(t)) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(draw(spread_out(t)) for t in node.outputs))


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_separation_of_views_is_exact(case: str, data: st.DataObject) -> None:
    """Where a kernel can address views: closed form == replay; the simulation is safe there, and catches one byte less.
    The distance is that of the first elements."""
    node = data.draw(with_views(CASES[case]))
    kind = kinds()[node.op.kind]
    assume(kind.can_address(node))
    for order in ORDERS.get(node.op.kind, kind.orders[:1]):
        accesses = kind.accesses(node, order)
        for position, source in node.activations():
            for output, target in enumerate(node.outputs):
                sizes = source.dtype.size_bytes, target.dtype.size_bytes
                at = places(source), places(target)
                spread = [numbered_places(t.shape, t.strides) for t in (source, target)]
                closed = kind.closed_separation(node, position, order, output)
                assert closed == replayed_separation(accesses, position, output, *sizes, *spread)
                separation = kind.separation(node, position, order, output)
                assert survives(accesses, position, output, sizes, separation, at)
                assert survives(accesses, position, output, sizes, separation - 1, at) == (closed is None)


def test_one_piece_needs_no_strides() -> None:
    """Every kind can address a view whose elements are neighbours."""
    whole = Tensor(0, "x", (1, 2, 3, 4), DType.INT8)
    part = replace(whole, view=View(9, 7, whole.strides))
    assert part.is_in_one_piece and part.span_bytes == whole.size_bytes
