"""Packed channels give the outputs of TFLite's arithmetic for every sum that can be, or are refused."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.ops.numerics.fitted import INT8
from diagmem.ops.numerics.fixed_point import Multiplier
from diagmem.ops.numerics.packed import (
    MOST_SUM,
    Channels,
    bytes_of,
    in_fours,
    packed_outputs,
    shared_words,
)
from diagmem.ops.numerics.quantised import Requantisation


def channels(weights: list[int], bias: int, real: float, zero_point: int) -> Channels:
    """One channel."""
    mantissa, shift = Multiplier.of(real)
    output = Requantisation(np.array([mantissa]), np.array([shift]), zero_point, *INT8)
    return Channels(np.array([weights], np.int64), np.array([bias], np.int64), output)


@given(
    st.lists(st.integers(-128, 127), min_size=1, max_size=30),
    st.integers(-20_000, 20_000) | st.integers(-(2**30), 2**30),
    st.floats(-40, 0).map(lambda exponent: 2.0**exponent),
    st.sampled_from((-128, -128, -3, 0, 127)),
    st.integers(0, 2**32),
)
def test_packed_channels_are_exact(weights: list[int], bias: int, real: float, zero_point: int, seed: int) -> None:
    """At the ends of the range, around 0 and the middle, and at random; also far from 0 and with tiny multipliers."""
    made = channels(weights, bias, real, zero_point)
    packed = made.packed()
    if packed is None:
        return
    least = bias + sum(min(w * INT8[0], w * INT8[1]) for w in weights)
    most = bias + sum(max(w * INT8[0], w * INT8[1]) for w in weights)
    middle = (least + most) // 2
    near = np.concatenate([np.arange(-300, 300) + at for at in (0, least, most, middle)])
    noise = np.random.default_rng(seed).integers(least, most, 2000, endpoint=True)
    sums = np.clip(np.concatenate([near, noise]), least, most)
    moved = sums - (bias - int(packed.bias[0]))
    assert np.abs(moved).max() <= MOST_SUM
    multiplier, addend, shift = packed.constants.astype(np.int32)[0].tolist()
    found = packed_outputs(moved, multiplier, addend, shift, made.output.ignores_signs)
    assert np.array_equal(found, made.output.apply(sums))


def test_usual_channels_are_packed() -> None:
    """Multipliers of real layers, after a ReLU and without one, and channels that never change."""
    for zero_point in (-128, -5):
        assert channels([3, -80, 127], 1000, 0.004, zero_point).packed() is not None
        assert channels([0, 0], 2**30, 1e-9, zero_point).packed() is not None
        assert channels([0], 5, 0.0, zero_point).packed() is not None
    assert channels([100] * 9, 99_000_000, 2.0**-21.5, -128).packed() is not None


def test_what_cannot_be_packed_is_refused() -> None:
    """Multipliers of one half and more, ranges of an activation, sums of more than 23 bits, and -128 beside less."""
    assert channels([1], 0, 0.7, 0).packed() is None
    assert channels([127] * 1000, 0, 0.001, 0).packed() is None
    clamped = Requantisation(np.array([2**30]), np.array([-8]), 0, 0, 127)
    assert Channels(np.array([[1]]), np.array([0]), clamped).packed() is None
    assert shared_words(np.array([[[-128, 0]], [[-1, 0]]])) is None
    assert shared_words(np.array([[[-128, 0]], [[0, 5]]])) is not None


@given(st.lists(st.integers(-127, 127), min_size=16, max_size=16))
def test_words_hold_both_channels(values: list[int]) -> None:
    """256 * a + b in each half of a word, the even inputs of four before the odd ones; and bytes come back."""
    weights = np.array(values).reshape(2, 8)
    twos = in_fours(weights)
    assert twos[0].tolist() == [[weights[0, i], weights[0, i + 2]] for i in (0, 1, 4, 5)]
    assert np.array_equal(bytes_of(twos), weights)
    words = shared_words(twos)
    assert words is not None
    halves = words.view(np.int16).reshape(-1, 2)
    assert np.array_equal(halves, (256 * twos[0] + twos[1]))
