"""How the values of a tensor are spread over random inputs, channel by channel, without running the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from diagmem.ops import Activation

Floats = npt.NDArray[np.float64]

LITTLE = 0.01
"""The smooth part of a tensor that nothing has smoothed: pixels see some of the same inputs."""

_CLIPS = {
    Activation.NONE: (-math.inf, math.inf),
    Activation.RELU: (0.0, math.inf),
    Activation.RELU_N1_TO_1: (-1.0, 1.0),
    Activation.RELU6: (0.0, 6.0),
}
_TAIL = 12.0
"""Standard deviations beyond which a normal distribution holds nothing that float64 can see."""
_TINY = 1e-12
"""Least variance, so that a constant channel can be divided by."""


@dataclass(frozen=True, slots=True)
class Spread:
    """For each channel (the last axis) a normal distribution, then clipped to [low, high]. One entry per channel.

    Channels are taken to be independent, and so are pixels but for the part `smooth` of their variance, which they
    have in common with their neighbours, so that averaging leaves it: random weights see to that, near enough.
    """

    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    smooth: Floats

    @classmethod
    def normal(cls, mean: Floats, variance: Floats, smooth: Floats | float = LITTLE) -> Spread:
        unbounded = np.full_like(mean, math.inf)
        return cls(mean, np.sqrt(variance), -unbounded, unbounded, np.full_like(mean, smooth))

    def clipped(self, low: float, high: float) -> Spread:
        return replace(self, low=np.clip(self.low, low, high), high=np.clip(self.high, low, high))

    def activated(self, activation: Activation) -> Spread:
        return self.clipped(*_CLIPS[activation])

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and variance after clipping."""
        low = np.where(np.isinf(self.low), self.mean - _TAIL * self.std, self.low)
        high = np.where(np.isinf(self.high), self.mean + _TAIL * self.std, self.high)
        a, b = (np.clip((v - self.mean) / self.std, -_TAIL, _TAIL) for v in (low, high))
        below, above, slope = _cdf(a), 1 - _cdf(b), _pdf(a) - _pdf(b)
        inside = 1 - below - above
        first = self.std * slope + self.mean * inside + low * below + high * above
        second = self.std**2 * (inside + a * _pdf(a) - b * _pdf(b)) + 2 * self.mean * self.std * slope
        second += self.mean**2 * inside + low**2 * below + high**2 * above
        return first, np.maximum(second - first**2, _TINY)

    def bounds(self, deviations: float) -> tuple[float, float]:
        """The least and the largest value that matter, all channels taken together; 0 lies between them."""
        low = np.maximum(self.low, self.mean - deviations * self.std)
        high = np.minimum(self.high, self.mean + deviations * self.std)
        return min(0.0, float(low.min())), max(0.0, float(high.max()))

    def largest_of(self, count: float) -> Spread:
        """The largest of `count` pixels: a maximum commutes with clipping."""
        mean, variance = _largest_normal(count)
        return replace(self, mean=self.mean + self.std * mean, std=self.std * math.sqrt(variance))

    def average_of(self, count: float, overlapping: bool = False) -> Spread:
        """The average of `count` pixels. Where windows overlap, half of the noise that is left is smooth."""
        mean, variance = self.moments()
        noise = (1 - self.smooth) / count
        left = self.smooth + noise
        smoothed = noise / 2 if overlapping else 0.0
        return Spread.normal(mean, variance * left, (self.smooth + smoothed) / left)

    def diluted(self, share: float) -> Spread:
        """A part `share` of the values, the others 0."""
        mean, variance = self.moments()
        return Spread.normal(share * mean, share * (variance + (1 - share) * mean**2), self.smooth)

    def plus(self, other: Spread) -> Spread:
        (mean, variance), (other_mean, other_variance) = self.moments(), other.moments()
        total = variance + other_variance
        smooth = (self.smooth * variance + other.smooth * other_variance) / total
        return Spread.normal(mean + other_mean, total, smooth)

    def times(self, factor: Floats) -> Spread:
        mean, variance = self.moments()
        return Spread.normal(mean * factor, variance * factor**2, self.smooth)

    def shifted(self, shift: Floats) -> Spread:
        mean, variance = self.moments()
        return Spread.normal(mean + shift, variance, self.smooth)

    def resized(self, channels: int) -> Spread:
        """After a reshape: the channels repeat."""
        return Spread(*(np.resize(getattr(self, f.name), channels) for f in fields(self)))

    @classmethod
    def joined(cls, *parts: Spread) -> Spread:
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def _pdf(x: Floats) -> Floats:
    density: Floats = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return density


def _cdf(x: Floats) -> Floats:
    return np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()])


@lru_cache(maxsize=64)
def _largest_normal(count: float) -> tuple[float, float]:
    """Mean and variance of the largest of `count` standard normal draws, integrated numerically."""
    edges = np.linspace(-8, 8, 1601)
    weight = np.diff(_cdf(edges) ** count)
    middle = (edges[1:] + edges[:-1]) / 2
    mean = float(weight @ middle)
    return mean, float(weight @ middle**2) - mean**2
