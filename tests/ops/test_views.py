"""Operations on parts of larger tensors: what holds for whole tensors holds for the places of their elements."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from diagmem.model.graph import places as numbered_places
from diagmem.ops import kinds
from diagmem.ops.accesses import replayed_separation
from diagmem.ops.orders import Order
from tests.ops.cases import case_modules
from tests.ops.simulation import places, survives
from tests.ops.spread import with_views
from tests.profiles import examples

CASES = case_modules()

ORDERS = {"CONV_2D": (Order.REFERENCE, Order.BLOCKS), "DEPTHWISE_CONV_2D": (Order.REFERENCE,)}
"""Those of our own kernels, where they are not just the first."""


@pytest.mark.parametrize("case", CASES)
@examples(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
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
