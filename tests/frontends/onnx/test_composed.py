"""Operators made of others, branches that are known, and operands of 8 bits: as onnxruntime computes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.lowering import LOWERINGS
from diagmem.frontends.onnx.reading import read_model
from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph
from diagmem.verification import reference
from diagmem.verification.oracles import outputs_of, second_opinion
from tests.frontends.onnx import making

Array = npt.NDArray[Any]


def graph_of(content: bytes) -> Graph:
    return Importer(read_model(content, None), {}, False).graph("model", LOWERINGS)


def kinds_of(content: bytes) -> Counter[str]:
    return Counter(op.kind for op in graph_of(content).ops)


def assert_agrees(content: bytes, shape: tuple[int, ...], relative: float = 1e-4) -> None:
    """On a few inputs, numpy and onnxruntime."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source, rng = Source(content), np.random.default_rng(0)
    inputs = [[rng.normal(size=shape).astype(np.float32)] for _ in range(3)]
    for values, theirs in zip(inputs, outputs_of(source, inputs), strict=True):
        found = reference.run(source.runnable, values)
        for output, their in zip(source.runnable.outputs, theirs, strict=True):
            assert found[output].shape == their.shape
            assert np.allclose(found[output], their, rtol=relative, atol=1e-5)


def number(value: Any) -> Array:
    return np.array(value, np.float32)


GELU = {
    "quotient, x, half": [
        making.node("Div", ["x", "root"], ["a"]),
        making.node("Erf", ["a"], ["b"]),
        making.node("Add", ["b", "one"], ["c"]),
        making.node("Mul", ["x", "c"], ["d"]),
        making.node("Mul", ["d", "half"], ["y"]),
    ],
    "product, half, x": [
        making.node("Mul", ["inverse", "x"], ["a"]),
        making.node("Erf", ["a"], ["b"]),
        making.node("Add", ["one", "b"], ["c"]),
        making.node("Mul", ["half", "c"], ["d"]),
        making.node("Mul", ["d", "x"], ["y"]),
    ],
    "half of x": [
        making.node("Mul", ["x", "inverse"], ["a"]),
        making.node("Mul", ["x", "half"], ["h"]),
        making.node("Erf", ["a"], ["b"]),
        making.node("Add", ["b", "one"], ["c"]),
        making.node("Mul", ["h", "c"], ["y"]),
    ],
}
NUMBERS = {"root": number(2**0.5), "inverse": number(0.5**0.5), "one": number(1), "half": number(0.5)}


@pytest.mark.parametrize("nodes", GELU.values(), ids=GELU)
def test_gelu_is_found(nodes: list[bytes]) -> None:
    """In every order in which exporters write it, it is one operation; with another number it is not."""
    content = making.model(nodes, {"x": (2, 5)}, {"y": (2, 5)}, NUMBERS)
    kinds = kinds_of(content)
    assert kinds["GELU"] == 1
    assert sum(kinds.values()) <= 2
    assert_agrees(content, (2, 5))
    other = making.model(nodes, {"x": (2, 5)}, {"y": (2, 5)}, {**NUMBERS, "half": number(0.4)})
    assert not kinds_of(other)["GELU"]
    assert_agrees(other, (2, 5))


