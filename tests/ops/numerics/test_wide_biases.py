"""Biases of 64 bits beside 16-bit data: sums that 64-bit arithmetic cannot scale are refused, others computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.graph import DType, Node, Quantisation
from diagmem.ops import Unsupported, kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.sampling import activation, constant, node_of


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
