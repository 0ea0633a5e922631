"""Weights narrower than the data: 8 or 4 bits beside floats, 4 bits beside 8."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite as schema

from diagmem.frontends.tflite import parse
from diagmem.model.graph import DType, Node
from diagmem.ops import kinds
from diagmem.ops.matrix.products import dense_sums
from diagmem.ops.numerics.quantised import float_weights
from diagmem.ops.numerics.weighted_sums import halves, kernel_suffix, requantisation_of
from tests.frontends.tflite.flat import FlatModel, FlatOp, FlatTensor
from tests.ops.cases import activation, node_of
from tests.ops.compiled import COMPILER, compiled, disjoint
from tests.ops.drawing import runnable
from tests.ops.fitting import input_values
from tests.ops.sampling import constant_of
from tests.ops.single_op import ask, is_installed

AXES = {"conv_2d": 0, "depthwise_conv_2d": 3, "fully_connected": 0}


def with_kernel(case: str, suffix: str, count: int) -> list[Node]:
    return list(itertools.islice((node for node in runnable(case) if kernel_suffix(node) == suffix), count))


@pytest.mark.parametrize("suffix", ["w8_f32", "w16_f32"])
@pytest.mark.parametrize("case", AXES)
def test_narrow_weights_compute_what_the_real_ones_compute(case: str, suffix: str) -> None:
    """Bit for bit the layer whose weights are the numbers that they stand for."""
    for number, node in enumerate(with_kernel(case, suffix, 6)):
        kept = node.input(1)
        assert kept.data is not None
        real = float_weights(kept, kept.data, AXES[case])
        plain = replace(kept, dtype=DType.FLOAT32, quantisation=None, data=real)
        other = replace(node, inputs=(node.inputs[0], plain, *node.inputs[2:]))
        values = input_values(node, np.random.default_rng(number))
        found = kinds()[node.op.kind].reference(node, values)[0]
        wanted = kinds()[node.op.kind].reference(other, (values[0], real, *values[2:]))[0]
        assert np.array_equal(found, wanted)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_all_numbers_of_half_precision_are_widened(tmp_path: Path) -> None:
    """Those without a leading 1 too: a layer with one input, which is 1, gives its weights."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    weights = every[np.isfinite(every)].reshape(-1, 1)
    inputs = [activation((1, 1), DType.FLOAT32), constant_of(weights)]
    node = node_of("FULLY_CONNECTED", kinds()["FULLY_CONNECTED"].decode("", None), inputs, (DType.FLOAT32,))
    place = disjoint(node)
    job = (0, place, place.filled(node, (np.ones((1, 1), np.float32), weights)))
    (found,) = compiled([node], tmp_path).run([job])
    assert np.array_equal(place.seen(found, node.output).reshape(-1), weights.reshape(-1).astype(np.float32))


@pytest.mark.parametrize("case", AXES)
def test_weights_of_4_bits_take_half_a_byte_in_flash(case: str) -> None:
    """But for what fills the last byte of a row."""
    for node in [*with_kernel(case, "s4", 6), *with_kernel(case, "s4_once", 2 * (case == "fully_connected"))]:
        stored = kinds()[node.op.kind].c_call(node).parameters.fields["filter"].data
        kept = node.input(1)
        assert stored.nbytes * 2 >= kept.elems
        if case == "fully_connected":
            outputs, inputs = kept.shape
            assert stored.nbytes == sum((min(8, outputs - c) + 1) // 2 * inputs for c in range(0, outputs, 8))


@pytest.mark.skipif(not is_installed("litert"), reason="needs ai_edge_litert")
def test_dense_layers_with_several_scales_round_as_litert_does() -> None:
    """Once: TensorFlow Lite Micro, which rounds twice, has none with 4-bit weights. Thousands of sums show it."""
    rng = np.random.default_rng(4)
    layers = [_with_rows(node, 2000) for node in with_kernel("fully_connected", "s4_once", 6)]
    inputs = [input_values(node, rng) for node in layers]
    twice = 0
    for node, values, answer in zip(layers, inputs, ask("litert", layers, inputs), strict=True):
        (wanted,) = kinds()["FULLY_CONNECTED"].reference(node, values)
        assert np.array_equal(np.reshape(answer[0], wanted.shape), wanted), node
        sums = dense_sums(node, *values[:2])
        bias = values[2] if len(values) > 2 else None
        whole = sums.astype(np.int64) + (0 if bias is None else bias)
        twice += int((requantisation_of(node, 0).apply(whole).reshape(wanted.shape) != wanted).sum())
    assert twice


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_dense_layers_with_several_scales_in_c(tmp_path: Path) -> None:
    layers = [_with_rows(node, 300) for node in with_kernel("fully_connected", "s4_once", 6)]
    inputs = [input_values(node, np.random.default_rng(index)) for index, node in enumerate(layers)]
    places = [disjoint(node) for node in layers]
    jobs = [(i, place, place.filled(layers[i], inputs[i])) for i, place in enumerate(places)]
    for node, place, values, found in zip(layers, places, inputs, compiled(layers, tmp_path).run(jobs), strict=True):
        (wanted,) = kinds()["FULLY_CONNECTED"].reference(node, values)
        assert np.array_equal(place.seen(found, node.output), wanted)


def _with_rows(node: Node, rows: int) -> Node:
    data, weights = replace(node.input(0), shape=(rows, node.input(1).shape[1])), node.input(1)
    return replace(
        node,
        inputs=(data, *node.inputs[1:]),
        outputs=(replace(node.output, shape=(rows, weights.shape[0])),),
        op=replace(node.op, attributes=replace(node.attributes, keep_num_dims=False)),
    )


@pytest.mark.parametrize("count", [6, 7])
def test_a_file_holds_numbers_of_4_bits_by_twos(count: int) -> None:
    """The first in the lower half of a byte, negative ones in two's complement."""
    values = np.arange(-8, -8 + count, dtype=np.int8)
    weights = FlatTensor([1, count], type=schema.TensorType.INT4, data=halves(values[None]).tobytes(), scales=[1])
    tensors = [FlatTensor([1, count], scales=[1]), FlatTensor([1, 1], scales=[1]), weights]
    graph = parse(FlatModel(tensors, [FlatOp("FULLY_CONNECTED", [0, 2], [1])]).content(), "model")
    found = graph.tensors[2]
    assert found.dtype is DType.INT4
    assert found.data is not None
    assert found.data.tolist() == [values.tolist()]
