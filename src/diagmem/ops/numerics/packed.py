"""Weights, biases and multipliers as the kernels for cores with the DSP extension want them: see `_packed_s8.h`.

Two channels share 16-bit weights 256 * a + b, sums are kept 256-fold, and requantisation is one multiplication, one
addition and one shift. Not all numbers allow that; where some do not, there are no packed weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CChannels, CName, CStruct, CTable, require_types, values_of
from diagmem.ops.kind import Array
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.quantised import Requantisation, folded_bias, rounds_to_even, zero_point_of
from diagmem.ops.numerics.weighted_sums import bias_of, requantisation_of

Words = npt.NDArray[np.uint32]

MOST_RIGHT_SHIFT = 16
"""Up to here multiplier, zero point and rounding fit into 32 bits together."""

MOST_SUM = 2**23
"""256 times a sum below that fits into 32 bits."""

INT8 = (-128, 127)


def is_8_bit(node: Node) -> bool:
    """Whether data and weights are such as the kernels take; a bias that is none of theirs is refused later."""
    is_known = all(t.dtype is DType.INT8 for t in (node.input(0), node.input(1), node.output))
    return is_known and not rounds_to_even(node.output)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Of each channel what its sum starts from, and `constants`: multiplier, addend and shift."""

    bias: Ints
    constants: Words


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """What a convolution does, channel by channel: `weights` (a row for each channel, stored inputs as columns) and
    `bias`, which has the input's zero point in it; `output` makes outputs of the sums."""

    weights: Ints
    bias: Ints
    output: Requantisation

    @classmethod
    def of(cls, node: Node, axis: int = 0, weights: Array | None = None) -> Channels:
        """`axis`: that of the output channels in the filter; `weights`: a row for each of them, as in the filter unless
        given."""
        bias, weights = bias_of(node), values_of(node.input(1)) if weights is None else weights
        require_types(DType.INT32, () if bias is None else (bias,))
        rows = weights.reshape(len(weights), -1)
        folded = folded_bias(None if bias is None else values_of(bias), rows, zero_point_of(node.input(0)))
        return cls(rows.astype(np.int64), folded.astype(np.int64), requantisation_of(node, axis))

    @property
    def is_positive(self) -> bool:
        """Whether all negative sums give the least output."""
        return self.output.zero_point == INT8[0]

    def c_output(self) -> CStruct:
        """For kernels that take any numbers."""
        return self.output.c_channels(self.bias.astype(np.int32))

    def packed(self) -> Packed | None:
        """None where some channel cannot be computed so: outputs that fall where sums wrap around are none that these
        numbers give."""
        if (self.output.low, self.output.high) != INT8:
            return None
        least = self.bias + np.minimum(self.weights * INT8[0], self.weights * INT8[1]).sum(axis=1)
        most = self.bias + np.maximum(self.weights * INT8[0], self.weights * INT8[1]).sum(axis=1)
        ranges = zip(least.tolist(), most.tolist(), strict=True)
        found = [self._one(channel, *sums) for channel, sums in enumerate(ranges)]
        known = [numbers for numbers in found if numbers is not None]
        if len(known) < len(found):
            return None
        numbers = np.array(known, np.int64).reshape(-1, 4)
        return Packed(self.bias - numbers[:, 0], words(numbers[:, 1:]))

    def _one(self, channel: int, least: int, most: int) -> tuple[int, int, int, int] | None:
        """What is taken off the bias of a channel, and its multiplier, addend and shift. `least`, `most`: the sums that
        it may have."""
        mantissa, right = int(self.output.mantissas[channel]), -int(self.output.shifts[channel])
        if 1 <= right <= MOST_RIGHT_SHIFT and least >= -MOST_SUM and most < MOST_SUM:
            return 0, mantissa, self._addend(right), right + 7
        return self._fitted(channel, least, most) if right >= 1 or mantissa == 0 else None

    def _addend(self, right: int) -> int:
        """Both roundings and the zero point."""
        return 64 + (64 << right) + (self.output.zero_point << (right + 7))

    def _fitted(self, channel: int, least: int, most: int) -> tuple[int, int, int, int] | None:
        """Sums far from 0, or a very small multiplier: numbers near those that would be right with more bits, if they
        give the right outputs for all sums."""
        one = _of_channel(self.output, channel)
        middle = (least + most) // 2
        if most - least >= 2 * MOST_SUM - 1:
            return None
        lowest, highest = one.apply(np.array([least, most])).tolist()
        if lowest == highest:
            # Halfway between two steps, so that it does not matter whether the sign counts.
            return middle, 0, (lowest << 8) + 128, 8
        mantissa, right = int(one.mantissas[0]), -int(one.shifts[0])
        lost = max(0, right - MOST_RIGHT_SHIFT)
        addend = self._addend(right - lost) + ((256 * middle * mantissa) >> (32 + lost))
        sums = _steps(one, least, most)
        wanted = one.apply(sums)
        for near, nudge in itertools.product((0, 1), (0, 1, -1, 2, -2)):
            found = (mantissa >> lost) + near, addend + nudge, right - lost + 7
            fits = found[0] < 2**31 and abs(found[1]) < 2**30
            if fits and np.array_equal(packed_outputs(sums - middle, *found, self.is_positive), wanted):
                return middle, *found
        return None


