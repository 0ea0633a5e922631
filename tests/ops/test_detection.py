"""Detections are those of other runtimes, up to the last one; there is nothing behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagmem.frontends import tflite
from diagmem.model.graph import DType
from diagmem.ops import kinds
from diagmem.ops.fitting import input_values
from tests.ops.drawing import sampled
from tests.ops.single_op import ORACLES, ask, is_installed, to_tflite

NAME = "CUSTOM:TFLite_Detection_PostProcess"


@pytest.mark.parametrize("oracle", ORACLES)
def test_detections_agree(oracle: str) -> None:
    """Real numbers with both, 8-bit ones with LiteRT; ties, backgrounds, classes apart and together."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    nodes = sampled(NAME, 80)
    inputs = [input_values(node, np.random.default_rng(seed)) for seed, node in enumerate(nodes)]
    compared = set()
    for node, values, answer in zip(nodes, inputs, ask(oracle, nodes, inputs), strict=True):
        if isinstance(answer, str):
            continue
        *wanted, number = kinds()[NAME].reference(node, values)
        count = int(number.reshape(-1)[0])
        assert int(answer[3].reshape(-1)[0]) == count, node
        for found, right in zip(answer, wanted, strict=False):
            found, right = (a.reshape(node.attributes.max_detections, -1) for a in (found, right))
            np.testing.assert_allclose(found[:count], right[:count], rtol=1e-6, atol=1e-6)
            assert not right[count:].any()
        compared.add((node.input(0).dtype, bool(node.attributes.use_regular_nms), count > 1))
    types = (DType.FLOAT32,) if oracle == "tflm" else (DType.FLOAT32, DType.UINT8)
    assert {(dtype, way, True) for dtype in types for way in (False, True)} <= compared


def test_shapes_follow_where_the_file_has_none() -> None:
    """Converters write none for operations that TFLite does not define."""
    (node,) = sampled(NAME, 1)
    bare = replace(node, outputs=tuple(replace(t, shape=()) for t in node.outputs))
    graph = tflite.parse(to_tflite(bare), "detections")
    assert [graph.tensors[t].shape for t in graph.outputs] == [t.shape for t in node.outputs]
