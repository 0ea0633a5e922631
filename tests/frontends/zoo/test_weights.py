"""What is predicted about a tensor's values holds for values that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.frontends.zoo.weights import Distribution, Floats
from diagmem.ops import Activation

DRAWS = 50_000
MEANS = st.floats(-3, 3)
STDS = st.floats(0.05, 3)
ACTIVATIONS = st.sampled_from([Activation.NONE, Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1])


def distribution_of(
    mean: float, std: float, activation: Activation = Activation.NONE, smooth: float = 0.0
) -> Distribution:
    return Distribution.normal(np.array([mean]), np.array([std**2]), smooth).activated(activation)


def drawn(distribution: Distribution, *shape: int, seed: int = 1) -> Floats:
    normal = np.random.default_rng(seed).standard_normal((DRAWS, *shape))
    values: Floats = np.clip(
        distribution.mean[0] + distribution.std[0] * normal, distribution.low[0], distribution.high[0]
    )
    return values


def agrees(distribution: Distribution, values: Floats, tolerance: float) -> bool:
    """Mean and standard deviation, up to a part of the latter and to the noise of sampling."""
    mean, variance = (float(v[0]) for v in distribution.moments())
    std = max(float(values.std()), 1e-3)
    return abs(mean - values.mean()) < tolerance * std and abs(math.sqrt(variance) - std) < tolerance * std + 2e-3


@given(MEANS, STDS, ACTIVATIONS)
def test_moments_after_clipping(mean: float, std: float, activation: Activation) -> None:
    """Mean and variance of a clipped normal distribution are exact."""
    distribution = distribution_of(mean, std, activation)
    values = drawn(distribution)
    if len(np.unique(values)) > len(values) / 100:  # else a handful of draws decide the sampled variance
        assert agrees(distribution, values, 0.05)


@given(st.floats(0, 3), STDS, st.sampled_from([Activation.NONE, Activation.RELU]), st.integers(1, 9))
def test_largest_of_a_window(mean: float, std: float, activation: Activation, count: int) -> None:
    """Max pooling, also of clipped values, as long as not most of them are cut off."""
    distribution = distribution_of(mean, std, activation)
    assert agrees(distribution.largest_of(count), drawn(distribution, count).max(axis=1), 0.1)


@given(MEANS, STDS, ACTIVATIONS, st.integers(1, 9), st.floats(0, 1))
def test_averaging_leaves_what_is_smooth(
    mean: float, std: float, activation: Activation, count: int, smooth: float
) -> None:
    """The mean stays; independent noise shrinks by the number of pixels; what neighbours share does not."""
    distribution = distribution_of(mean, std, activation, smooth)
    before, after = distribution.moments(), distribution.average_of(count).moments()
    assert after[0][0] == pytest.approx(before[0][0], abs=1e-9)
    assert after[1][0] == pytest.approx(before[1][0] * (smooth + (1 - smooth) / count), rel=1e-6)


def test_smoothness_of_repeated_averaging() -> None:
    """Averaging 3x3 windows twice shrinks noise far less the second time: to 0.495 of its variance, not to a ninth."""
    once = distribution_of(0.0, 1.0).average_of(9, overlapping=True)
    twice = once.average_of(9, overlapping=True)
    assert twice.moments()[1][0] / once.moments()[1][0] == pytest.approx((19 / 27) ** 2, rel=0.15)


@given(MEANS, STDS, st.floats(0.1, 1))
def test_padding_with_zeros(mean: float, std: float, share: float) -> None:
    """A part of the values, the others 0."""
    distribution = distribution_of(mean, std)
    values = drawn(distribution)
    values[: round(DRAWS * (1 - share))] = 0
    assert agrees(distribution.diluted(share), values, 0.03)


@given(MEANS, STDS, MEANS, STDS, ACTIVATIONS)
def test_sum_of_branches(mean: float, std: float, other_mean: float, other_std: float, activation: Activation) -> None:
    """Means and variances add."""
    one, other = distribution_of(mean, std, activation), distribution_of(other_mean, other_std)
    assert agrees(one.plus(other), drawn(one) + drawn(other, seed=2), 0.05)


@given(st.lists(st.tuples(MEANS, STDS), min_size=1, max_size=5), ACTIVATIONS, st.floats(1, 6))
def test_bounds_hold_zero_and_every_channel(
    channels: list[tuple[float, float]], activation: Activation, deviations: float
) -> None:
    """The range covers 0 and, within the activation's own bounds, so many deviations of each channel."""
    joined = Distribution.joined(*(distribution_of(mean, std, activation) for mean, std in channels))
    low, high = joined.bounds(deviations)
    assert low <= 0 <= high
    for mean, std in channels:
        assert low <= max(mean - deviations * std, joined.low[0]) + 1e-9
        assert high >= min(mean + deviations * std, joined.high[0]) - 1e-9
