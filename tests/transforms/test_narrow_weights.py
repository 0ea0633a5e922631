"""Weights that a file stores narrower than they are multiplied stay so, and results are the same bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import diagmem
from diagmem.model.graph import DType, Graph, Op, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.transforms import transformed, weights_of
from diagmem.verification import reference
from diagmem.verification.places import CVerdict
from tests.backends.c.models import compiler
from tests.tflite_files import file_of

PER_CHANNEL = Quantisation((0.01, 0.02, 0.03), (0, 0, 0), 0)
ONE = Quantisation((0.01,), (0,))


def layer(dtype: DType, scale: Quantisation | None = None, is_shared: bool = False) -> Graph:
    """A fully connected layer whose weights are widened before; `is_shared`: a sum reads them too."""
    rng = np.random.default_rng(3)
    shape = (3, 5)
    data: npt.NDArray[Any] = rng.normal(0, 2, shape).astype(np.float16)
    if dtype is DType.INT8:
        data = rng.integers(-127, 128, shape).astype(np.int8)
    bias = rng.normal(0, 1, 3).astype(np.float16)
    tensors = (
        Tensor(0, "in", (3, 5), DType.FLOAT32),
        Tensor(1, "stored", shape, dtype, scale, is_constant=True, data=data),
        Tensor(2, "wide", shape, DType.FLOAT32),
        Tensor(3, "stored_bias", (3,), DType.FLOAT16, is_constant=True, data=bias),
        Tensor(4, "bias", (3,), DType.FLOAT32),
        Tensor(5, "out", (3, 3), DType.FLOAT32),
        Tensor(6, "sum", (3, 5), DType.FLOAT32),
    )
    plain = {name: kinds()[name].decode(name, None) for name in ("DEQUANTIZE", "FULLY_CONNECTED", "ADD")}
    ops = [
        Op(0, "DEQUANTIZE", (1,), (2,), plain["DEQUANTIZE"]),
        Op(1, "DEQUANTIZE", (3,), (4,), plain["DEQUANTIZE"]),
        Op(2, "FULLY_CONNECTED", (0, 2, 4), (5,), plain["FULLY_CONNECTED"]),
        Op(3, "ADD", (0, 2), (6,), plain["ADD"]),
    ]
    return Graph("layer", tensors, tuple(ops if is_shared else ops[:3]), (0,), (5, 6) if is_shared else (5,))


@pytest.mark.parametrize(("dtype", "scale"), [(DType.FLOAT16, None), (DType.INT8, ONE)])
def test_they_are_multiplied_as_they_are_stored(dtype: DType, scale: Quantisation | None) -> None:
    """Half, or a quarter, of the flash; the same bits."""
    graph = layer(dtype, scale)
    narrow, removals = transformed(graph, ["narrow-weights", "fold-constants"])
    wide, _ = transformed(graph, ["fold-constants"])
    assert [op.kind for op in narrow.ops] == ["FULLY_CONNECTED"]
    assert {removal.transform for removal in removals} == {"narrow-weights", "fold-constants"}
    assert weights_of(wide) - weights_of(narrow) == 15 * (4 - dtype.size_bytes)
    inputs = [[np.random.default_rng(4).normal(0, 1, (3, 5)).astype(np.float32)]]
    (ours,), (theirs,) = (list(reference.runs(found, inputs)) for found in (narrow, graph))
    assert np.array_equal(ours[5], theirs[5])


def test_a_scale_for_each_channel() -> None:
    """Along the axis that the layer has its outputs on, which DEQUANTIZE by itself has no kernel for."""
    narrow, _ = transformed(layer(DType.INT8, PER_CHANNEL), ["narrow-weights", "fold-constants"])
    assert [op.kind for op in narrow.ops] == ["FULLY_CONNECTED"]


@pytest.mark.parametrize(
    "graph",
    [layer(DType.FLOAT16, is_shared=True), layer(DType.INT8, Quantisation((0.01,), (5,)))],
    ids=["read by others", "a zero point"],
)
def test_what_kernels_do_not_take_is_widened(graph: Graph) -> None:
    assert transformed(graph, ["narrow-weights"]) == (graph, ())


def test_in_c(tmp_path: Path) -> None:
    compiler("gcc")
    path = tmp_path / "layer.tflite"
    path.write_bytes(file_of(layer(DType.FLOAT16)))
    (verdict,) = diagmem.verify(path, inputs=7)
    assert verdict.ok, verdict.failure
    assert isinstance(verdict, CVerdict)
    assert verdict.run.weights_bytes == 15 * 2 + 3 * 4
