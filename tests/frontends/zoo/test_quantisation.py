"""TFLite's rules for int8 hold for every quantised model of the zoo."""

from __future__ import annotations

import numpy as np
import pytest

from diagmem.frontends import zoo
from diagmem.frontends.zoo.weights import draw, quantise
from diagmem.model.graph import DType, Graph
from diagmem.ops import Activation
from tests.frontends.zoo.small import INT8, SMALL

NOT_RESCALING = {"AVERAGE_POOL_2D", "MAX_POOL_2D", "RESHAPE", "CONCATENATION", "PAD", "STRIDED_SLICE"}


@pytest.fixture(params=INT8)
def graph(request: pytest.FixtureRequest) -> Graph:
    return SMALL[request.param]()


def test_rules_of_tflite(graph: Graph) -> None:
    """Kernels that do not rescale have one quantisation on both sides; filters are symmetric, per channel for
    convolutions and per tensor for dense layers; a bias has the product of both scales; a softmax has its own."""
    found = quantise(graph, draw(graph, 0))
    assert set(found) == {t.index for t in graph.tensors if t.data is None}
    for node in graph.nodes:
        data, output = found[node.op.inputs[0]], found[node.op.outputs[0]]
        if node.op.kind in NOT_RESCALING:
            assert {found[t.index] for _, t in node.activations()} == {output}
        if node.op.kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            filters, bias = found[node.op.inputs[1]], found[node.op.inputs[2]]
            channels = node.output.shape[-1]
            assert len(filters.scales) == (1 if node.op.kind == "FULLY_CONNECTED" else channels)
            assert filters.axis == (3 if node.op.kind == "DEPTHWISE_CONV_2D" else 0)
            assert set(filters.zero_points) | set(bias.zero_points) == {0}
            assert bias.scales == pytest.approx(np.array(filters.scales) * data.scales[0], rel=1e-6)
        if node.op.kind == "SOFTMAX":
            assert (output.scales, output.zero_points) == ((1 / 256,), (-128,))


def test_range_of_activations(graph: Graph) -> None:
    """Real 0 is stored exactly and in range, as zero padding needs; what a ReLU writes uses the whole range above 0."""
    found = quantise(graph, draw(graph, 0))
    for node in graph.nodes:
        zero_point = found[node.output.index].zero_points[0]
        assert -128 <= zero_point <= 127
        shared = any(graph.nodes[c].op.kind == "CONCATENATION" for c in graph.consumers.get(node.output.index, ()))
        is_rectified = getattr(node.attributes, "activation", None) is Activation.RELU or node.op.kind == "RELU"
        if is_rectified and not shared:
            assert zero_point == -128


def test_float_models_have_none() -> None:
    """Nothing of a float model is quantised."""
    graph = zoo.build("mobilenet_v1_0.25_224")
    assert quantise(graph, draw(graph, 0)) == {}


def test_variants_hold_the_same_weights() -> None:
    """The int8 and the float variant of a model have the same filters and the same biases."""
    quantised, real = SMALL["small resnet_v2 int8"](), SMALL["small resnet_v2 float32"]()
    ours, theirs = draw(quantised, 3), draw(real, 3)
    assert list(ours.filters) == list(theirs.filters)
    for index, filters in ours.filters.items():
        assert quantised.tensors[index].dtype is DType.INT8
        np.testing.assert_array_equal(filters.real(), theirs.filters[index].real())
    for index, vector in ours.vectors.items():
        np.testing.assert_array_equal(vector, theirs.vectors[index])
