"""The numpy references give what TFLite Micro's and LiteRT's reference kernels give: integers bit for bit, floats
within rounding."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.ops.options import CUSTOM
from diagmem.verification.oracles import deviation
from tests.ops.cases import activation, node_of
from tests.ops.drawing import CASES, drawn, runnable
from tests.ops.fitting import input_values
from tests.ops.sampling import samples_of
from tests.ops.single_op import ORACLES, ask, is_installed

Array = npt.NDArray[Any]

SILENT = {
    "tflm": {
        *(name for name in kinds() if name.startswith(CUSTOM) and "Signal" not in name and "_" not in name),
        *("DENSIFY", "GELU", "ONE_HOT", "POW", "RANGE", "RANK", "REDUCE_ANY", "REDUCE_PROD", "RELU_0_TO_1"),
        *("RELU_N1_TO_1", "SELECT", "TILE", "ATAN2", "SIGN"),
    },
    "litert": {
        "DENSIFY",
        "ELU",
        "BROADCAST_TO",
        "CEIL",
        "ROUND",
        *(name for name in kinds() if name.startswith(CUSTOM)),
    },
}
"""Kinds that an oracle does not have."""


def _has_state(node: Node) -> bool:
    """A file of one operation cannot hold what a variable was, or whose handle it is."""
    return node.op.kind in ("READ_VARIABLE", "ASSIGN_VARIABLE") or bool(kinds()[node.op.kind].states(node))


def _is_followed(oracle: str, node: Node) -> bool:
    return deviation(oracle, node) is None


def _written(node: Node, found: Array, right: Array, wanted: Sequence[Array]) -> tuple[Array, Array]:
    """What an oracle is bound to write: behind the last detection it may leave what was there."""
    if "Detection_PostProcess" not in node.op.kind or right.ndim < 2:
        return found, right
    count = int(wanted[3][0])
    return found[:, :count], right[:, :count]


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
    compared = [node for node in nodes if _is_followed(oracle, node) and not _has_state(node)]
    inputs = [input_values(node, np.random.default_rng(index)) for index, node in enumerate(compared)]
    answered = set()
    for node, values, answer in zip(compared, inputs, ask(oracle, compared, inputs), strict=True):
        if isinstance(answer, str):
            continue
        answered.add(node.op.kind)
        wanted = kinds()[node.op.kind].reference(node, values)
        for found, right in zip(answer, wanted, strict=True):
            pair = _written(node, found.reshape(right.shape), right, wanted)
            assert _agrees(*pair), (node, values, found, right)
    silent = {node.op.kind for node in compared} - answered
    assert silent <= SILENT[oracle]


@pytest.mark.parametrize("oracle", ORACLES)
def test_all_numbers_of_8_bits(oracle: str) -> None:
    """Functions of one 8-bit integer, on every integer, at many scales."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
    found = [_with_every_number(node) for node in drawn("unary", 10) if node.input(0).dtype is DType.INT8]
    unary = [node for node in found if _is_followed(oracle, node) and node.op.kind != "RSQRT"]
    answers = ask(oracle, unary, [(every,)] * len(unary))
    assert sum(not isinstance(answer, str) for answer in answers) > len(unary) // 2
    for node, answer in zip(unary, answers, strict=True):
        if not isinstance(answer, str):
            (wanted,) = kinds()[node.op.kind].reference(node, (every,))
            assert _agrees(answer[0], wanted), (node, answer[0], wanted)


def test_all_quotients() -> None:
    """Every 8-bit integer divided by every other, at scales where no number is shifted by more than 31 bits."""
    if not is_installed("tflm"):
        pytest.skip("needs tflite_micro")
    first, second = (a.reshape(1, -1).astype(np.int8) for a in np.meshgrid(range(-128, 128), range(-128, 128)))
    for scales in ((0.05, 0.05, 0.01), (0.07, 0.03, 0.011), (0.05, 0.041, 0.003)):
        quantisations = [Quantisation((float(np.float32(scale)),), (3,)) for scale in scales]
        tensors = [replace(activation((1, 1 << 16)), quantisation=q) for q in quantisations[:2]]
        node = node_of("DIV", kinds()["DIV"].decode("DIV", None), tensors)
        node = replace(node, outputs=(replace(node.output, quantisation=quantisations[2]),))
        values = first, np.where(second == 3, 4, second).astype(np.int8)
        (answer,), (wanted,) = ask("tflm", [node], [values]), kinds()["DIV"].reference(node, values)
        assert _agrees(np.asarray(answer[0]), wanted), scales


def _rescales_16_bits(node: Node) -> bool:
    """Whether 16-bit numbers come out with a scale of their own."""
    wants = samples_of(node.op.kind).fitting(node)
    return node.output.dtype is DType.INT16 and (wants.gain is not None or DType.INT16 in wants.fixed)