SINGLE: dict[str, tuple[bytes, dict[str, Array], int]] = {
    "Erf": (making.node("Erf", ["x"], ["y"]), {}, 17),
    "Elu": (making.node("Elu", ["x"], ["y"], alpha=0.3), {}, 17),
    "Celu": (making.node("Celu", ["x"], ["y"], alpha=0.3), {}, 17),
    "Mish": (making.node("Mish", ["x"], ["y"]), {}, 18),
    "LRN": (making.node("LRN", ["x"], ["y"], size=3, alpha=0.5), {}, 17),
    "LpNormalization": (making.node("LpNormalization", ["x"], ["y"], axis=1), {}, 17),
    "CRD": (making.node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD"), {}, 17),
    "DCR": (making.node("DepthToSpace", ["x"], ["y"], blocksize=2), {}, 17),
    "edge": (making.node("Pad", ["x", "p"], ["y"], mode="edge"), {"p": np.array([0, 0, 2, 1, 0, 0, 1, 3])}, 17),
    "cut": (making.node("Pad", ["x", "p"], ["y"]), {"p": np.array([0, 0, -2, 1, 0, 0, 1, -3])}, 17),
    "cubic": (
        making.node("Resize", ["x", "", "s"], ["y"], mode="cubic"),
        {"s": np.array([1, 1, 1.5, 2], np.float32)},
        17,
    ),
    "uneven": (
        making.node("Resize", ["x", "", "s"], ["y"], mode="linear"),
        {"s": np.array([1, 1, 1.7, 0.6], np.float32)},
        17,
    ),
    "vector": (making.node("MatMul", ["x", "v"], ["y"]), {"v": np.arange(6, dtype=np.float32)}, 17),
    "Einsum": (
        making.node("Einsum", ["x", "m"], ["y"], equation="bchw,wk->bkch"),
        {"m": np.arange(18, dtype=np.float32).reshape(6, 3)},
        17,
    ),
    "GatherND": (making.node("GatherND", ["x", "i"], ["y"]), {"i": np.array([[0, 1], [0, -1]])}, 17),
    "ScatterND": (
        making.node("ScatterND", ["x", "i", "u"], ["y"]),
        {"i": np.array([[0, 1], [0, 2]]), "u": np.ones((2, 5, 6), np.float32)},
        17,
    ),
    "last": (making.node("ArgMax", ["x"], ["y"], axis=1, select_last_index=1), {}, 17),
    "GroupNormalization": (
        making.node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=4),
        {"g": np.arange(8, dtype=np.float32), "b": np.ones(8, np.float32)},
        21,
    ),
}


@pytest.mark.parametrize("case", SINGLE.values(), ids=SINGLE)
def test_single_operators(case: tuple[bytes, dict[str, Array], int]) -> None:
    """Each as onnxruntime has it."""
    node, constants, opset = case
    content = making.model([node], {"x": (1, 8, 5, 6)}, {"y": None}, constants, opset)
    assert_agrees(content, (1, 8, 5, 6))


