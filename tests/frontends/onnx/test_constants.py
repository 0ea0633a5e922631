"""What nodes make of constants is constant, whichever nodes they are: weights, shapes, tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.frontends.source import Source
from diagmem.verification import reference
from diagmem.verification.oracles import outputs_of
from tests.frontends.onnx import making

Array = npt.NDArray[Any]
RNG = np.random.default_rng(3)


def compared(
    nodes: list[bytes], shape: tuple[int, ...], made: tuple[int, ...], constants: dict[str, Array]
) -> list[str]:
    """The kinds of operations that are left of a model whose outputs are onnxruntime's."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source = Source(making.model(nodes, {"x": shape}, {"y": made}, constants))
    graph = source.runnable
    given = RNG.standard_normal(shape).astype(np.float32)
    ((theirs,),) = outputs_of(source, [[given]])
    assert np.allclose(reference.run(graph, [given])[graph.outputs[0]].reshape(made), theirs, rtol=1e-5, atol=1e-6)
    return [op.kind for op in graph.ops]


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def test_weights_that_are_normalised_in_the_file() -> None:
    """As torch's weight_norm is exported: what a convolution reads is computed from constants."""
    nodes = [
        making.node("ReduceL2", ["v"], ["norm"], axes=[1, 2], keepdims=1),
        making.node("Div", ["v", "norm"], ["unit"]),
        making.node("Mul", ["unit", "g"], ["w"]),
        making.node("Conv", ["x", "w"], ["y"]),
    ]
    kinds = compared(nodes, (1, 3, 9), (1, 4, 7), {"v": real(4, 3, 3), "g": real(4, 1, 1)})
    assert kinds.count("CONV_2D") == 1
    assert not {"DIV", "MUL", "SUM", "SQRT"} & {*kinds}


def test_a_shape_that_is_split_and_joined() -> None:
    nodes = [
        making.node("Shape", ["x"], ["s"]),
        making.node("Split", ["s", "parts"], ["a", "b"], axis=0),
        making.node("Concat", ["b", "a"], ["t"], axis=0),
        making.node("Reshape", ["x", "t"], ["y"]),
    ]
    assert compared(nodes, (2, 3, 4), (3, 4, 2), {"parts": np.array([1, 2])}) == ["RESHAPE"]


def test_places_of_what_is_not_0() -> None:
    nodes = [
        making.node("NonZero", ["kept"], ["n"]),
        making.node("Transpose", ["n"], ["places"], perm=[1, 0]),
        making.node("GatherND", ["x", "places"], ["y"]),
    ]
    compared(nodes, (2, 3), (3,), {"kept": np.array([[1, 0, 1], [0, 1, 0]], np.float32)})


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_layers_of_constants(axes: tuple[int, int]) -> None:
    """A product of matrices, its softmax, and what a transpose makes of that."""
    nodes = [
        making.node("MatMul", ["a", "b"], ["c"]),
        making.node("Softmax", ["c"], ["s"], axis=-1),
        making.node("Transpose", ["s"], ["t"], perm=list(axes)),
        making.node("Add", ["x", "t"], ["y"]),
    ]
    assert compared(nodes, (3, 3), (3, 3), {"a": real(3, 5), "b": real(5, 3)}) == ["ADD"]


def test_an_image_that_is_constant() -> None:
    """It is held with channels last; what comes of it has the order of the file."""
    nodes = [
        making.node("Conv", ["image", "w"], ["c"]),
        making.node("Sigmoid", ["c"], ["s"]),
        making.node("Add", ["x", "s"], ["y"]),
    ]
    kinds = compared(nodes, (1, 2, 4, 5), (1, 2, 4, 5), {"image": real(1, 3, 4, 5), "w": real(2, 3, 1, 1)})
    assert "CONV_2D" not in kinds


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("above", [-1, 0, 2])
def test_triangles(upper: int, above: int) -> None:
    """Of constants, and at run time: what is cut off is 0, even where it was infinite."""
    node = making.node("Trilu", ["x", "k"], ["y"], upper=upper)
    assert compared([node], (2, 4, 5), (2, 4, 5), {"k": np.array(above)}) == ["SELECT_V2"]
    nodes = [making.node("Trilu", ["m", "k"], ["t"], upper=upper), making.node("Max", ["x", "t"], ["y"])]
    mask = np.full((4, 4), -np.inf, np.float32)
    assert compared(nodes, (2, 4, 4), (2, 4, 4), {"k": np.array(above), "m": mask}) == ["MAXIMUM"]


@pytest.mark.parametrize("each", [False, True])
def test_weights_that_are_quantised_in_the_file(each: bool) -> None:
    """As exporters leave them behind training for quantisation: float32, a QuantizeLinear, and a DequantizeLinear."""
    scales = np.array([0.0371, 0.0513], np.float32) if each else np.array(0.0371, np.float32)
    zeros = np.zeros(scales.shape, np.int8)
    nodes = [
        making.node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=0),
        making.node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0),
        making.node("Conv", ["x", "d"], ["y"]),
    ]
    kinds = compared(nodes, (1, 3, 5, 5), (1, 2, 5, 5), {"w": real(2, 3, 1, 1), "s": scales, "z": zeros})
    assert "QUANTIZE" not in kinds


@pytest.mark.parametrize("exponent", [2, 3, 4])
def test_powers_of_integers(exponent: int) -> None:
    nodes = [
        making.node("Cast", ["x"], ["i"], to=7),
        making.node("Pow", ["i", "n"], ["p"]),
        making.node("Cast", ["p"], ["y"], to=1),
    ]
    kinds = compared(nodes, (2, 3), (2, 3), {"n": np.array(exponent)})
    assert kinds.count("MUL") == exponent - 1
