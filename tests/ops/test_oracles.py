"""The numpy references give what TFLite Micro's and LiteRT's reference kernels give: integers bit for bit, real numbers
within rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node
from diagmem.ops import Activation, kinds
from diagmem.ops.fitting import input_values
from tests.ops.drawing import CASES, drawn
from tests.ops.single_op import ORACLES, ask, is_installed

Array = npt.NDArray[Any]

DEVIATIONS = {
    ("tflm", "RELU6"): "it does not rescale to the output's scale, as LiteRT does",
    ("tflm", "SPACE_TO_BATCH_ND"): "it never sets the value that it pads with",
    ("tflm", "BATCH_TO_SPACE_ND"): "it takes shapes that LiteRT refuses, and reads other pixels",
    ("litert", "SUM"): "its quantised sums are off where scales differ",
    ("litert", "SOFTMAX"): "its tables for 16 bits are made in double precision",
    ("litert", "FULLY_CONNECTED"): "it scales sums of 16-bit numbers in double precision",
    ("litert", "TRANSPOSE"): "it does not copy a scalar",
}
"""Where an oracle is not followed, and why."""


def _is_odd_int32(node: Node) -> bool:
    return node.output.dtype is DType.INT32 and node.attributes.activation is not Activation.NONE


def _has_narrow_bias(node: Node) -> bool:
    bias = node.inputs[2]
    return node.output.dtype is DType.INT16 and bias is not None and bias.dtype is DType.INT32


PARTLY: dict[tuple[str, str], tuple[Callable[[Node], bool], str]] = {
    ("tflm", "ADD"): (_is_odd_int32, "it does not clamp sums of 32 bits"),
    ("tflm", "STRIDED_SLICE"): (lambda node: node.input(1).elems > 4, "it has room for four slices"),
    ("litert", "CONV_2D"): (_has_narrow_bias, "it takes 32-bit biases of groups and dilations for 64-bit ones"),
}
"""Nodes for which an oracle is not followed, and why."""


def _is_followed(oracle: str, node: Node) -> bool:
    if (oracle, node.op.kind) in DEVIATIONS:
        return False
    return (oracle, node.op.kind) not in PARTLY or not PARTLY[oracle, node.op.kind][0](node)


def _agrees(found: Array, wanted: Array) -> bool:
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    return np.allclose(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.fixture(scope="module")
def nodes() -> list[Node]:
    return [node for case in CASES for node in drawn(case, 4)]


@pytest.mark.parametrize("oracle", ORACLES)
def test_references_agree_with_others(oracle: str, nodes: list[Node]) -> None:
    """On random nodes of all kinds and types that it runs."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    compared = [node for node in nodes if _is_followed(oracle, node)]
    inputs = [input_values(node, np.random.default_rng(index)) for index, node in enumerate(compared)]
    answered = set()
    for node, values, answer in zip(compared, inputs, ask(oracle, compared, inputs), strict=True):
        if isinstance(answer, str):
            continue
        answered.add(node.op.kind)
        wanted = kinds()[node.op.kind].reference(node, values)
        for found, right in zip(answer, wanted, strict=True):
            assert _agrees(found.reshape(right.shape), right), (node, values, found, right)
    silent = {node.op.kind for node in compared} - answered
    assert silent <= {"tflm": {"GELU", "RELU_N1_TO_1"}, "litert": {"ELU"}}[oracle]


@pytest.mark.parametrize("oracle", ORACLES)
def test_all_numbers_of_8_bits(oracle: str) -> None:
    """Functions of one 8-bit integer, on every integer, at many scales."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
    found = [_with_every_number(node) for node in drawn("unary", 10) if node.input(0).dtype is DType.INT8]
    unary = [node for node in found if (oracle, node.op.kind) not in DEVIATIONS and node.op.kind != "RSQRT"]
    answers = ask(oracle, unary, [(every,)] * len(unary))
    assert sum(not isinstance(answer, str) for answer in answers) > len(unary) // 2
    for node, answer in zip(unary, answers, strict=True):
        if not isinstance(answer, str):
            (wanted,) = kinds()[node.op.kind].reference(node, (every,))
            assert _agrees(answer[0], wanted), (node, answer[0], wanted)


def _with_every_number(node: Node) -> Node:
    inputs = tuple(None if t is None else replace(t, shape=(1, 256)) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=(replace(node.output, shape=(1, 256)),))
