"""Detections are those of other runtimes, up to the last one; there is nothing behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagmem.frontends import tflite
from diagmem.model.graph import DType, Node
from diagmem.ops import kinds
from diagmem.verification.oracles import deviation
from tests.ops.drawing import sampled
from tests.ops.fitting import input_values
from tests.ops.single_op import ORACLES, ask, is_installed, to_tflite

NAME = "CUSTOM:TFLite_Detection_PostProcess"


@pytest.mark.parametrize("oracle", ORACLES)
def test_detections_agree(oracle: str) -> None:
    """Floats with both, 8-bit ones with LiteRT; ties, backgrounds, classes apart and together."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    nodes = sampled(NAME, 80)
    inputs = [_values(node, np.random.default_rng(seed)) for seed, node in enumerate(nodes)]
    compared, whole = set(), 0
    for node, values, answer in zip(nodes, inputs, ask(oracle, nodes, inputs), strict=True):
        slots = node.attributes.slots
        if isinstance(answer, str) or (oracle == "tflm" and slots > 1):
            continue  # TFLM writes several classes of one detection beyond its outputs
        *wanted, number = kinds()[NAME].reference(node, values)
        count = int(number.reshape(-1)[0])
        assert int(answer[3].reshape(-1)[0]) == count, node
        for found, right in zip(answer, wanted, strict=False):
            found, right = (a.reshape(node.outputs[1].elems, -1) for a in (found, right))
            is_clear = slots == 1 or (slots <= node.attributes.num_classes and node.input(1).dtype is DType.FLOAT32)
            if is_clear:
                np.testing.assert_allclose(found[: slots * count], right[: slots * count], rtol=1e-6, atol=1e-6)
            assert not right[slots * count :].any()
            if deviation(oracle, node) is None:
                np.testing.assert_allclose(found, right, rtol=1e-6, atol=1e-6)
                whole += 1
        compared.add((node.input(0).dtype, bool(node.attributes.use_regular_nms), count > 1))
    types = (DType.FLOAT32,) if oracle == "tflm" else (DType.FLOAT32, DType.UINT8)
    assert {(dtype, way, True) for dtype in types for way in (False, True)} <= compared
    assert whole > 5


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize(("regular", "classes", "is_known"), [(1, 1, False), (1, 2, True), (0, 1, True), (0, 2, True)])
def test_places_that_others_leave_are_known(oracle: str, regular: int, classes: int, is_known: bool) -> None:
    """Places behind the last detection are all written only where classes are taken one by one, one for a detection:
    else there are more places than detections."""
    (node,) = sampled(NAME, 1)
    given = replace(node.attributes, use_regular_nms=regular, max_classes_per_detection=classes)
    assert (deviation(oracle, replace(node, op=replace(node.op, attributes=given))) is not None) == is_known


def _values(node: Node, rng: np.random.Generator) -> tuple[Any, ...]:
    """No two scores of a box are alike where several of its classes are asked for: LiteRT gives those in any order."""
    boxes, scores, anchors = input_values(node, rng)
    if node.attributes.slots > 1 and node.input(1).dtype is DType.FLOAT32:
        scores = rng.permutation(node.input(1).elems).reshape(node.input(1).shape).astype(np.float32) / 64
    return boxes, scores, anchors


def test_shapes_follow_where_the_file_has_none() -> None:
    """Converters write none for operations that TFLite does not define."""
    (node,) = sampled(NAME, 1)
    bare = replace(node, outputs=tuple(replace(t, shape=()) for t in node.outputs))
    graph = tflite.parse(to_tflite(bare), "detections")
    assert [graph.tensors[t].shape for t in graph.outputs] == [t.shape for t in node.outputs]
