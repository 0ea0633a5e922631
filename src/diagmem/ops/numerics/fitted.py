"""Requantisation by one multiplication and a shift that all channels share: see `_packed_s8.h`.

256 times a sum, with a number added, times a multiplier, shifted right: what rounding, zero point and bias do is in the
number added, so a channel has two constants, and the shift is part of the instruction that saturates. Outputs never
fall as sums rise, so two numbers are right for a channel if they make each step between two outputs at the right sum;
all steps are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagmem.ops.c_call import CTable
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import INT8, Channels, Words, shared_words, stream, words

SHIFTS = (10, 12, 8, 14)
"""Those that there are kernels for, those first that most layers can do with. A small one leaves small multipliers few
bits; a large one does not reach large multipliers."""

NEIGHBOURS = 64
"""Multipliers on either side of the true one that are tried."""

POWERS = range(30, 11, -1)
"""Of two, that are tried for channels with hardly a step, where the slope does not matter."""

MOST = 2**30
"""Sums below that, and what multipliers of at most 1 make of them, do not wrap around."""

NONE = 2**62
"""Beyond all numbers that there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Of each channel what 256 times its sum of products starts from, and its multiplier; and the shift."""

    starts: Ints
    multipliers: Ints
    shift: int

    def outputs(self, sums: Ints) -> Ints:
        """What kernels make of sums of products, which have no bias in them: the twin of DIAGMEM_FITTED."""
        high = ((256 * sums + self.starts) * self.multipliers) >> 32
        found: Ints = np.clip(high >> self.shift, *INT8)
        return found


def fitted(channels: Channels) -> Fitted | None:
    """None where some channel cannot be computed so."""
    if not channels.is_positive or (channels.output.low, channels.output.high) != INT8:
        return None
    steps = _Steps.of(channels)
    if not _never_falls(channels, steps):
        return None
    return next((found for shift in SHIFTS if (found := _with_shift(channels, steps, shift)) is not None), None)


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Of each channel its `least` and `most` sum of products, and the output there; `at`: [output, channel], the least
    sum that gives it or more."""

    least: Ints
    most: Ints
    first: Ints
    last: Ints
    at: Ints

    @classmethod
    def of(cls, channels: Channels) -> _Steps:
        products = channels.weights * INT8[0], channels.weights * INT8[1]
        least, most = np.minimum(*products).sum(axis=1), np.maximum(*products).sum(axis=1)
        levels = _levels()
        below, above = np.broadcast_arrays(least, np.zeros_like(levels))[0], np.broadcast_arrays(most, levels)[0]
        while (below < above).any():
            middle = (below + above) >> 1
            is_reached = channels.output.apply(middle + channels.bias) >= levels
            below, above = np.where(is_reached, below, middle + 1), np.where(is_reached, middle, above)
        first, last = (channels.output.apply(sums + channels.bias) for sums in (least, most))
        return cls(least, most, first, last, below)

    def starts(self, multipliers: Ints, shift: int, some: Ints) -> tuple[Ints, Ints]:
        """The least and the largest start, of `some` channels with these multipliers, that gives all their outputs; the
        least is larger than the largest where there is none."""
        unit, levels = 2 ** (32 + shift), _levels()
        first, last = self.first[some], self.last[some]
        is_step = (first < levels) & (levels <= last)
        behind = -(-levels * unit // multipliers) - 256 * self.at[:, some]
        low = np.where(is_step, behind, -NONE).max(axis=0)
        high = np.where(is_step, behind + 255, NONE).min(axis=0)
        low_end = -(-first * unit // multipliers) - 256 * self.least[some]
        high_end = -(-(last + 1) * unit // multipliers) - 1 - 256 * self.most[some]
        low = np.where(first > INT8[0], np.maximum(low, low_end), low)
        high = np.where(last < INT8[1], np.minimum(high, high_end), high)
        # Nothing may wrap around, whatever the sum.
        return np.maximum(low, -(2**31) - 256 * self.least[some]), np.minimum(high, 2**31 - 1 - 256 * self.most[some])


def _never_falls(channels: Channels, steps: _Steps) -> bool:
    """Whether outputs do not wrap around as sums rise."""
    largest = np.maximum(np.abs(channels.bias + steps.least), np.abs(channels.bias + steps.most))
    is_held = (channels.output.shifts == 0) & (largest < MOST)
    return bool(np.all((channels.output.shifts < 0) | is_held | (steps.least == steps.most)))


def _levels() -> Ints:
    return np.arange(INT8[0] + 1, INT8[1] + 1, dtype=np.int64)[:, None]


def _with_shift(channels: Channels, steps: _Steps, shift: int) -> Fitted | None:
    starts, multipliers = np.zeros_like(channels.bias), np.zeros_like(channels.bias)
    left = np.arange(len(channels.bias))
    for tried in _multipliers(channels, shift):
        within = left[(tried[left] > 0) & (tried[left] < 2**31)]
        low, high = steps.starts(tried[within], shift, within)
        found = within[low <= high]
        starts[found], multipliers[found] = ((low + high) >> 1)[low <= high], tried[found]
        left = np.setdiff1d(left, found)
        if not len(left):
            return Fitted(starts, multipliers, shift)
    return None


def _multipliers(channels: Channels, shift: int) -> Iterator[Ints]:
    """One for each channel at a time, the most promising first. Neighbours lie so far apart that they move the
    outermost step by an eighth of what a start can move it by."""
    true = channels.output.mantissas * 2.0 ** (shift - 7 + channels.output.shifts)
    nearest, apart = np.rint(true).astype(np.int64), np.maximum(1, true * true / 2.0 ** (32 + shift + 10))
    for steps in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        yield nearest + (steps * apart).astype(np.int64)
    for power in POWERS:
        yield np.full_like(nearest, 2**power)


def fitted_blocks(found: Fitted, twos: Ints) -> CTable | None:
    """For `_packed_pairs_s8.h`: blocks of four channels; None where two weights do not fit into one number. `twos`: the
    weights of each channel in twos, as they meet words of inputs."""
    more = -len(found.starts) % 4
    shared = shared_words(np.pad(twos, ((0, more), (0, 0), (0, 0))))
    if shared is None:
        return None
    starts, multipliers = (words(np.pad(each, (0, more))).reshape(-1, 4) for each in (found.starts, found.multipliers))
    interleaved = shared.reshape(-1, 2, twos.shape[1]).swapaxes(1, 2)
    parts: list[Words] = []
    for start, weights, m in zip(starts, interleaved, multipliers, strict=True):
        parts += [start[[0, 2]], weights, m[:2], start[1:2], m[2:], start[3:]]
    return stream(parts)
