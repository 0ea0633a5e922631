"""What a model needs if every tensor is kept whole."""

from __future__ import annotations

import pytest

from diagmem.model.graph import DType, Graph, Tensor
from diagmem.planning import planner
from diagmem.planning.inspection import inspect
from diagmem.planning.options import Options


@pytest.mark.parametrize("outputs", [(), (0,)])
def test_models_without_operations(outputs: tuple[int, ...]) -> None:
    """There is no step at which anything lives; a plan still holds the input, which the caller writes."""
    graph = Graph("nothing", (Tensor(0, "in", (2, 3), DType.INT8),), (), (0,), outputs)
    found = inspect(graph)
    assert (found.peak_bytes, found.peak_op, found.live) == (0, None, ())
    assert planner.planned(graph, Options()).arena_bytes == 6