def packed_outputs(sums: Ints, multiplier: int, addend: int, shift: int, is_positive: bool) -> Ints:
    """What the kernels make of sums: the twin of DIAGMEM_POSITIVE and DIAGMEM_ANY_SIGN."""
    sign = 0 if is_positive else np.where(sums < 0, -128, 0)
    outputs: Ints = np.clip((addend + sign + ((256 * sums * multiplier) >> 32)) >> shift, *INT8)
    return outputs


def _of_channel(output: Requantisation, channel: int) -> Requantisation:
    one = slice(channel, channel + 1)
    return Requantisation(output.mantissas[one], output.shifts[one], output.zero_point, output.low, output.high)


def _steps(one: Requantisation, low: int, high: int) -> Ints:
    """Sums from `low` to `high`: if a function that never falls agrees with the channel's on these, it does everywhere.
    They are those before and after each step of the channel's outputs, and the ends."""
    levels = np.arange(INT8[0], INT8[1] + 1)
    below = _least_sums(one.apply, np.full(256, low, np.int64), np.full(256, high, np.int64), levels)
    return np.unique(np.clip(np.concatenate([below, below - 1, [low, high]]), low, high))


def _least_sums(outputs: Callable[[Ints], Ints], least: Ints, most: Ints, levels: Ints) -> Ints:
    """The least sum from `least` on whose output is at least each level; `most` where there is none below."""
    below, above = least, most
    while (below < above).any():
        middle = (below + above) >> 1
        is_reached = outputs(middle) >= levels
        below, above = np.where(is_reached, below, middle + 1), np.where(is_reached, middle, above)
    return below


