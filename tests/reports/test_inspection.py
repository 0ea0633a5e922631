"""What a model needs if every tensor is kept whole."""

from __future__ import annotations

import pytest

from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.planning import planner
from diagmem.planning.options import Options
from diagmem.reports.inspection import inspect


@pytest.mark.parametrize("outputs", [(), (0,)])
def test_models_without_operations(outputs: tuple[int, ...]) -> None:
    """There is no step at which anything lives; a plan still holds the input, which the caller writes."""
    graph = Graph("nothing", (Tensor(0, "in", (2, 3), DType.INT8),), (), (0,), outputs)
    found = inspect(graph)
    assert (found.peak_bytes, found.peak_op, found.live) == (0, None, ())
    assert planner.planned(graph, Options()).arena_bytes == 6


def test_operations_that_make_nothing() -> None:
    """An operation that nobody here knows may have no outputs; its inputs live while it runs."""
    tensors = tuple(Tensor(index, f"t{index}", (2, 3), DType.FLOAT32) for index in range(2))
    graph = Graph("sink", tensors, (Op(0, "ABS", (0,), (1,)), Op(1, "CUSTOM:Print", (1,), ())), (0,), (1,))
    found = inspect(graph)
    assert (found.peak_bytes, found.channels[1].channels) == (48, 0)
    assert planner.planned(graph, Options()).arena_bytes == 24
