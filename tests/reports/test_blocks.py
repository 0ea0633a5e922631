"""Fronts are what the accesses say: drawn windows are true."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import replayed_separation
from diagmem.reports.blocks import fronts, simplified
from tests.ops.cases import case_modules
from tests.profiles import examples

LIBRARY = library("tflm-reference")


@pytest.mark.parametrize("module", case_modules())
def test_fronts_touch_at_the_separation(module: str) -> None:
    """The largest distance from the front of what is needed to that of what is written is the replayed separation."""

    @examples(15)
    @given(case_modules()[module])
    def check(node: Node) -> None:
        kind, order = kind_of(node.op.kind), LIBRARY.order(node)
        found = fronts(node, LIBRARY, samples=10**6, tolerance=None)
        if kind is None or order is None or kind.is_alias or found is None:
            assert found is None
            return
        accesses = kind.accesses(node, order)
        for position, tensor in node.activations():
            needed = found.needed[position]
            for number, output in enumerate(node.outputs):
                sizes = tensor.dtype.size_bytes, output.dtype.size_bytes
                meeting = [
                    end - start
                    for (_, end), (_, start) in zip(found.written[number], needed or (), strict=True)
                    if end > 0 and start < tensor.size_bytes
                ]
                assert max(meeting, default=None) == replayed_separation(accesses, position, number, *sizes)

    check()


@pytest.mark.parametrize("module", ["conv_2d", "depthwise_conv_2d", "unary", "transpose"])
def test_fronts_rise_from_start_to_end(module: str) -> None:
    """A front begins with the operation and ends with it, and never falls."""

    @examples(15)
    @given(case_modules()[module], st.integers(2, 40))
    def check(node: Node, samples: int) -> None:
        found = fronts(node, LIBRARY, samples=samples)
        for front in () if found is None else (*found.written, *(f for f in found.needed if f)):
            assert front[0][0] == 0.0
            assert front[-1][0] == 1.0
            assert all(a[0] < b[0] and a[1] <= b[1] for a, b in itertools.pairwise(front))

    check()


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=40), st.integers(0, 100))
def test_simplified_lines_pass_near_every_point(values: list[int], tolerance: int) -> None:
    """Leaving points out moves the line by no more than the tolerance."""
    points = [(float(place), value) for place, value in enumerate(values)]
    kept = simplified(points, tolerance)
    assert set(kept) <= set(points)
    for (t0, b0), (t1, b1) in itertools.pairwise(kept):
        between = [p for p in points if t0 <= p[0] <= t1]
        assert all(abs(b - (b0 + (b1 - b0) * (t - t0) / (t1 - t0))) <= tolerance + 1e-9 for t, b in between)
