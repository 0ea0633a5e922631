"""Scales of 0, which converters give to tensors that hold nothing but zeros."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import kinds
from diagmem.ops.c_call import Unsupported
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.numerics.fixed_point import Multiplier
from diagmem.ops.numerics.quantised import Requantisation
from tests.ops.sampling import node_of


def scaled(shape: tuple[int, ...], scale: float, zero_point: int = 0, data: object = None) -> Tensor:
    values = None if data is None else np.asarray(data, np.int8).reshape(shape)
    found = Quantisation((scale,), (zero_point,))
    return Tensor(0, "t", shape, DType.INT8, found, is_constant=data is not None, data=values)


def with_output(node: Node, scale: float, zero_point: int) -> Node:
    return replace(node, outputs=(replace(node.output, quantisation=Quantisation((scale,), (zero_point,))),))


@pytest.mark.parametrize("name", ["ADD", "SUB"])
def test_zeros_are_zeros_whatever_their_scale(name: str) -> None:
    """A constant of zeros with the scale 0 adds as much as one with any other scale."""
    kind, x = kinds()[name], np.arange(-8, 8, dtype=np.int8)
    found = []
    for scale in (0.0, 1e-6):
        zeros = scaled((16,), scale, zero_point=3, data=[3] * 16)
        node = with_output(node_of(kind, name, Binary(), [scaled((16,), 0.5, -2), zeros]), 0.25, 5)
        kind.c_call(node)
        found.append(kind.reference(node, [x, zeros.data])[0].tolist())
    assert found[0] == found[1]


def test_weights_with_the_scale_zero_make_the_output_zero() -> None:
    kind = kinds()["FULLY_CONNECTED"]
    weights = scaled((2, 3), 0.0, data=[[1, 2, 3], [4, 5, 6]])
    node = with_output(
        node_of(kind, "FULLY_CONNECTED", FullyConnected(), [scaled((1, 3), 0.5), weights, None]), 0.25, 7
    )
    kind.c_call(node)
    made = kind.reference(node, [np.array([[9, 9, 9]], np.int8), weights.data, None])[0]
    assert made.tolist() == [[7, 7]]


def test_a_run_cannot_make_what_has_the_scale_zero() -> None:
    """One line says so, not a division by zero."""
    kind = kinds()["ADD"]
    node = with_output(node_of(kind, "ADD", Binary(), [scaled((4,), 0.5), scaled((4,), 0.5)]), 0.0, 0)
    with pytest.raises(Unsupported, match="needs one positive scale"):
        kind.c_call(node)


@pytest.mark.parametrize("real", [math.inf, math.nan, -1.0, 2.0**31])
def test_a_factor_that_no_multiplier_can_be_is_refused_in_one_line(real: float) -> None:
    with pytest.raises(Unsupported, match="scales that make a factor"):
        Multiplier.of(real)


def test_a_factor_beyond_all_shifts_leaves_nothing_of_a_sum() -> None:
    """As in a register of 32 bits; the other channels are scaled as ever."""
    output = scaled((1, 4), 1.0, 3)
    found = Requantisation.of([2.0**31, 1.0, 1e30, 2.0**29], output)
    assert found.apply(np.array([[5, 5, -5, 1]])).tolist() == [[3, 8, 3, 127]]
    with pytest.raises(Unsupported, match="scales that make a factor of inf"):
        Requantisation.of([math.inf], output)
