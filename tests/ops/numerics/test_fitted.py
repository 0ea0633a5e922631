"""Channels that share a shift give the outputs of TFLite's arithmetic for every sum that can be, or are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.ops.numerics.fitted import INT8, SHIFTS, Fitted, fitted
from diagmem.ops.numerics.fixed_point import Ints, Multiplier
from diagmem.ops.numerics.packed import Channels
from diagmem.ops.numerics.quantised import Requantisation


def channels(weights: list[list[int]], bias: list[int], reals: list[float], zero_point: int = -128) -> Channels:
    mantissas, shifts = (np.array(part) for part in zip(*map(Multiplier.of, reals), strict=True))
    output = Requantisation(mantissas, shifts, zero_point, *INT8)
    return Channels(np.array(weights, np.int64), np.array(bias, np.int64), output)


def all_sums(made: Channels) -> Ints:
    """From the least to the most, of the first channel, many of them."""
    products = made.weights[0] * INT8[0], made.weights[0] * INT8[1]
    least, most = int(np.minimum(*products).sum()), int(np.maximum(*products).sum())
    return np.unique(np.linspace(least, most, min(most - least + 1, 20_000)).astype(np.int64))[:, None]


def is_right(found: Fitted, made: Channels) -> bool:
    sums = all_sums(made)
    return bool(np.array_equal(found.outputs(sums), made.output.apply(sums + made.bias)))


@given(
    st.lists(st.integers(-128, 127), min_size=1, max_size=12),
    st.integers(-20_000, 20_000) | st.integers(-(2**30), 2**30),
    st.floats(-30, 0).map(lambda exponent: 2.0**exponent),
)
def test_fitted_channels_are_exact(weights: list[int], bias: int, real: float) -> None:
    """At all sums, also with a bias far from 0 and tiny multipliers; what kernels add up never leaves 32 bits."""
    made = channels([weights], [bias], [real])
    found = made.fitted()
    if found is None:
        return
    assert is_right(found, made)
    assert np.abs(256 * all_sums(made) + found.starts).max() <= 2**31
    assert found.shift in SHIFTS


def test_usual_layers_are_fitted() -> None:
    """Multipliers of real layers, many channels together, and channels that never change."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 128, (64, 64)).tolist()
    reals = (2.0 ** rng.uniform(-9, -6, 64)).tolist()
    assert channels(weights, rng.integers(-5000, 5000, 64).tolist(), reals).fitted() is not None
    assert channels([[0], [0]], [2**31 - 129, 5], [0.9, 1e-9]).fitted() is not None


def test_a_step_at_the_wrong_sum_shows() -> None:
    """A start that is off by one sum is wrong at some sum."""
    made = channels([[100, -77, 30]], [500], [0.01])
    found = made.fitted()
    assert found is not None
    assert is_right(found, made)
    assert not is_right(replace(found, starts=found.starts + 256), made)


def test_outputs_that_round_by_sign_are_not_fitted() -> None:
    """Without a ReLU, halves are rounded away from 0, which one line does not do."""
    assert channels([[100, -77, 30]], [500], [0.01], zero_point=-5).fitted() is None


def once(weights: list[list[int]], bias: list[int], singles: list[float], zero_point: int, low: int = -128) -> Channels:
    bits = np.array(singles, np.float32).view(np.int32).astype(np.int64)
    output = Requantisation(bits, np.full_like(bits, -1), zero_point, low, INT8[1], is_rounded_once=True)
    return Channels(np.array(weights, np.int64), np.array(bias, np.int64), output)


def exact(made: Channels, sums: Ints) -> Ints:
    """As onnxruntime has it, in numpy's float32."""
    output = made.output
    product = (sums + made.bias).astype(np.int32).astype(np.float32) * output.reals.astype(np.float32)
    return np.clip(np.rint(product).astype(np.int64) + output.zero_point, output.low, output.high)


@given(
    st.lists(st.integers(-128, 127), min_size=1, max_size=12),
    st.integers(-20_000, 20_000) | st.integers(-(2**30), 2**30),
    st.floats(-30, 3).map(lambda exponent: 2.0**exponent) | st.integers(-12, 1).map(lambda exponent: 2.0**exponent),
    st.integers(-128, 127),
    st.sampled_from((-128, 0)),
)
def test_lines_are_exact_where_outputs_are_rounded_once(
    weights: list[int], bias: int, single: float, zero_point: int, low: int
) -> None:
    """At all sums, with any zero point and range; a channel without a line is told so."""
    made = once([weights], [bias], [single], zero_point, low)
    found = fitted(made.weights, made.bias, made.output)
    sums = all_sums(made)
    assert np.array_equal(made.output.apply(sums + made.bias), exact(made, sums))
    if found is None or not found.has_line.all():
        return
    assert np.array_equal(found.outputs(sums, low), exact(made, sums))
    assert np.abs(256 * sums + found.starts).max() <= 2**31


def test_most_channels_have_a_line() -> None:
    """Those of real layers; where halves are many, as with powers of two, they are rounded."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 128, (64, 64)).tolist()
    bias = rng.integers(-5000, 5000, 64).tolist()
    usual = once(weights, bias, (2.0 ** rng.uniform(-9, -6, 64)).tolist(), 5).fitted()
    assert usual is not None
    assert usual.has_line.sum() >= 48
    assert set(usual.shifts.tolist()) <= {-1, usual.shift}
    halves = once(weights, bias, [2.0**-7] * 64, 5).fitted()
    assert halves is not None
    assert not halves.has_line.any()
    assert halves.kernels.startswith("mixed")
