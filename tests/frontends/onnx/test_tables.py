"""Tables whose rows the input selects: embeddings, and whatever else is gathered at indices that a run computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.model.graph import DType
from diagmem.verification import reference
from diagmem.verification.oracles import second_opinion
from tests.backends.c.models import compiler
from tests.frontends.onnx import making

Array = npt.NDArray[Any]

TABLE = np.random.default_rng(0).normal(size=(5, 6, 7)).astype(np.float32)


def gathering(kind: str, shape: tuple[int, ...], dtype: str = "int64", **attributes: Any) -> Source:
    node = making.node(kind, ["t", "i"], ["y"], **attributes)
    return Source(making.model([node], {"i": shape}, {"y": None}, {"t": TABLE}, types={"i": dtype}))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("axis", "shape"), [(0, (3,)), (0, (2, 3)), (1, (2, 3)), (-1, ()), (2, (4,))])
def test_indices_of_a_run(axis: int, shape: tuple[int, ...], dtype: str) -> None:
    """On any axis, counted from either end, as onnxruntime takes them; those below 0 count from the end."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source, size = gathering("Gather", shape, dtype, axis=axis), TABLE.shape[axis]
    rng = np.random.default_rng(1)
    inputs: list[list[Array]] = [[rng.integers(-size, size, shape).astype(dtype)] for _ in range(3)]
    found = second_opinion(source, source.runnable, inputs)
    assert found is not None
    assert found.disagreement is None


@pytest.mark.parametrize("kind", ["Gather", "GatherND"])
def test_samples_are_sound(kind: str) -> None:
    """What is compared is indices that the table has, from the first row to the last, from its end too: onnxruntime
    refuses others. The C code agrees bit for bit."""
    compiler("gcc")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    source = gathering(kind, (40, 2))
    sampled = np.concatenate([run[0].reshape(-1) for run in reference.sample_inputs(source.runnable, 8)])
    assert (sampled.min(), sampled.max()) == (-5, 4)
    (verdict,) = pipeline.verify(source, inputs=7)
    assert verdict.ok, verdict.failure
    assert verdict.to_json()["compared_with"] == ["numpy", "onnxruntime"]


def test_a_table_of_8_bits_stays_one() -> None:
    """Rows are taken as they are stored, and become float32 after that."""
    nodes = [making.node("DequantizeLinear", ["t", "s", "z"], ["f"]), making.node("Gather", ["f", "i"], ["y"])]
    constants: dict[str, Array] = {
        "t": (TABLE * 20).astype(np.int8),
        "s": np.array(0.5, np.float32),
        "z": np.array(3, np.int8),
    }
    source = Source(making.model(nodes, {"i": (2,)}, {"y": None}, constants, types={"i": "int64"}))
    graph = source.runnable
    tables = [t.dtype for t in graph.tensors if t.elems == TABLE.size and t.is_constant]
    assert tables == [DType.INT8]
    pytest.importorskip("onnxruntime", reason="needs onnxruntime to compare with")
    found = second_opinion(source, graph, [[np.array([4, -4])]])
    assert found is not None
    assert found.disagreement is None