FUNCTIONS = ("Acos", "Asin", "Atan", "Sinh", "Cosh", "Tan", "Acosh", "Asinh", "Atanh", "Sign", "Sin", "Cos", "Log")


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_functions_of_a_number(kind: str) -> None:
    """Within a few units in the last place of onnxruntime's; where there is no result, or none that is finite, there is
    none in both."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    values = np.concatenate([np.linspace(-6, 6, 241), [100, -100, 1e-30, np.inf, -np.inf, np.nan, -0.0]])
    content = making.model([making.node(kind, ["x"], ["y"])], {"x": values.shape}, {"y": values.shape})
    source, given = Source(content), [values.astype(np.float32)]
    ((theirs,),) = outputs_of(source, [given])
    ours = reference.run(source.runnable, given)[source.runnable.outputs[0]]
    assert np.allclose(ours, theirs, rtol=2e-6, atol=1e-6, equal_nan=True)


def branch(kind: str) -> bytes:
    """A graph without inputs that applies an operator to what lies outside."""
    inner = making.data(1, making.node(kind, ["x"], [f"{kind}_made"]))
    return inner + making.data(2, kind) + making.data(12, making.value(f"{kind}_made", (2, 3)))


def if_node(condition: str) -> bytes:
    graphs = b"".join(
        making.data(5, making.data(1, name) + making.data(6, branch(kind)) + making.number(20, 5))
        for name, kind in (("then_branch", "Exp"), ("else_branch", "Neg"))
    )
    return making.data(1, condition) + making.data(2, "y") + making.data(4, "If") + graphs


@pytest.mark.parametrize(("condition", "kind"), [(True, "EXP"), (False, "NEG")])
def test_a_branch_that_is_known_is_taken(condition: bool, kind: str) -> None:
    """The other one is not there; what outside nodes made is not taken in by others before the branch reads it."""
    constants = {"c": np.array(condition)}
    content = making.model([if_node("c")], {"x": (2, 3)}, {"y": (2, 3)}, constants)
    assert kinds_of(content) == {kind: 1}
    assert_agrees(content, (2, 3))


def test_a_branch_that_is_chosen_at_run_time_is_refused() -> None:
    nodes = [making.node("ReduceMax", ["x"], ["m"], keepdims=0), making.node("Greater", ["m", "zero"], ["c"])]
    content = making.model([*nodes, if_node("c")], {"x": (2, 3)}, {"y": (2, 3)}, {"zero": number(0)})
    with pytest.raises(ModelError, match="chosen at run time"):
        graph_of(content)


def scaled(constants: dict[str, Array], name: str, scale: float, zero: int, dtype: str) -> list[str]:
    constants[f"{name}_s"], constants[f"{name}_z"] = number(scale), np.array(zero, dtype)
    return [f"{name}_s", f"{name}_z"]


def held(nodes: list[bytes], constants: dict[str, Array], name: str, scale: float, zero: int) -> str:
    """A value, quantised to 8 bits and dequantised."""
    around = scaled(constants, name, scale, zero, "int8")
    nodes.append(making.node("QuantizeLinear", [name, *around], [f"{name}_q"]))
    nodes.append(making.node("DequantizeLinear", [f"{name}_q", *around], [f"{name}_d"]))
    return f"{name}_d"


@pytest.mark.parametrize("kind", ["Mul", "ReduceMean", "Pad", "Resize", "Split", "ReduceMax"])
def test_quantised_operators_stay_on_integers(kind: str) -> None:
    """Between two conversions of the whole model nothing is float32; what differs from onnxruntime is known."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    nodes: list[bytes] = []
    constants: dict[str, Array] = {}
    x = held(nodes, constants, "x", 0.05, 3)
    more: dict[str, tuple[list[str], dict[str, Any]]] = {
        "Mul": ([x, x], {}),
        "ReduceMean": ([x], {"axes": [2, 3]}),
        "Pad": ([x, "pads"], {}),
        "Resize": ([x, "", "scales"], {"mode": "nearest"}),
        "Split": ([x], {"axis": 1}),
        "ReduceMax": ([x], {"axes": [1]}),
    }
    given, attributes = more[kind]
    constants |= {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "scales": np.array([1, 1, 2, 2], np.float32)}
    outputs = ["t", "rest"] if kind == "Split" else ["t"]
    nodes.append(making.node(kind, given, outputs, **attributes))
    y = held(nodes, constants, "t", 0.04, -5)
    nodes.append(making.node("Identity", [y], ["y"]))
    used = {name: array for name, array in constants.items() if name not in {"pads", "scales"} or name in given}
    content = making.model(nodes, {"x": (1, 4, 6, 6)}, {"y": None}, used)
    source = Source(content)
    ops = source.runnable.ops
    (end,) = (op.index for op in ops if op.kind == "DEQUANTIZE")
    between = [t for op in ops[:end] if op.kind != "TRANSPOSE" or op.index > 1 for t in op.outputs]
    assert {source.runnable.tensors[t].dtype.value for t in between} == {"int8"}
    rng = np.random.default_rng(1)
    inputs = [[rng.normal(size=(1, 4, 6, 6)).astype(np.float32) * 2] for _ in range(10)]
    opinion = second_opinion(source, source.runnable, inputs)
    assert opinion is not None
    assert opinion.disagreement is None


