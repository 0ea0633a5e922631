"""Opsets 1 to 6: what attributes said there, inputs and shapes say today."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.frontends.onnx import parse
from diagmem.frontends.source import Source
from diagmem.verification import reference
from diagmem.verification.oracles import outputs_of
from tests.frontends.onnx import making

Array = npt.NDArray[Any]

SHAPE = (2, 3, 4, 5)
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


CHANNELS, PLANE, IMAGES = drawn(3), drawn(3, 4), drawn(2)
PADS = np.array([0, 0, 1, 1, 0, 0, 1, 2])
SELU = {"alpha": 1.6732, "gamma": 1.0507}

Case = tuple[str, dict[str, Any], list[Array], dict[str, Any], list[Array], str]
CASES: dict[str, Case] = {
    "per channel": ("Add", {"broadcast": 1, "axis": 1}, [CHANNELS], {}, [CHANNELS.reshape(3, 1, 1)], ""),
    "in the middle": ("Mul", {"broadcast": 1, "axis": -3}, [PLANE], {}, [PLANE.reshape(3, 4, 1)], ""),
    "per image": ("Sub", {"broadcast": 1, "axis": 0}, [IMAGES], {}, [IMAGES.reshape(2, 1, 1, 1)], ""),
    "the last axis": ("Div", {"broadcast": 1}, [drawn(5)], {}, [], ""),
    "consumed": ("Relu", {"consumed_inputs": [0]}, [], {}, [], ""),
    "normalised": (
        "BatchNormalization",
        {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1, "spatial": 1},
        [drawn(3) for _ in range(4)],
        {},
        [],
        "",
    ),
    "shape": ("Reshape", {"shape": [0, -1]}, [], {}, [np.array([0, -1])], ""),
    "dropped": ("Dropout", {"is_test": 1, "ratio": 0.3}, [], {}, [], ""),
    "paddings": ("Pad", {"paddings": PADS.tolist(), "value": 0.5}, [], {}, [PADS, np.array(0.5, np.float32)], ""),
    "pads": ("Pad", {"pads": PADS.tolist(), "mode": "edge"}, [], {"mode": "edge"}, [PADS], ""),
    "limits": ("Clip", {"min": -0.5, "max": 0.5}, [], {}, [np.array(n, np.float32) for n in (-0.5, 0.5)], ""),
    "slices": ("Slice", {"starts": [1], "ends": [3], "axes": [2]}, [], {}, [np.array([n]) for n in (1, 3, 2)], ""),
    "slopes": ("PRelu", {}, [CHANNELS], {}, [CHANNELS.reshape(3, 1, 1)], ""),
    "type": ("Cast", {"to": "INT32"}, [], {"to": 6}, [], ""),
    "larger": (
        "Upsample",
        {"height_scale": 2.0, "width_scale": 3.0},
        [],
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        [np.empty(0, np.float32), np.array([1, 1, 2, 3], np.float32)],
        "Resize",
    ),
    "steeper": ("Selu", {}, [], SELU, [], ""),
    "soft": ("Softmax", {}, [], {}, [], ""),
}


def made(kind: str, given: dict[str, Any], constants: list[Array], opset: int) -> bytes:
    names = [f"c{number}" for number in range(len(constants))]
    node = making.node(kind, ["x", *names], ["y"], **given)
    return making.model([node], {"x": SHAPE}, {"y": None}, dict(zip(names, constants, strict=True)), opset)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_onnxruntime_makes_of_the_newer_form(case: Case, opset: int) -> None:
    """Of both forms, for onnxruntime runs few of the older ones."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    kind, old, before, new, after, newer = case
    values = [RNG.normal(size=SHAPE).astype(np.float32)]
    ((theirs,),) = outputs_of(Source(made(newer or kind, new, after or before, 11)), [values])
    graph = parse(made(kind, old, before, opset), "old")
    ours = reference.run(graph, values)[graph.outputs[0]]
    assert ours.shape == theirs.shape
    assert np.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_first_files_name_no_opset() -> None:
    """There was one, 1."""
    content = made("Relu", {}, [], 1).replace(making.number(1, 8), making.number(1, 2), 1)
    graph = parse(content.removesuffix(making.data(8, making.number(2, 1))), "old")
    assert [op.kind for op in graph.ops] == ["RELU"]


def test_a_bias_of_another_axis_is_no_bias() -> None:
    """A product's rows are given numbers, not its columns."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    nodes = [making.node("MatMul", ["x", "w"], ["a"]), making.node("Add", ["a", "b"], ["y"], broadcast=1, axis=0)]
    newer = [nodes[0], making.node("Add", ["a", "b"], ["y"])]
    constants = {"w": drawn(5, 5), "b": drawn(5)}
    values = [drawn(5, 5)]
    column = {**constants, "b": constants["b"].reshape(5, 1)}
    ((theirs,),) = outputs_of(Source(making.model(newer, {"x": (5, 5)}, {"y": None}, column, 11)), [values])
    graph = parse(making.model(nodes, {"x": (5, 5)}, {"y": None}, constants, 6), "old")
    assert np.allclose(reference.run(graph, values)[graph.outputs[0]], theirs, rtol=1e-4)
