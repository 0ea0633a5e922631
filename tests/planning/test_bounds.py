"""Bounds that come quickly: no plan is smaller."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.model.graph import Graph
from diagmem.planning.options import Options
from diagmem.planning.planner import planned
from tests.networks import nets
from tests.profiles import examples
from tests.row_networks import has_image_input, image_net


@given(nets())
@examples(25)
def test_no_plan_of_whole_tensors_is_smaller(graph: Graph) -> None:
    """With overlap and without, in the best order, no op removed."""
    found = diagmem.bound(graph)
    options = Options(schedule="best", skip="all", effort="quick")
    assert found.overlapped_bytes <= planned(graph, options).arena_bytes
    assert found.whole_bytes <= planned(graph, replace(options, overlap=False)).arena_bytes
    assert found.streamed_bytes <= found.rows_bytes <= found.overlapped_bytes <= found.whole_bytes


@given(st.integers(0, 200))
@examples(8)
def test_no_plan_by_rows_is_smaller(seed: int) -> None:
    """With the input given whole, and row by row."""
    graph = image_net(seed)
    found = diagmem.bound(graph)
    assert found.rows_bytes <= planned(graph, Options(schedule="rows", skip="all", effort="quick")).arena_bytes
    if has_image_input(graph) and len(graph.inputs) == 1:
        options = Options(schedule="rows", input_rows=True, skip="all", effort="quick")
        assert found.streamed_bytes <= planned(graph, options).arena_bytes


@pytest.mark.parametrize("model", ["vww_96_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8"])
def test_the_bound_is_met_where_the_order_is_given(model: str) -> None:
    """Chains and short residuals: the bound is the plan."""
    made = diagmem.plan(f"zoo:{model}", schedule="best", skip="all")
    assert diagmem.bound(f"zoo:{model}").overlapped_bytes == made.arena_bytes
