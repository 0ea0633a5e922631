"""Operators on whole numbers of 32 and 64 bits: as onnxruntime computes them, also where results wrap around."""

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

DTYPES = ("int32", "int64")
WIDTH = 8

EXACT = 1 << 53
"""Integers up to there are exact in float64."""


def edges(dtype: str) -> Array:
    info, half = np.iinfo(dtype), np.iinfo(dtype).bits // 2
    found = [info.min, info.min + 1, -(3 << half), -7, -1, 0, 1, 2, 5, 7, 3 << half, 1 << half, info.max - 1, info.max]
    return np.resize(np.array(found, dtype), (2, WIDTH))


def compare(
    nodes: list[bytes],
    dtype: str,
    constants: dict[str, Array],
    free: str = "x",
    made: str = "",
    shape: Any = None,
    most: int = 1 << 63,
) -> None:
    """`y` of the inputs `free`, on edges up to `most`: ours, and onnxruntime's. `made`: the type of `y`."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    values = np.clip(edges(dtype), max(np.iinfo(dtype).min, -most), min(np.iinfo(dtype).max, most))
    given = [values, values[:, ::-1].copy()][: len(free)]
    names, shapes = dict.fromkeys(free, (2, WIDTH)), {"y": (2, WIDTH) if shape is None else shape}
    dtypes = {**dict.fromkeys(names, dtype), "y": made or dtype}
    content = making.model(nodes, names, shapes, constants, opset=18, types=dtypes)
    source = Source(content)
    (theirs,) = outputs_of(source, [given])
    found = reference.run(source.runnable, given)[source.runnable.outputs[0]]
    assert found.dtype == theirs[0].dtype
    assert np.array_equal(found, theirs[0]), (found, theirs[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Max", "Min"])
def test_pairs(kind: str, dtype: str) -> None:
    """Of two tensors, and of a tensor and a constant on either side."""
    compare([making.node(kind, ["x", "z"], ["y"])], dtype, {}, "xz")
    for value in (-3, 46, np.iinfo(dtype).max):
        constant = {"z": np.array(value, dtype)}
        compare([making.node(kind, ["x", "z"], ["y"])], dtype, constant)
        compare([making.node(kind, ["z", "x"], ["y"])], dtype, constant)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients(dtype: str) -> None:
    """Div goes towards 0; Mod has the sign of the divisor, and with fmod, which onnxruntime computes in float64, that
    of the dividend."""
    for value in (3, -7, 8, np.iinfo(dtype).max):
        constant = {"z": np.array([value], dtype)}
        compare([making.node("Div", ["x", "z"], ["y"])], dtype, constant)
        compare([making.node("Mod", ["x", "z"], ["y"])], dtype, constant)
        compare([making.node("Mod", ["x", "z"], ["y"], fmod=1)], dtype, constant, most=EXACT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["Less", "LessOrEqual", "Greater", "Equal"])
def test_comparisons(kind: str, dtype: str) -> None:
    compare([making.node(kind, ["x", "z"], ["y"])], dtype, {}, "xz", made="bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_numbers(dtype: str) -> None:
    """Signs, sizes, limits, squares."""
    info = np.iinfo(dtype)
    for kind in ("Abs", "Neg", "Sign", "Relu"):
        compare([making.node(kind, ["x"], ["y"])], dtype, {})
    for low, high in ((-5, 100), (0, 6), (0, info.max), (info.min, 3), (info.max - 1, info.max)):
        limits = {"z": np.array(low, dtype), "high": np.array(high, dtype)}
        compare([making.node("Clip", ["x", "z", "high"], ["y"])], dtype, limits)
    compare([making.node("Pow", ["x", "z"], ["y"])], dtype, {"z": np.array(2, dtype)})
    behind_a_sum = [making.node("Add", ["x", "z"], ["s"]), making.node("Relu", ["s"], ["y"])]
    compare(behind_a_sum, dtype, {"z": np.array(1, dtype)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype: str) -> None:
    """Over an axis. onnxruntime adds 64-bit numbers up in float64."""
    small = [making.node("Div", ["x", "z"], ["s"])]
    constants = {"z": np.array(32, dtype), "axes": np.array([1])}
    for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
        compare([*small, making.node(kind, ["s", "axes"], ["y"])], dtype, constants, shape=(2, 1), most=EXACT)
    compare([making.node("CumSum", ["x", "axis"], ["y"])], dtype, {"axis": np.array(1)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrix_products(dtype: str) -> None:
    """With constant weights, and with computed ones."""
    rng = np.random.default_rng(0)
    weights = {"z": rng.integers(-99, 99, (WIDTH, 3)).astype(dtype), "bias": rng.integers(-99, 99, 3).astype(dtype)}
    nodes = [making.node("MatMul", ["x", "z"], ["p"]), making.node("Add", ["p", "bias"], ["y"])]
    compare(nodes, dtype, weights, shape=(2, 3))
    turned = [making.node("Transpose", ["z"], ["t"], perm=[1, 0]), making.node("MatMul", ["x", "t"], ["y"])]
    compare(turned, dtype, {}, "xz", shape=(2, 2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype: str) -> None:
    """To real numbers and back, scaled as integer networks do it between."""
    numbers = {"factor": np.array(46, dtype), "divisor": np.array(1 << 20, dtype), "z": np.array(1.5, np.float32)}
    nodes = [
        making.node("Cast", ["x"], ["f"], to=1),
        making.node("Div", ["f", "z"], ["g"]),
        making.node("Cast", ["g"], ["i"], to=making.TYPES[dtype]),
        making.node("Mul", ["i", "factor"], ["m"]),
        making.node("Div", ["m", "divisor"], ["d"]),
        making.node("Cast", ["d"], ["h"], to=1),
        making.node("Floor", ["h"], ["y"]),
    ]
    compare(nodes, dtype, numbers, made="float32")