def in_fours(weights: Ints) -> Ints:
    """Weights of each channel in twos: of four inputs the even ones, then the odd ones."""
    channels, size = weights.shape
    twos: Ints = weights.reshape(channels, size // 4, 2, 2).swapaxes(-1, -2).reshape(channels, size // 2, 2)
    return twos


def bytes_of(twos: Ints) -> Array:
    """The inverse, as bytes."""
    channels, pairs, _ = twos.shape
    in_order: Array = twos.reshape(channels, pairs // 2, 2, 2).swapaxes(-1, -2).reshape(channels, 2 * pairs)
    return in_order.astype(np.int8)


def shared_words(twos: Ints) -> Words | None:
    """For each two channels, words of two 16-bit numbers 256 * a + b; None where one does not fit. `twos`: weights of
    each channel, two for each word."""
    shared = 256 * twos[::2] + twos[1::2]
    fits = shared.min(initial=0) >= -(2**15) and shared.max(initial=0) < 2**15
    return words_of(shared) if fits else None


def words(numbers: Ints) -> Words:
    """Numbers as words, what does not fit cut off."""
    return (numbers & 0xFFFFFFFF).astype(np.uint32)


def words_of(halves: Ints) -> Words:
    """Words of two 16-bit numbers each, the first in the lower half; they are the last axis."""
    parts = (halves & 0xFFFF).astype(np.uint32)
    pairs: Words = parts[..., 0] | (parts[..., 1] << np.uint32(16))
    return pairs


def shared_sums(bias: Ints) -> Words:
    """What the sums of two channels start from, 256 * a + b and b."""
    starts = np.stack([256 * bias[::2] + bias[1::2], bias[1::2]], axis=1)
    return words(starts)


def stream(parts: list[Words]) -> CTable:
    """The parts one behind the other, as 64-bit numbers."""
    flat = np.concatenate([part.reshape(-1) for part in parts])
    even = np.pad(flat, (0, len(flat) % 2)).astype(np.uint64)
    return CTable("blocks", (even[::2] | (even[1::2] << np.uint64(32))).astype(np.int64))


def blocks_of_four(channels: Channels, twos: Ints) -> CTable | None:
    """For `_packed_pairs_s8.h`: blocks of four channels; None where the numbers do not allow it. `twos`: the weights of
    each channel in twos, as they meet words of inputs."""
    count = len(channels.bias)
    packed, shared = channels.packed(), shared_words(np.pad(twos, ((0, -count % 4), (0, 0), (0, 0))))
    if packed is None or shared is None:
        return None
    sums = shared_sums(np.pad(packed.bias, (0, -count % 4))).reshape(-1, 4)
    filled = np.pad(packed.constants, ((0, -count % 4), (0, 0))).reshape(-1, 12)
    interleaved = shared.reshape(-1, 2, twos.shape[1]).swapaxes(1, 2)
    return stream([part for block in zip(sums, interleaved, filled, strict=True) for part in block])


def _in_twos(channels: Channels) -> tuple[Packed, Words, Words] | None:
    """What two channels each share: their sums at the start, and their weights; None where the numbers do not allow
    it."""
    count = len(channels.bias)
    packed, shared = channels.packed(), shared_words(in_fours(np.pad(channels.weights, ((0, count % 2), (0, 0)))))
    if packed is None or shared is None:
        return None
    return packed, shared_sums(np.pad(packed.bias, (0, count % 2))), shared


def blocks_of_eight(channels: Channels) -> CTable | None:
    """For `_packed_dot_s8.h`: blocks of eight channels, the rest in twos; None where the numbers do not allow it."""
    found = _in_twos(channels)
    if found is None:
        return None
    packed, sums, shared = found
    whole = len(channels.bias) // 8 * 8
    parts: list[Words] = []
    for first in range(0, whole, 8):
        twos = slice(first // 2, first // 2 + 4)
        parts += [sums[twos], shared[twos].T, packed.constants[first : first + 8]]
    for two in range(whole // 2, len(shared)):
        parts += [sums[two], shared[two]]
    return stream([*parts, packed.constants[whole:]])


def packed_rows(channels: Channels, rows: int) -> dict[str, Any] | None:
    """For `row_sums_packed_s8.c`: the same row by row, without constants, which come at the end; all sums but those of
    the first row begin at 0."""
    found = _in_twos(channels)
    if found is None:
        return None
    packed, sums, shared = found
    parts: list[Words] = []
    whole = len(channels.bias) // 8 * 4
    for row in np.split(shared, rows, axis=1):
        for first in range(0, whole, 4):
            parts += [sums[first : first + 4], row[first : first + 4].T]
        parts += [part for two in range(whole, len(row)) for part in (sums[two], row[two])]
        sums = np.zeros_like(sums)
    blocks = stream(parts)
    return {
        "is_positive": int(channels.is_positive),
        "eight": CName("diagmem_dot_eight_s8") if whole else None,
        "blocks": blocks,
        "step": len(blocks.data) // rows,
        "constants": CTable("constants", stream([packed.constants]).data),
    }


def packed_channels(inputs: int, *sizes: str) -> CChannels:
    """How a call with a `diagmem_packed_s8` is narrowed to blocks of eight channels, each made of so many inputs: sums,
    weights and constants of a block. `sizes`: what else says how many channels there are."""
    block = 8 + 2 * inputs + 24
    return CChannels(("output.channels", *sizes), frozenset(), blocks={"blocks": block // 2})


def c_packed(channels: Channels) -> CStruct | None:
    """The `diagmem_packed_s8` of a pixel's channels."""
    blocks = blocks_of_eight(channels)
    if blocks is None:
        return None
    fields = {
        "channels": len(channels.bias),
        "is_positive": int(channels.is_positive),
        "eight": CName("diagmem_dot_eight_s8") if len(channels.bias) >= 8 else None,
        "blocks": blocks,
    }
    return CStruct("diagmem_packed_s8", fields)


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
        low, high = (np.broadcast_arrays(end, levels)[0] for end in (least, most))
        below = _least_sums(lambda sums: channels.output.apply(sums + channels.bias), low, high, levels)
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


TOGETHER = 8
"""Channels that are computed together."""

VECTOR_BYTES = 16

IN_LANES = (0, 2, 4, 6, 1, 3, 5, 7)
"""Channels of eight: the even ones, then the odd ones."""

AS_SUMMED = (0, 4, 2, 6, 1, 5, 3, 7)
"""The same in the order in which their sums are put into these lanes."""


def filled_up(size: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-size // unit) * unit


def c_eights(channels: Channels) -> CStruct:
    """The `diagmem_eights_s8` of a pixel's channels."""
    output, count = channels.output, len(channels.bias)
    is_whole = (output.low, output.high) == INT8
    is_positive = channels.is_positive and is_whole and int(output.shifts.max()) <= 0
    bias, mantissas, shifts = (
        np.pad(row, (0, -count % TOGETHER)).reshape(-1, TOGETHER)[:, IN_LANES]
        for row in (channels.bias, output.mantissas, output.shifts)
    )
    packed = np.ascontiguousarray(shifts.astype(np.int8)).view("<i4")
    fields = {
        "channels": count,
        "zero_point": output.zero_point,
        "low": output.low,
        "high": output.high,
        "is_positive": int(is_positive),
        "eights": CTable("eights", np.concatenate([bias, mantissas, packed], axis=1).astype(np.int32)),
    }
    return CStruct("diagmem_eights_s8", fields)


def vectors_of(weights: Ints) -> CTable:
    """The weights of each channel, a row each, in vectors, filled up with zeros: of two channels at a time, in the
    order of their sums, one vector each, then the next."""
    channels, size = weights.shape
    filled = np.pad(weights, ((0, -channels % TOGETHER), (0, -size % VECTOR_BYTES)))
    eights = filled.reshape(-1, TOGETHER, filled.shape[1])[:, AS_SUMMED]
    groups = eights.reshape(-1, 2, filled.shape[1] // VECTOR_BYTES, VECTOR_BYTES).swapaxes(1, 2)
    return CTable("filter", groups.astype(np.int8))


def taps_of(weights: Ints) -> Array:
    """The weights of a depthwise convolution, a row for each channel: for each eight channels tap by tap."""
    channels, taps = weights.shape
    filled = np.pad(weights, ((0, -channels % TOGETHER), (0, 0)))
    in_eights: Array = filled.reshape(-1, TOGETHER, taps).swapaxes(1, 2).astype(np.int8)
    return in_eights