def test_every_kind_that_rescales_16_bits_is_compared() -> None:
    """Whatever computes a multiplier for 16-bit numbers is held against many of them, by one oracle at least. Kinds
    that remember are, in runs that follow each other, by test_recurrent."""
    drawn_here = (node for case in CASES for node in itertools.islice(runnable(case), 40))
    rescaling = [node for node in drawn_here if _rescales_16_bits(node) and not kinds()[node.op.kind].states(node)]
    compared = {node.op.kind for oracle in ORACLES for case in ON_MANY for node in _on_16_bits(case, oracle)}
    assert {node.op.kind for node in rescaling} <= compared


@pytest.mark.parametrize("oracle", ORACLES)
def test_all_numbers_of_16_bits(oracle: str) -> None:
    """A multiplier that is off in its last bits shows in one number of ten thousand, so small tensors miss it: every
    16-bit integer goes through functions of one number and of two, and many images through windows and matrices."""
    if not is_installed(oracle):
        pytest.skip(f"needs {ORACLES[oracle]}")
    rng = np.random.default_rng(16)
    nodes = [node for case in ON_MANY for node in _on_16_bits(case, oracle)]
    values = [tuple(_numbers_of_16_bits(t, rng) for t in node.inputs) for node in nodes]
    answered = set()
    for node, given, answer in zip(nodes, values, ask(oracle, nodes, values), strict=True):
        if not isinstance(answer, str):
            answered.add(node.op.kind)
            (wanted,) = kinds()[node.op.kind].reference(node, given)
            assert _agrees(answer[0].reshape(wanted.shape), wanted), (node, np.argwhere(answer[0] != wanted)[:4])
    assert {node.op.kind for node in nodes} - answered <= SILENT_ON_16_BITS[oracle]


SILENT_ON_16_BITS = {
    "tflm": {"RELU_N1_TO_1", "RELU_0_TO_1", "REDUCE_MAX", "REDUCE_MIN", "RESIZE_BILINEAR"},
    "litert": {"RELU_N1_TO_1", "RELU_0_TO_1", "SQUARED_DIFFERENCE"},
}
"""Kinds of which the oracle runs none of these."""

ON_MANY = {
    **dict.fromkeys(("unary", "binary", "prelu"), 0),
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d", "transpose_conv", "fully_connected", "batch_matmul"), 1),
    **dict.fromkeys(("pool_2d", "reduce", "softmax", "resize"), 1),
}
"""A file of kinds -> whether its nodes are given many images; the others take tensors of any shape."""


@functools.cache
def _on_16_bits(case: str, oracle: str) -> list[Node]:
    """A few nodes of each kind on 16-bit integers only, with a bias where there may be one, for not every runtime
    does without, and with many numbers."""
    found: dict[str, list[Node]] = {}
    for node in itertools.islice(runnable(case), 300):
        kind = node.op.kind
        in_ram = [t for t in node.inputs if t is not None and not t.is_constant]
        is_plain = node.output.dtype is DType.INT16 and {t.dtype for t in in_ram} <= {DType.INT8, DType.INT16}
        if is_plain and in_ram and _is_followed(oracle, node):
            larger = _many_numbers(node) if ON_MANY[case] == 0 else _many_images(node)
            found.setdefault(kind, []).extend([] if larger is None else [larger])
    return [node for nodes in found.values() for node in nodes[:3]]


def _many_numbers(node: Node) -> Node:
    """The node with as many elements as there are 16-bit integers."""

    def larger(tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(1, 1 << 16), is_constant=False, data=None)

    return replace(node, inputs=tuple(t and larger(t) for t in node.inputs), outputs=(larger(node.output),))


def _many_images(node: Node) -> Node | None:
    """The node with so many images that it has that many numbers, about; None where its first axis is not that of
    images."""
    if None in node.inputs or len(list(node.activations())) > 1 or len(node.output.shape) < 2:
        return None
    images = -(-20_000 // max(1, node.output.elems // node.output.shape[0]))

    def larger(tensor: Tensor) -> Tensor:
        if node.op.kind == "TRANSPOSE_CONV" and tensor.index == node.input(0).index:
            return replace(tensor, data=np.array([images, *tensor.ints[1:]], np.int32))
        return tensor if tensor.is_constant else replace(tensor, shape=(images, *tensor.shape[1:]))

    inputs, output = tuple(t and larger(t) for t in node.inputs), larger(node.output)
    try:
        shapes = kinds()[node.op.kind].output_shapes(node.op.kind, node.attributes, inputs)
    except ModelError:
        return None
    return replace(node, inputs=inputs, outputs=(output,)) if shapes == (output.shape,) else None


def _numbers_of_16_bits(tensor: Tensor | None, rng: np.random.Generator) -> Array | None:
    """Every number once, in any order."""
    if tensor is None or tensor.data is not None:
        return None if tensor is None else tensor.data
    info = np.iinfo(tensor.dtype.numpy)
    if tensor.elems == 1 << 16 and tensor.dtype is DType.INT16:
        return rng.permutation(np.arange(info.min, info.max + 1)).reshape(tensor.shape).astype(np.int16)
    return rng.integers(info.min, info.max, tensor.shape, endpoint=True).astype(tensor.dtype.numpy)


def _with_every_number(node: Node) -> Node:
    inputs = tuple(None if t is None else replace(t, shape=(1, 256)) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=(replace(node.output, shape=(1, 256)),))
