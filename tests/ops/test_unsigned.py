"""Unsigned 8-bit numbers, as an older converter left them: what LiteRT's reference kernels make of them, bit for bit.

TensorFlow Lite Micro no longer runs them. Weights have a zero point of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.moving.concatenation import Concatenation
from tests.ops.cases import node_of
from tests.ops.compiled import COMPILER, compiled, disjoint
from tests.ops.drawing import runnable
from tests.ops.fitting import input_values
from tests.ops.single_op import ask, is_installed

Array = npt.NDArray[Any]

CASES = (
    *("conv_2d", "depthwise_conv_2d", "fully_connected", "transpose_conv", "pool_2d", "unary", "binary", "prelu"),
    *("softmax", "l2_normalization", "reduce", "resize"),
)
needs_litert = pytest.mark.skipif(not is_installed("litert"), reason="needs ai_edge_litert")


def _unsigned(case: str, count: int) -> list[Node]:
    """The first nodes of a file's kinds that make unsigned numbers."""
    found = (node for node in runnable(case) if node.output.dtype is DType.UINT8)
    return list(itertools.islice(found, count))


def _agree(nodes: Sequence[Node], inputs: Sequence[Sequence[Array | None]]) -> set[str]:
    """The kinds that LiteRT has an answer for, which is also ours."""
    answered = set()
    for node, values, answer in zip(nodes, inputs, ask("litert", nodes, inputs), strict=True):
        if not isinstance(answer, str):
            answered.add(node.op.kind)
            for found, right in zip(answer, kinds()[node.op.kind].reference(node, values), strict=True):
                assert np.array_equal(found.reshape(right.shape), right), (node, found, right)
    return answered


@needs_litert
def test_references_agree_with_litert() -> None:
    nodes = [node for case in CASES for node in _unsigned(case, 30)]
    inputs = [input_values(node, np.random.default_rng(index)) for index, node in enumerate(nodes)]
    assert _agree(nodes, inputs) == {node.op.kind for node in nodes}


@needs_litert
def test_all_unsigned_numbers() -> None:
    """Functions of one number, on every number, at many scales."""
    every = np.arange(256, dtype=np.uint8).reshape(1, 256)

    def wide(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(1, 256))

    found = [node for node in _unsigned("unary", 60) if node.op.kind != "CAST"]
    nodes = [
        replace(node, inputs=(wide(node.input(0)),), outputs=(wide(node.output),))
        for node in found
        if node.input(0).dtype is DType.UINT8
    ]
    assert {"RELU", "RELU6", "LOGISTIC", "TANH", "LEAKY_RELU", "HARD_SWISH"} <= _agree(nodes, [(every,)] * len(nodes))


def _scaled(index: int, shape: tuple[int, ...], dtype: DType, scale: float, zero_point: int = 0) -> Tensor:
    return Tensor(index, f"t{index}", shape, dtype, Quantisation((float(np.float32(scale)),), (zero_point,)))


def _layer(seed: int) -> tuple[Node, tuple[Array, ...]]:
    """Sums that lie so near a half that it shows in which precision they are scaled: they are biases, one an output."""
    rng = np.random.default_rng(seed)
    scales = [float(np.float32(s * (1 + rng.random()))) for s in (0.001, 0.001, 1.0)]
    factor = scales[0] * scales[1] / scales[2]
    biases = np.round((np.arange(-100, 100) + 0.5) / factor).astype(np.int32)
    data, weights = (_scaled(0, shape, DType.UINT8, s) for shape, s in (((1, 1), scales[0]), ((200, 1), scales[1])))
    weights = replace(weights, is_constant=True, data=np.zeros((200, 1), np.uint8))
    bias = replace(_scaled(0, (200,), DType.INT32, scales[0] * scales[1]), is_constant=True, data=biases)
    node = node_of("FULLY_CONNECTED", FullyConnected(), [data, weights, bias], (DType.UINT8,))
    out = replace(node.output, quantisation=Quantisation((scales[2],), (128,)))
    return replace(node, outputs=(out,)), (np.zeros((1, 1), np.uint8), np.zeros((200, 1), np.uint8), biases)


@needs_litert
def test_sums_of_fully_connected_layers_are_scaled_in_double_precision() -> None:
    """All other layers multiply with 31 bits, and round twice."""
    layers = [_layer(seed) for seed in range(20)]
    assert _agree([node for node, _ in layers], [values for _, values in layers])


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_sums_of_fully_connected_layers_are_scaled_in_double_precision_in_c(tmp_path: Path) -> None:
    layers = [_layer(seed) for seed in range(6)]
    _same_in_c([node for node, _ in layers], [values for _, values in layers], tmp_path)


def _joined(seed: int) -> Node:
    """Inputs of three scales, one of them the output's."""
    rng = np.random.default_rng(seed)
    scales = [float(s) for s in rng.uniform(0.01, 0.2, 2)]
    zero_points = [int(z) for z in rng.integers(0, 256, 2)]
    out = Quantisation((float(np.float32(0.08)),), (int(rng.integers(256)),))
    parts = [_scaled(0, (2, 64, 2), DType.UINT8, s, z) for s, z in zip(scales, zero_points, strict=True)]
    parts.append(replace(_scaled(0, (2, 64, 3), DType.UINT8, 1), quantisation=out))
    node = node_of("CONCATENATION", Concatenation(2), parts, (DType.UINT8,))
    return replace(node, outputs=(replace(node.output, quantisation=out),))


@needs_litert
def test_concatenation_changes_scales() -> None:
    nodes = [_joined(seed) for seed in range(8)]
    assert _agree(nodes, [input_values(node, np.random.default_rng(i)) for i, node in enumerate(nodes)])


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_concatenation_changes_scales_in_c(tmp_path: Path) -> None:
    nodes = [_joined(seed) for seed in range(3)]
    _same_in_c(nodes, [input_values(node, np.random.default_rng(i)) for i, node in enumerate(nodes)], tmp_path)


def _same_in_c(nodes: Sequence[Node], inputs: Sequence[Sequence[Array | None]], tmp_path: Path) -> None:
    places = [disjoint(node) for node in nodes]
    jobs = [(i, place, place.filled(nodes[i], inputs[i])) for i, place in enumerate(places)]
    for node, place, values, found in zip(nodes, places, inputs, compiled(nodes, tmp_path).run(jobs), strict=True):
        assert np.array_equal(place.seen(found, node.output), kinds()[node.op.kind].reference(node, values)[0])
