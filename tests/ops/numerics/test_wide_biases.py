"""Biases of 64 or 32 bits beside 16-bit data, and those that are not there but whose type is told: sums that 64-bit
arithmetic cannot scale are refused, others computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.graph import DType, Node, Quantisation
from diagmem.ops import Unsupported, kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.options import TYPE_CODES
from tests.ops.compiled import COMPILER, compiled, disjoint
from tests.ops.sampling import activation, constant, ints, node_of
from tests.ops.single_op import ask, is_installed


def layer(bias: int, output_scale: float = 1.0) -> Node:
    """A 1x1 convolution of one channel, whose scales multiply a sum by 0.5 / `output_scale`."""
    given = replace(activation((1, 2, 2, 1), DType.INT16), quantisation=Quantisation((1.0,), (0,)))
    weights = replace(
        constant((1, 1, 1, 1)), data=np.ones((1, 1, 1, 1), np.int8), quantisation=Quantisation((0.5,), (0,))
    )
    biases = replace(constant((1,), DType.INT64), data=np.array([bias], np.int64))
    node = node_of(kinds()["CONV_2D"], "CONV_2D", Conv2D(), [given, weights, biases], (DType.INT16,))
    return replace(node, outputs=(replace(node.output, quantisation=Quantisation((output_scale,), (0,))),))


@pytest.mark.parametrize("bias", [2**31, -(2**31), 2**30, 5])
def test_large_biases_are_computed(bias: int) -> None:
    """Far beyond the output's range, but not beyond what can be scaled: the output is at its end."""
    node = layer(bias)
    kinds()["CONV_2D"].c_call(node)
    (found,) = kinds()["CONV_2D"].reference(
        node, (np.zeros((1, 2, 2, 1), np.int16), node.input(1).data, node.input(2).data)
    )
    assert found[0, 0, 0, 0] == np.clip(np.ceil(bias / 2), -(2**15), 2**15 - 1)


@pytest.mark.parametrize(("bias", "output_scale"), [(2**32, 1.0), (-(2**63), 1.0), (2**47, 2.0**30), (2**19, 2.0**-13)])
def test_biases_that_cannot_be_scaled_are_refused(bias: int, output_scale: float) -> None:
    """Their product leaves 64 bits, or what is left of it leaves 32."""
    with pytest.raises(Unsupported, match="far beyond the range of the output"):
        kinds()["CONV_2D"].c_call(layer(bias, output_scale))


def with_bias_type(kind: str, bias: DType | None, told: DType | None) -> tuple[Node, list[npt.NDArray[Any] | None]]:
    """A layer of 2,000 pixels with eight outputs, whose bias has such a type, or is not there, and whose option says
    which type biases have; and values."""
    rng = np.random.default_rng(7)
    size, shape = (() if kind == "FULLY_CONNECTED" else (1, 1)), (1, 1, 2000, 16)
    scales = [Quantisation((float(np.float32(s)),), (0,)) for s in (0.0013, 0.021, 0.0117)]
    data = replace(activation(shape if size else shape[2:], DType.INT16), quantisation=scales[0])
    weights = rng.integers(-127, 128, (8, *size, 16)).astype(np.int8)
    inputs = [data, replace(constant(weights.shape), data=weights, quantisation=scales[1])]
    if kind == "TRANSPOSE_CONV":
        inputs = [ints([1, 1, 2000, 8]), inputs[1], data]
    if bias is not None:
        values = rng.integers(-200_000, 200_000, 8).astype(bias.numpy)
        inputs.append(replace(constant((8,), bias), data=values))
    attributes = replace(kinds()[kind].decode(kind, None), bias_type=0 if told is None else TYPE_CODES[told])
    node = node_of(kinds()[kind], kind, attributes, inputs, (DType.INT16,))
    drawn = rng.integers(-(2**15), 2**15, data.shape).astype(np.int16)
    return (
        replace(node, outputs=(replace(node.output, quantisation=scales[2]),)),
        [drawn if t is None or t.data is None else t.data for t in node.inputs],
    )


BIAS_TYPES: list[tuple[str, str, DType | None, DType | None]] = [
    *(
        ("tflm", kind, bias, told)
        for kind in ("FULLY_CONNECTED", "CONV_2D")
        for bias, told in ((None, None), (None, DType.INT32), (None, DType.INT64), (DType.INT32, None))
    ),
    ("tflm", "TRANSPOSE_CONV", None, DType.INT32),
    ("litert", "CONV_2D", DType.INT32, DType.INT32),
    ("litert", "TRANSPOSE_CONV", DType.INT32, DType.INT32),
]
"""The runtime that knows such a layer, its kind, the type of its bias, and what the option says of it."""


@pytest.mark.parametrize("oracle", ["tflm", "litert"])
def test_the_type_of_biases_is_that_of_sums(oracle: str) -> None:
    """Sums of 32 bits are multiplied with 31 bits and rounded twice, others with 15 bits and once."""
    if not is_installed(oracle):
        pytest.skip(f"needs {oracle}")
    layers = [with_bias_type(kind, bias, told) for name, kind, bias, told in BIAS_TYPES if name == oracle]
    for (node, values), answer in zip(layers, ask(oracle, *zip(*layers, strict=True)), strict=True):
        (wanted,) = kinds()[node.op.kind].reference(node, values)
        assert np.array_equal(np.reshape(answer[0], wanted.shape), wanted), node


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_the_type_of_biases_is_that_of_sums_in_c(tmp_path: Path) -> None:
    layers = [with_bias_type(kind, bias, told) for _, kind, bias, told in BIAS_TYPES]
    nodes = [node for node, _ in layers]
    places = [disjoint(node) for node in nodes]
    jobs = [(i, place, place.filled(*layers[i])) for i, place in enumerate(places)]
    for (node, values), place, found in zip(layers, places, compiled(nodes, tmp_path).run(jobs), strict=True):
        (wanted,) = kinds()[node.op.kind].reference(node, values)
        assert np.array_equal(place.seen(found, node.output), wanted), node
