"""The same network, written as a .tflite file and as an ONNX one, is the same to the planner."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import diagmem
from diagmem.frontends.source import Source
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import RELU, Builder
from tests.frontends.onnx import making

SIZE, DEPTH = 16, 8


def as_tflite() -> bytes:
    """A convolution, a depthwise and a pointwise one around which a sum goes, a mean, a dense layer and a softmax."""
    builder = Builder("net")
    x = builder.conv(builder.input(1, SIZE, SIZE, 3), DEPTH, 3, 2, activation=RELU)
    y = builder.conv(builder.depthwise(x, 3, activation=RELU), DEPTH, 1)
    pooled = builder.mean(builder.add(x, y), keep_dims=False)
    return to_tflite(builder.graph(builder.softmax(builder.fully_connected(pooled, 5))))


def as_onnx() -> bytes:
    rng = np.random.default_rng(0)
    shapes = {"w0": (DEPTH, 3, 3, 3), "w1": (DEPTH, 1, 3, 3), "w2": (DEPTH, DEPTH, 1, 1), "w3": (DEPTH, 5), "b3": (5,)}
    weights: dict[str, npt.NDArray[Any]] = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    weights |= {f"b{n}": np.zeros(DEPTH, np.float32) for n in range(3)}
    nodes = [
        making.node("Conv", ["x", "w0", "b0"], ["a"], strides=[2, 2], pads=[0, 0, 1, 1]),
        making.node("Relu", ["a"], ["r"]),
        making.node("Conv", ["r", "w1", "b1"], ["d"], group=DEPTH, pads=[1, 1, 1, 1]),
        making.node("Relu", ["d"], ["e"]),
        making.node("Conv", ["e", "w2", "b2"], ["p"]),
        making.node("Add", ["r", "p"], ["s"]),
        making.node("GlobalAveragePool", ["s"], ["g"]),
        making.node("Flatten", ["g"], ["f"]),
        making.node("Gemm", ["f", "w3", "b3"], ["l"]),
        making.node("Softmax", ["l"], ["y"]),
    ]
    return making.model(nodes, {"x": (1, 3, SIZE, SIZE)}, {"y": (1, 5)}, weights)


@pytest.mark.parametrize("options", [{}, {"schedule": "rows"}, {"schedule": "rows", "input_rows": True}])
def test_the_same_arena(options: dict[str, Any]) -> None:
    """Layer by layer, row by row, and with the input handed over row by row."""
    ours, theirs = (diagmem.plan(source, **options) for source in (as_tflite(), Source(as_onnx(), channels_last=True)))
    assert ours.arena_bytes == theirs.arena_bytes
    assert ours.baseline_bytes == theirs.baseline_bytes
    kinds = [[op.kind for op in made.plan.graph.ops if op.kind != "RESHAPE"] for made in (ours, theirs)]
    assert kinds[0] == kinds[1]
