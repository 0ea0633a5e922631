"""What sums of weighted inputs are multiplied by: the scales of data and weights, over that of the output. Kernel and
reference share the number, so that it is held against the scales themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from diagmem.model.graph import DType, Node, Quantisation, Rounding
from diagmem.ops import Unsupported, kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.numerics.fixed_point import Multiplier
from diagmem.ops.numerics.quantised import Requantisation
from diagmem.ops.numerics.weighted_sums import requantisation_of
from tests.ops.sampling import activation, constant, node_of

SCALES = (0.019999999552965164, 0.1, 3e-05, 0.7)
"""Of the four channels; none but the last is a sum of few powers of two."""

DATA, OUTPUT = 0.047, 0.0123


def layer(dtype: DType, scales: tuple[float, ...], rounding: Rounding = Rounding.TFLITE) -> Node:
    weights = replace(constant((4, 1, 1, 2), dtype), quantisation=Quantisation(scales, (0,) * len(scales)))
    given = replace(activation((1, 2, 2, 2), dtype), quantisation=Quantisation((DATA,), (0,)))
    node = node_of(kinds()["CONV_2D"], "CONV_2D", Conv2D(), [given, weights, constant((4,), DType.INT32)], (dtype,))
    made = Quantisation((OUTPUT,), (0,), rounding=rounding)
    return replace(node, outputs=(replace(node.output, quantisation=made),))


def each_channel(scales: tuple[float, ...]) -> tuple[float, ...]:
    """One scale is that of all four."""
    return scales * (4 // len(scales))


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        (DType.INT8, SCALES),
        (DType.INT8, SCALES[:1]),
        (DType.INT16, SCALES),
        (DType.INT16, SCALES[1:2]),
        (DType.UINT8, SCALES[:1]),
        (DType.UINT8, SCALES[1:2]),
    ],
)
def test_sums_are_multiplied_by_the_scales(dtype: DType, scales: tuple[float, ...]) -> None:
    """To 31 bits, or for unsigned numbers to the 24 of the product in single precision: each channel by its own."""
    found = requantisation_of(layer(dtype, scales), 0)
    each = [DATA * scale for scale in each_channel(scales)]
    each = [float(np.float32(product)) if dtype is DType.UINT8 else product for product in each]
    wanted = [Multiplier.of(product / OUTPUT) for product in each]
    assert [(int(m), int(s)) for m, s in zip(found.mantissas, found.shifts, strict=True)] == [tuple(w) for w in wanted]
    for mantissa, shift, scale in zip(found.mantissas, found.shifts, each_channel(scales), strict=True):
        value = Fraction(int(mantissa)) * Fraction(2) ** (int(shift) - 31)
        exact = Fraction(DATA) * Fraction(scale) / Fraction(OUTPUT)
        assert abs(value / exact - 1) < Fraction(1, 2**23 if dtype is DType.UINT8 else 2**29)


@pytest.mark.parametrize("scales", [SCALES, SCALES[:1]])
def test_results_that_are_rounded_once_are_multiplied_in_single_precision(scales: tuple[float, ...]) -> None:
    found = requantisation_of(layer(DType.INT8, scales, Rounding.ONNX), 0)
    assert found.is_rounded_once
    for value, scale in zip(found.reals, each_channel(scales), strict=True):
        assert value == np.float32(np.float32(DATA) * np.float32(scale)) / np.float32(OUTPUT)
        assert abs(float(value) / (DATA * scale / OUTPUT) - 1) < 2**-22


def test_multipliers_of_single_precision_have_limits() -> None:
    """Nothing is left of what moves no 32-bit integer; what single precision cannot hold is refused."""
    output = layer(DType.INT8, SCALES, Rounding.ONNX).output
    assert Requantisation.of([0.0, 2.0**-41], output).reals.tolist() == [0.0, 0.0]
    for wrong in (-1.0, 2.0**24, math.inf, math.nan):
        with pytest.raises(Unsupported):
            Requantisation.of([wrong], output)
