"""1-D layers with their columns as rows: the same bytes, a row for each sample; and what keeps them as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.model.graph import DType, ExplicitPadding, Graph, Padding
from diagmem.model.schedule import PUSH
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.matrix.products import FullyConnected
from diagmem.transforms import transformed
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from tests.profiles import examples
from tests.row_networks import Lines, line_net, with_values


def columns_as_rows(graph: Graph) -> Graph:
    return transformed(graph, ["time-as-rows"])[0]


@examples(40)
@given(st.integers(0, 10_000))
def test_the_result_is_the_same(seed: int) -> None:
    """Bit for bit, whatever shapes are called; every sample is a row, and reshapes are gone."""
    graph = line_net(seed)
    stands = columns_as_rows(graph)
    (values,) = sample_inputs(graph, 1, seed)
    before = reference.run(graph, values)
    after = reference.run(
        stands, [v.reshape(stands.tensors[t].shape) for v, t in zip(values, stands.inputs, strict=True)]
    )
    for output in graph.outputs:
        np.testing.assert_array_equal(before[output].reshape(-1), after[output].reshape(-1))
    assert stands.tensors[stands.inputs[0]].rows == graph.tensors[graph.inputs[0]].shape[1]
    assert not [op for op in stands.ops if op.kind == "RESHAPE"]
    assert (stands.inputs, stands.outputs) == (graph.inputs, graph.outputs)


def test_samples_are_handed_over_one_by_one() -> None:
    """A network over time holds the few samples under its windows: 200 samples of 6 sensors."""
    b = Lines("line", DType.INT8)
    x = b.input(1, 200, 6)
    for channels in (16, 24, 32):
        x = b.pool_1d(b.conv_1d(x, channels, 3, 1, Padding.SAME), 2, 2)
    graph = b.graph(b.softmax(b.fully_connected(b.mean_1d(x), 4)))
    assert pipeline.plan(graph, schedule="best").arena_bytes == 4000
    assert pipeline.plan(graph, schedule="rows").arena_bytes <= 1272
    made = pipeline.plan(graph, schedule="rows", input_rows=True)
    assert made.arena_bytes <= 352
    assert sum(op == PUSH for op in made.plan.schedule.ops) == 200
    assert [removal.transform for removal in made.removals] == ["time-as-rows"]
    kept = pipeline.plan(graph, schedule="rows", input_rows=True, skip="all")
    assert kept.arena_bytes > 4000


def test_all_that_a_window_has_is_turned() -> None:
    """Strides, dilations, borders and filters."""
    b = Lines("window", DType.FLOAT32)
    x = b.input(1, 1, 20, 2)
    padding = ExplicitPadding(0, 0, 3, 2)
    graph = b.graph(b.any_conv(x, 3, Conv2D(padding, 1, 2, 1, 3), (1, 3)))
    stands = columns_as_rows(with_values(graph, 1))
    (op,) = stands.ops
    assert op.attributes == Conv2D(ExplicitPadding(3, 2, 0, 0), 2, 1, 3, 1)
    assert [stands.tensors[t].shape for t in op.inputs[:2]] == [(1, 20, 1, 2), (3, 3, 1, 2)]


def shared_filter() -> Graph:
    b = Lines("shared", DType.FLOAT32)
    x = b.conv(b.conv(b.input(1, 1, 20, 2), 2, (1, 3)), 2, (1, 3))
    graph = b.graph(x)
    first, second = graph.ops
    return replace(graph, ops=(first, replace(second, inputs=(second.inputs[0], *first.inputs[1:]))))


def image() -> Graph:
    b = Lines("image", DType.FLOAT32)
    return b.graph(b.conv(b.input(1, 6, 6, 2), 2, 3))


def last_row_of_an_image() -> Graph:
    b = Lines("last row", DType.FLOAT32)
    return b.graph(b.relu(b.conv(b.input(1, 3, 6, 2), 2, (3, 1), padding=Padding.VALID)))


def every_sample_its_own_weights() -> Graph:
    b = Lines("dense", DType.FLOAT32)
    x = b.input(1, 20, 2)
    weights = b._weights(weights=(3, 2), bias=(3,))
    return b.graph(b._op("FULLY_CONNECTED", FullyConnected(keep_num_dims=True), x, *weights))


@pytest.mark.parametrize("make", [shared_filter, image, last_row_of_an_image, every_sample_its_own_weights])
def test_what_must_stay(make: object) -> None:
    """A filter that two layers share, images, lines that are made of images, and kinds that are not known to turn."""
    graph = make()  # type: ignore[operator]
    assert columns_as_rows(graph) is graph
