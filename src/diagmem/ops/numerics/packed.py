"""Weights, biases and multipliers as the kernels for cores with the DSP extension want them: see `_packed_s8.h`.

Two channels share 16-bit weights 256 * a + b, sums are kept 256-fold, and requantisation is one multiplication, one
addition and one shift. Not all numbers allow that; where some do not, there are no packed weights.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CChannels, CName, CStruct, CTable, require_types, values_of
from diagmem.ops.kind import Array
from diagmem.ops.numerics.fitted import INT8, Fitted, fitted, least_sums
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.quantised import Requantisation, folded_bias, zero_point_of
from diagmem.ops.numerics.weighted_sums import bias_of, requantisation_of

Words = npt.NDArray[np.uint32]

MOST_RIGHT_SHIFT = 16
"""Up to here multiplier, zero point and rounding fit into 32 bits together."""

MOST_SUM = 2**23
"""256 times a sum below that fits into 32 bits."""


def is_8_bit(node: Node) -> bool:
    """Whether data and weights are such as the kernels take; a bias that is none of theirs is refused later."""
    return all(t.dtype is DType.INT8 for t in (node.input(0), node.input(1), node.output))


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Of each channel what its sum starts from, and `constants`: multiplier, addend and shift. Where outputs are
    rounded once, 256 times a sum starts from the addend; a channel without a line has a shift of -1."""

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
    def is_whole(self) -> bool:
        """Whether outputs have the whole range of their type."""
        return (self.output.low, self.output.high) == INT8

    def c_output(self) -> CStruct:
        """For kernels that take any numbers."""
        return self.output.c_channels(self.bias.astype(np.int32))

    def fitted(self) -> Fitted | None:
        """Channels without a line as `_packed_s8.h` has them. None where some channel cannot be computed so."""
        found = fitted(self.weights, self.bias, self.output) if self.is_whole else None
        if found is None or found.has_line.all():
            return found
        products, singles = (self.weights * INT8[0], self.weights * INT8[1]), self.output.mantissas
        ends = np.stack([np.minimum(*products).sum(axis=1), np.maximum(*products).sum(axis=1)])
        if (np.abs(self.bias + ends)[:, ~found.has_line] >= MOST_SUM).any() or singles.max() >= 2**30:
            return None
        starts = np.where(found.has_line, found.starts, 256 * self.bias + self.output.zero_point + 128)
        return replace(found, starts=starts, multipliers=np.where(found.has_line, found.multipliers, singles))

    def packed(self) -> Packed | None:
        """None where some channel cannot be computed so: outputs that fall where sums wrap around are none that these
        numbers give."""
        if not self.is_whole:
            return None
        if self.output.is_rounded_once:
            short = self.fitted()
            return None if short is None else Packed(np.zeros_like(self.bias), short.constants)
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
            if fits and np.array_equal(packed_outputs(sums - middle, *found, self.output.ignores_signs), wanted):
                return middle, *found
        return None


def packed_outputs(sums: Ints, multiplier: int, addend: int, shift: int, ignores_signs: bool) -> Ints:
    """What the kernels make of sums: the twin of DIAGMEM_POSITIVE and DIAGMEM_ANY_SIGN."""
    sign = 0 if ignores_signs else np.where(sums < 0, -128, 0)
    outputs: Ints = np.clip((addend + sign + ((256 * sums * multiplier) >> 32)) >> shift, *INT8)
    return outputs


def _of_channel(output: Requantisation, channel: int) -> Requantisation:
    one = slice(channel, channel + 1)
    return Requantisation(output.mantissas[one], output.shifts[one], output.zero_point, output.low, output.high)


def _steps(one: Requantisation, low: int, high: int) -> Ints:
    """Sums from `low` to `high`: if a function that never falls agrees with the channel's on these, it does everywhere.
    They are those before and after each step of the channel's outputs, and the ends."""
    levels = np.arange(INT8[0], INT8[1] + 1)
    below = least_sums(one.apply, np.full(256, low, np.int64), np.full(256, high, np.int64), levels)
    return np.unique(np.clip(np.concatenate([below, below - 1, [low, high]]), low, high))


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


def fitting_signs(twos: Ints) -> Ints:
    """Of each channel: -1 where all weights of the first one of two change their signs, so that both fit into one
    number: 256 * -128 + b does if b is not negative, 256 * 128 + b if it is."""
    first, second = twos[::2], twos[1::2]
    changes = ((first == INT8[0]) & (second < 0)).any(axis=(1, 2))
    return np.stack([np.where(changes, -1, 1), np.ones(len(first), np.int64)], axis=1).reshape(-1)


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
    packed, twos = channels.packed(), in_fours(np.pad(channels.weights, ((0, count % 2), (0, 0))))
    signs = fitting_signs(twos) if channels.output.is_rounded_once else np.ones(len(twos), np.int64)
    shared = shared_words(twos * signs[:, None, None])
    if packed is None or shared is None:
        return None
    constants = packed.constants.copy()
    constants[:, :2] = words(constants[:, :2].astype(np.int32).astype(np.int64) * signs[:count, None])
    return replace(packed, constants=constants), shared_sums(np.pad(packed.bias, (0, count % 2))), shared


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
        "is_positive": int(channels.output.ignores_signs),
        **channels.output.c_rounding(),
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
        "is_positive": int(channels.output.ignores_signs),
        **channels.output.c_rounding(),
        "eight": CName("diagmem_dot_eight_s8") if len(channels.bias) >= 8 else None,
        "blocks": blocks,
    }
    return CStruct("diagmem_packed_s8", fields)


def fitted_blocks(found: Fitted, twos: Ints) -> CTable | None:
    """For `_packed_pairs_s8.h`: blocks of four channels; None where two weights do not fit into one number. `twos`: the
    weights of each channel in twos, as they meet words of inputs."""
    more = -len(found.starts) % 4
    filled = np.pad(twos, ((0, more), (0, 0), (0, 0)))
    signs = fitting_signs(filled)
    shared = shared_words(filled * signs[:, None, None])
    if shared is None:
        return None
    starts = words(np.pad(found.starts, (0, more)) * signs).reshape(-1, 4)
    multipliers = multipliers_in_fours(found, signs)
    interleaved = shared.reshape(-1, 2, twos.shape[1]).swapaxes(1, 2)
    parts: list[Words] = []
    for start, weights, m in zip(starts, interleaved, multipliers, strict=True):
        parts += [start[[0, 2]], weights, m[:2], start[1:2], m[2:], start[3:]]
    return stream(parts)


def multipliers_in_fours(found: Fitted, signs: Ints | None = None) -> Words:
    """Where channels must be rounded: the second one of their block is odd, and so are their own, which are negative
    where no signs change."""
    count = len(found.multipliers)
    own = np.full(count, -1) if signs is None else np.tile([1, -1], -(-count // 2))[:count]
    chosen = np.where(found.has_line, found.multipliers, own * (2 * found.multipliers + 1)).astype(np.int64)
    fours = np.pad(chosen, (0, -count % 4)).reshape(-1, 4) * (1 if signs is None else signs.reshape(-1, 4))
    has_line = np.pad(found.has_line, (0, -count % 4), constant_values=True).reshape(-1, 4)
    fours[:, 1] |= ~has_line.all(axis=1)
    return words(fours)


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
    is_positive = output.ignores_signs and channels.is_whole and int(output.shifts.max()) <= 0
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
        **output.c_rounding(),
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
