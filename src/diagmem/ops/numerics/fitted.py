"""Straight lines that give the outputs of a quantised layer: a multiplication, a start and a shift, exact for every sum
that can be. Outputs never fall as sums rise, so a line is right if it makes each step at the right sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.ops.numerics.fixed_point import INT32_MAX, INT32_MIN, Ints
from diagmem.ops.numerics.quantised import Requantisation

INT8 = (-128, 127)

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
    """Of each channel what 256 times its sum of products starts from, and its multiplier; and the shift. `has_line`:
    which of them there is one for; others must be rounded."""

    starts: Ints
    multipliers: Ints
    shift: int
    has_line: npt.NDArray[np.bool_]

    @property
    def kernels(self) -> str:
        """What the names of kernels have in them."""
        return f"{'fitted' if self.has_line.all() else 'mixed'}_{self.shift}"

    @property
    def shifts(self) -> Ints:
        """-1 for a channel without a line."""
        return np.where(self.has_line, self.shift, -1)

    @property
    def constants(self) -> npt.NDArray[np.uint32]:
        """Multiplier, start and shift of each channel."""
        found: npt.NDArray[np.uint32] = np.stack([self.multipliers, self.starts, self.shifts], axis=1).astype(np.uint32)
        return found

    def outputs(self, sums: Ints, low: int = INT8[0], high: int = INT8[1]) -> Ints:
        """What kernels make of sums of products, which have no bias in them: the twin of DIAGMEM_FITTED."""
        found: Ints = np.clip(((256 * sums + self.starts) * self.multipliers) >> 32 >> self.shift, low, high)
        return found


def fitted(weights: Ints, bias: Ints, output: Requantisation) -> Fitted | None:
    """With the shift that gives most channels a line. None where outputs fall, or where channels remain that no kernel
    rounds beside those on lines. `weights`: a row for each channel."""
    steps = _Steps.of(weights, bias, output)
    if not output.ignores_signs or not steps.never_fall(bias, output):
        return None
    tried: list[Fitted] = []
    for shift in SHIFTS:
        tried.append(_with_shift(steps, output, shift))
        if tried[-1].has_line.all():
            return tried[-1]
    return max(tried, key=lambda found: int(found.has_line.sum())) if output.is_rounded_once else None


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Of each channel its `least` and `most` sum of products, and the output there; `at`: [output, channel], the least
    sum that gives it or more. Outputs are clamped from `low` to `high`."""

    least: Ints
    most: Ints
    first: Ints
    last: Ints
    at: Ints
    low: int
    high: int

    @classmethod
    def of(cls, weights: Ints, bias: Ints, output: Requantisation) -> _Steps:
        products = weights * INT8[0], weights * INT8[1]
        least, most = np.minimum(*products).sum(axis=1), np.maximum(*products).sum(axis=1)
        levels = _levels(output.low, output.high)
        low, high = (np.broadcast_arrays(end, levels)[0] for end in (least, most))
        below = least_sums(lambda sums: output.apply(sums + bias), low, high, levels)
        first, last = (output.apply(sums + bias) for sums in (least, most))
        return cls(least, most, first, last, below, output.low, output.high)

    def never_fall(self, bias: Ints, output: Requantisation) -> bool:
        """Whether outputs do not wrap around as sums rise."""
        largest = np.maximum(np.abs(bias + self.least), np.abs(bias + self.most))
        is_held = largest <= INT32_MAX if output.is_rounded_once else (output.shifts == 0) & (largest < MOST)
        is_scaled_down = (output.shifts < 0) & (not output.is_rounded_once)
        return bool(np.all(is_scaled_down | is_held | (self.least == self.most)))

    def starts(self, multipliers: Ints, shifts: Ints, some: Ints) -> tuple[Ints, Ints]:
        """The least and the largest start, of `some` channels with these multipliers, that gives all their outputs; the
        least is larger than the largest where there is none."""
        units, levels = np.int64(1) << (32 + shifts), _levels(self.low, self.high)
        first, last = self.first[some], self.last[some]
        is_step = (first < levels) & (levels <= last)
        behind = -(-levels * units // multipliers) - 256 * self.at[:, some]
        low = np.where(is_step, behind, -NONE).max(axis=0, initial=-NONE)
        high = np.where(is_step, behind + 255, NONE).min(axis=0, initial=NONE)
        low_end = -(-first * units // multipliers) - 256 * self.least[some]
        high_end = -(-(last + 1) * units // multipliers) - 1 - 256 * self.most[some]
        low = np.where(first > self.low, np.maximum(low, low_end), low)
        high = np.where(last < self.high, np.minimum(high, high_end), high)
        # Nothing may wrap around, whatever the sum.
        return np.maximum(low, INT32_MIN - 256 * self.least[some]), np.minimum(high, INT32_MAX - 256 * self.most[some])


def least_sums(outputs: Callable[[Ints], Ints], least: Ints, most: Ints, levels: Ints) -> Ints:
    """The least sum from `least` on whose output is at least each level; `most` where there is none below."""
    below, above = least, most
    while (below < above).any():
        middle = (below + above) >> 1
        is_reached = outputs(middle) >= levels
        below, above = np.where(is_reached, below, middle + 1), np.where(is_reached, middle, above)
    return below


def _levels(low: int, high: int) -> Ints:
    return np.arange(low + 1, high + 1, dtype=np.int64)[:, None]


def _with_shift(steps: _Steps, output: Requantisation, shift: int) -> Fitted:
    """Where others may have to be rounded, multipliers are even: kernels tell them by that."""
    shifts = np.full(len(output.mantissas), shift, np.int64)
    starts, multipliers = np.zeros_like(shifts), np.zeros_like(shifts)
    left = np.arange(len(shifts))
    for tried in _multipliers(output.reals, shifts):
        tried &= -2 if output.is_rounded_once else -1
        within = left[(tried[left] > 0) & (tried[left] < 2**31)]
        low, high = steps.starts(tried[within], shifts[within], within)
        found = within[low <= high]
        starts[found], multipliers[found] = ((low + high) >> 1)[low <= high], tried[found]
        left = np.setdiff1d(left, found)
        if not len(left):
            break
    return Fitted(starts, multipliers, shift, ~np.isin(np.arange(len(shifts)), left))


def _multipliers(reals: Any, shifts: Ints) -> Iterator[Ints]:
    """One for each channel at a time, the most promising first. Neighbours lie so far apart that they move the
    outermost step by an eighth of what a start can move it by."""
    true = reals * 2.0 ** (shifts + 24)
    nearest, apart = np.rint(true).astype(np.int64), np.maximum(1, true * true / 2.0 ** (shifts + 42))
    for steps in sorted(range(-NEIGHBOURS, NEIGHBOURS + 1), key=abs):
        yield nearest + (steps * apart).astype(np.int64)
    for power in POWERS:
        yield np.full_like(nearest, 2**power)
