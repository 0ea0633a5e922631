"""Variables in float32 that hold integers become these integers, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.model.graph import DType, Graph, Op, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.transforms import transformed
from diagmem.verification import reference
from tests.backends.c.models import compiler
from tests.state_files import to_tflite

SCALE = Quantisation((0.0625,), (3,))
OTHER = Quantisation((0.07,), (3,))
ROWS, NEW, KEPT = (1, 5, 1, 2), (1, 2, 1, 2), (1, 3, 1, 2)


def ints(index: int, *values: int) -> Tensor:
    data = np.array(values, np.int32)
    return Tensor(index, f"ints{index}", data.shape, DType.INT32, is_constant=True, data=data)


def window(new: Quantisation = SCALE, is_seen: bool = False) -> Graph:
    """Two new rows a run behind the last three: integers, but for the variable. `new`: the scale of the new ones;
    `is_seen`: the real window leaves the network."""
    first = np.random.default_rng(1).normal(0, 2, KEPT).astype(np.float32)
    tensors = (
        Tensor(0, "state", KEPT, DType.FLOAT32, is_variable=True, initial=first),
        Tensor(1, "in", NEW, DType.INT8, new),
        Tensor(2, "read", KEPT, DType.FLOAT32),
        Tensor(3, "new", NEW, DType.FLOAT32),
        Tensor(4, "window", ROWS, DType.FLOAT32),
        Tensor(5, "stored", ROWS, DType.INT8, SCALE),
        Tensor(6, "kept", KEPT, DType.INT8, SCALE),
        Tensor(7, "real", KEPT, DType.FLOAT32),
        Tensor(8, "out", ROWS, DType.INT8, SCALE),
        ints(9, 0, 2, 0, 0),
        ints(10, *KEPT),
    )
    plain = {name: kinds()[name].decode(name, None) for name in ("CONCATENATION", "QUANTIZE", "DEQUANTIZE", "RELU")}
    ops = (
        Op(0, "READ_VARIABLE", (0,), (2,)),
        Op(1, "DEQUANTIZE", (1,), (3,), plain["DEQUANTIZE"]),
        Op(2, "CONCATENATION", (2, 3), (4,), replace(plain["CONCATENATION"], axis=1)),
        Op(3, "QUANTIZE", (4,), (5,), plain["QUANTIZE"]),
        Op(4, "RELU", (5,), (8,), plain["RELU"]),
        Op(5, "SLICE", (5, 9, 10), (6,), kinds()["SLICE"].decode("SLICE", None)),
        Op(6, "DEQUANTIZE", (6,), (7,), plain["DEQUANTIZE"]),
        Op(7, "ASSIGN_VARIABLE", (7,), (0,)),
    )
    return Graph("window", tensors, ops, (1,), (8, 4) if is_seen else (8,))


def inputs(count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(2)
    return [[rng.integers(-128, 128, NEW).astype(np.int8)] for _ in range(count)]


def test_the_way_through_real_numbers_goes() -> None:
    """The variable takes a quarter of its bytes, and runs give the same, from its first value on and after a reset."""
    graph = window()
    narrow, (removal,) = transformed(graph, ["narrow-state"])
    assert set(removal.ops) == {1, 3, 6}
    assert [t.dtype for t in narrow.variables] == [DType.INT8]
    runs = zip(reference.runs(graph, inputs(9), (5,)), reference.runs(narrow, inputs(9), (5,)), strict=True)
    for before, after in runs:
        assert np.array_equal(before[8], after[8])
        assert np.array_equal(before[6], after[0])


@pytest.mark.parametrize("graph", [window(new=OTHER), window(is_seen=True)], ids=["another scale", "seen"])
def test_what_is_real_stays(graph: Graph) -> None:
    """Where new rows come with another scale, or the caller looks at the real window."""
    assert transformed(graph, ["narrow-state"]) == (graph, ())


def test_scales_that_lose_integers_stay() -> None:
    """A scale so large that some integers stand for what is infinite."""
    huge = Quantisation((3e36,), (3,))
    graph = window(new=huge)
    tensors = tuple(replace(t, quantisation=huge) if t.quantisation == SCALE else t for t in graph.tensors)
    graph = replace(graph, tensors=tensors)
    assert transformed(graph, ["narrow-state"]) == (graph, ())


def test_in_c_every_variable_is_compared(tmp_path: Path) -> None:
    """With the model's float32 values in integers."""
    compiler("gcc")
    path = tmp_path / "window.tflite"
    path.write_bytes(to_tflite(window()))
    assert any(removal.transform == "narrow-state" for removal in diagmem.plan(path).removals)
    (verdict,) = diagmem.verify(path, inputs=7)
    assert verdict.ok, verdict.failure
