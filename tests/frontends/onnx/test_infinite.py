"""Numbers that are too large are infinite in ONNX, and masks hold such; TensorFlow Lite's stay finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType
from diagmem.ops import Activation, kinds
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.transforms import transformed
from diagmem.verification import reference
from diagmem.verification.oracles import outputs_of
from diagmem.verification.places import CVerdict
from tests.frontends.onnx import making
from tests.networks import Net

Array = npt.NDArray[Any]
SHAPE = (2, 4)
HUGE = np.float32(3e38)

ALONE = ("Sqrt", "Reciprocal", "Exp", "Log", "Relu", "Elu", "Softplus", "Gelu", "Abs", "Neg", "Floor", "LeakyRelu")
PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min")


def compared(nodes: list[bytes], constants: dict[str, Array], given: Array) -> Array:
    """`y` of `x`: ours, which must be onnxruntime's."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    content = making.model(nodes, {"x": given.shape}, {"y": given.shape}, constants, opset=20)
    source = Source(content)
    ((theirs,),) = outputs_of(source, [[given]])
    found = reference.run(source.runnable, [given])[source.runnable.outputs[0]]
    assert np.allclose(found, theirs, rtol=1e-5, equal_nan=True), (found, theirs)
    return found


def numbers() -> Array:
    return np.array([[0, -0.0, 1, -1], [2, -3, np.inf, -np.inf]], np.float32)


@pytest.mark.parametrize("kind", ALONE)
def test_functions(kind: str) -> None:
    """Of what is infinite, and of what becomes so."""
    compared([making.node(kind, ["x"], ["y"])], {}, numbers())
    compared([making.node("Reciprocal", ["x"], ["p"]), making.node(kind, ["p"], ["y"])], {}, numbers())


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs(kind: str) -> None:
    """Of numbers that are too large together, with an activation behind them or without."""
    node = making.node(kind, ["x", "z"], ["p"])
    for behind in ("Relu", "Identity"):
        for value in (HUGE, -HUGE, np.float32(0), np.float32(np.inf)):
            nodes = [node, making.node(behind, ["p"], ["y"])]
            compared(
                nodes, {"z": np.full(SHAPE, value)}, np.array([[1, -1, 3e38, -3e38], [2, 0, 1e38, -5]], np.float32)
            )


@pytest.mark.parametrize("behind", ["Relu", "Identity"])
def test_layers(behind: str) -> None:
    """Sums of products that are too large."""
    given = np.array([[3e38, 0, 0, 0], [0, -3e38, 1, 0]], np.float32)
    node = making.node("Gemm", ["x", "w", "b"], ["p"])
    weights = {"w": np.diag(np.full(4, 3, np.float32)), "b": np.ones(4, np.float32)}
    found = compared([node, making.node(behind, ["p"], ["y"])], weights, given)
    assert np.isinf(found[0, 0])


@pytest.mark.parametrize("own", [Activation.UNLIMITED, Activation.RELU_UNLIMITED, Activation.NONE])
def test_an_activation_that_a_transform_fuses(own: Activation) -> None:
    """It clamps no more than its producer does."""
    net = Net(DType.FLOAT32)
    x = net.input(*SHAPE)
    graph = net.graph(net.relu(net.op("MUL", Binary(own), x, x)))
    (op,) = transformed(graph, ["fuse-activation"])[0].ops
    assert op.attributes.activation is (Activation.RELU if own is Activation.NONE else Activation.RELU_UNLIMITED)


def test_those_of_tensorflow_lite_stay_finite() -> None:
    """But not what only passes an op that clamps nothing."""
    net = Net(DType.FLOAT32)
    x = net.input(*SHAPE)
    graph = net.graph(net.op("MUL", Binary(), x, x), net.op("MAXIMUM", Binary(), x, x), net.op("RELU", Unary(), x))
    found = reference.run(graph, [np.full(SHAPE, np.inf, np.float32)])
    assert [bool(np.isinf(found[t]).all()) for t in graph.outputs] == [False, True, True]


def test_codes_of_activations_in_files_are_those_of_tensorflow_lite() -> None:
    """A network from ONNX, written as a .tflite file."""
    nodes = [
        making.node("Add", ["x", "x"], ["p"]),
        making.node("Relu", ["p"], ["q"]),
        making.node("Mul", ["q", "q"], ["y"]),
    ]
    graph = Source(making.model(nodes, {"x": SHAPE}, {"y": SHAPE}, opset=20)).runnable
    tables = [kinds()[node.op.kind].encode(node) for node in graph.nodes]
    assert [table and table.fields["FusedActivationFunction"] for table in tables] == [1, 0]


def test_a_mask_in_c() -> None:
    """What must not be attended to is minus infinity, as PyTorch writes it."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    nodes = [making.node("Add", ["x", "mask"], ["s"]), making.node("Softmax", ["s"], ["y"], axis=-1)]
    content = making.model(nodes, {"x": (2, 4, 4)}, {"y": (2, 4, 4)}, {"mask": mask})
    (verdict,) = pipeline.verify(Source(content), on=["host"], inputs=8)
    assert isinstance(verdict, CVerdict)
    assert verdict.ok
    assert not verdict.opinion.unseen


def test_layers_have_finite_weights() -> None:
    """Where a window leaves the image it meets 0, or nothing at all: only finite weights make the same of both."""
    weights = np.full((2, 3, 3, 3), np.nan, np.float32)
    node = making.node("Conv", ["x", "w"], ["y"])
    content = making.model([node], {"x": (1, 3, 5, 5)}, {"y": (1, 2, 3, 3)}, {"w": weights})
    with pytest.raises(ModelError, match="weights that are not finite"):
        pipeline.verify(Source(content), on=["host"], inputs=1)