@pytest.mark.parametrize(("zero", "spread", "kinds"), [(120, 100, {"CONV_2D"}), (3, 256, {"CONV_2D", "DEQUANTIZE"})])
def test_weights_around_another_number(zero: int, spread: int, kinds: set[str]) -> None:
    """They are moved where that leaves them 8 bits, and stay on integers; else the layer is in float32."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    rng = np.random.default_rng(0)
    low = max(0, zero - spread // 2)
    constants: dict[str, Array] = {"w": rng.integers(low, low + spread, (4, 3, 3, 3)).astype(np.uint8)}
    names = [scaled(constants, name, scale, z, "uint8") for name, scale, z in (("x", 0.05, 130), ("w", 0.01, zero))]
    output = scaled(constants, "y", 0.5, 100, "uint8")
    nodes = [
        making.node("QuantizeLinear", ["x", *names[0]], ["q"]),
        making.node("QLinearConv", ["q", *names[0], "w", *names[1], *output], ["c"]),
        making.node("DequantizeLinear", ["c", *output], ["y"]),
    ]
    content = making.model(nodes, {"x": (1, 3, 8, 8)}, {"y": None}, constants)
    found = kinds_of(content)
    assert kinds <= set(found)
    assert (found["DEQUANTIZE"] > 1) is ("DEQUANTIZE" in kinds)
    source = Source(content)
    values = [[rng.normal(size=(1, 3, 8, 8)).astype(np.float32) * 2] for _ in range(5)]
    for given, (theirs,) in zip(values, outputs_of(source, values), strict=True):
        ours = reference.run(source.runnable, given)[source.runnable.outputs[0]]
        assert np.abs(ours - theirs).max() <= (0.51 if found["DEQUANTIZE"] > 1 else 0.0)


Q_OPERATORS: list[tuple[str, int, dict[str, Any], int]] = [
    ("QLinearAdd", 2, {}, 17),
    ("QLinearMul", 2, {}, 17),
    ("QLinearConcat", 2, {"axis": 1}, 17),
    ("QLinearAveragePool", 1, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 17),
    ("QLinearAveragePool", 1, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, 17),
    ("QLinearGlobalAveragePool", 1, {}, 17),
    ("QLinearSigmoid", 1, {}, 17),
    ("QLinearLeakyRelu", 1, {"alpha": 0.2}, 17),
    ("QLinearSoftmax", 1, {"axis": 1, "opset": 13}, 17),
    ("QLinearSoftmax", 1, {"axis": 1, "opset": 11}, 11),
]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("kind", "count", "attributes", "opset"), Q_OPERATORS)
def test_operators_on_integers(kind: str, count: int, attributes: dict[str, Any], opset: int, dtype: str) -> None:
    """Operators that have the scales of what they read and make among their inputs compute what onnxruntime does."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    rng = np.random.default_rng(0)
    zero = 0 if dtype == "int8" else 128
    constants: dict[str, Array] = {"c": rng.integers(zero - 100, zero + 100, (1, 4, 6, 6)).astype(dtype)}
    x, c = (scaled(constants, name, scale, zero, dtype) for name, scale in (("x", 0.05), ("c", 0.02)))
    y = scaled(constants, "y", 0.004 if kind in ("QLinearSoftmax", "QLinearSigmoid") else 0.06, zero - 10, dtype)
    operands = [["q", *x], ["c", *c]][:count]
    flat = [name for operand in operands for name in operand]
    nodes = [
        making.node("QuantizeLinear", ["x", *x], ["q"]),
        making.node(
            kind, [*y, *flat] if kind == "QLinearConcat" else [*flat, *y], ["t"], "com.microsoft", **attributes
        ),
        making.node("DequantizeLinear", ["t", *y], ["y"]),
    ]
    used = {name: array for name, array in constants.items() if count == 2 or not name.startswith("c")}
    content = making.model(nodes, {"x": (1, 4, 6, 6)}, {"y": None}, used, opset)
    source = Source(content + making.data(8, making.data(1, "com.microsoft") + making.number(2, 1)))
    values = [[rng.normal(size=(1, 4, 6, 6)).astype(np.float32) * 2] for _ in range(5)]
    for given, (theirs,) in zip(values, outputs_of(source, values), strict=True):
        ours = reference.run(source.runnable, given)[source.runnable.outputs[0]]
        # A step of the output's scale: onnxruntime rounds some of these in float32.
        assert np.abs(ours - theirs).max() <= 1.001 * float(constants[y[0]])


def test_activations_that_are_quantised_at_each_run() -> None:
    """DynamicQuantizeLinear and MatMulInteger, as `quantize_dynamic` writes them."""
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "w": rng.integers(-127, 128, (6, 5)).astype(np.int8),
        "wz": np.array(0, np.int8),
        "ws": number(0.02),
    }
    nodes = [
        making.node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        making.node("MatMulInteger", ["q", "w", "z", "wz"], ["sum"]),
        making.node("Cast", ["sum"], ["real"], to=1),
        making.node("Mul", ["s", "ws"], ["unit"]),
        making.node("Mul", ["real", "unit"], ["y"]),
    ]
    assert_agrees(making.model(nodes, {"x": (3, 6)}, {"y": (3, 5)}, constants), (3, 6))


def test_graphs_inside_nodes_have_a_limit() -> None:
    """Of depth: a file of a few kilobytes cannot make the reader run out of stack."""
    inner = branch("Exp")
    for _ in range(200):
        node = making.data(1, "c") + making.data(2, "y") + making.data(4, "If")
        attribute = making.data(1, "then_branch") + making.data(6, inner) + making.number(20, 5)
        inner = making.data(1, node + making.data(5, attribute)) + making.data(12, making.value("y", (2, 3)))
    content = making.number(1, 8) + making.data(7, inner) + making.data(8, making.number(2, 17))
    with pytest.raises(ModelError, match="deep"):
        read_model(content, None)
