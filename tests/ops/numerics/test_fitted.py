"""Channels that share a shift give the outputs of TFLite's arithmetic for every sum that can be, or are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.ops.numerics.fixed_point import Ints, Multiplier
from diagmem.ops.numerics.packed import INT8, SHIFTS, Channels, Fitted, fitted
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
    found = fitted(made)
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
    assert fitted(channels(weights, rng.integers(-5000, 5000, 64).tolist(), reals)) is not None
    assert fitted(channels([[0], [0]], [2**31 - 129, 5], [0.9, 1e-9])) is not None


def test_a_step_at_the_wrong_sum_shows() -> None:
    """A start that is off by one sum is wrong at some sum."""
    made = channels([[100, -77, 30]], [500], [0.01])
    found = fitted(made)
    assert found is not None
    assert is_right(found, made)
    assert not is_right(replace(found, starts=found.starts + 256), made)


def test_outputs_that_round_by_sign_are_not_fitted() -> None:
    """Without a ReLU, halves are rounded away from 0, which one line does not do."""
    assert fitted(channels([[100, -77, 30]], [500], [0.01], zero_point=-5)) is None
