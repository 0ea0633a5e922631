"""Functions of one quantised number, bit for bit as TFLite's reference kernels compute them."""

from __future__ import annotations

from typing import Any

import numpy as np

from diagmem.ops.numerics.fixed_point import (
    INT32_MAX,
    Ints,
    Multiplier,
    bit_lengths,
    exp_of_negative,
    high_mul,
    one_minus_over_one_plus,
    one_over_one_plus,
    rescale,
    rounding_shift,
    saturating_shift,
)

_INTEGER_BITS = 4
"""Before the binary point, of the arguments of sigmoid and tanh."""


def scaled_argument(x: Any, scale: float) -> tuple[Ints, Ints]:
    """x * scale with `_INTEGER_BITS` before the binary point, and where it is too large for them: -1, 0 or 1."""
    mantissa, shift = Multiplier.of(scale * 2 ** (31 - _INTEGER_BITS))
    radius = (2**_INTEGER_BITS - 1) * 2 ** (31 - _INTEGER_BITS) // 2**shift
    x = np.asarray(x, dtype=np.int64)
    beyond = np.where(np.abs(x) >= radius, np.sign(x), 0)
    return rescale(np.where(beyond, 0, x), mantissa, shift), beyond


def sigmoid(x: Ints) -> Ints:
    """The sigmoid of x, with 31 fractional bits."""
    positive = one_over_one_plus(exp_of_negative(-np.abs(x), _INTEGER_BITS))
    return np.where(x == 0, 1 << 30, np.where(x > 0, positive, INT32_MAX - positive))


def tanh(x: Ints) -> Ints:
    """tanh(x), with 31 fractional bits. exp(-2|x|) takes the same bits with one more of them before the point."""
    positive = one_minus_over_one_plus(exp_of_negative(-np.abs(x), _INTEGER_BITS + 1))
    return np.where(x == 0, 0, np.where(x > 0, positive, -positive))


def log_of_sum(x: Ints, integer_bits: int) -> Ints:
    """ln(x) with 26 fractional bits, for x >= 1 with `integer_bits` before the binary point.

    x is a power of 2 times r, of which the logarithm is a quotient of two polynomials around the fourth root of 1/2.
    There are two ways to cut off the power, half an octave apart; the one with the smaller r is taken.
    """
    x = np.asarray(x, dtype=np.int64)
    quarter, zeros = 1 << 23, 32 - bit_lengths(x)
    smaller = high_mul(x, _SQRT_HALF)
    headroom = 31 - bit_lengths(smaller)
    r = np.minimum(
        saturating_shift(high_mul(saturating_shift(x, zeros - 1), _SQRT_HALF), 1), saturating_shift(x, headroom)
    )
    power = np.maximum(((integer_bits - zeros) << 25) + quarter, ((integer_bits - headroom) << 25) - quarter)
    fourth_root, log_2 = 1805811301, 1488522236
    p, q = (r + fourth_root + 1) >> 1, 2 * (r - fourth_root)
    square = high_mul(q, q)
    numerator = high_mul(q, r) + high_mul(high_mul(q, square), 117049297)
    denominator = high_mul(p, 1057819769 + q + high_mul(127690142, square)) + high_mul(638450708, q)
    fraction = high_mul(rounding_shift(numerator, 6), one_over_one_plus(denominator))
    return saturating_shift(high_mul(power, log_2) + fraction, 1)


_SQRT_HALF = 1518500250
"""The root of 1/2, with 31 fractional bits."""


def inverse_sqrt(x: int) -> Multiplier:
    """1 / sqrt(x) for x >= 0, of which 0 and 1 give 1: five steps of Newton's method from 1, 28 fractional bits."""
    if x <= 1:
        return Multiplier(INT32_MAX, 0)
    shift = 11
    while x >= 1 << 29:
        x, shift = x // 4, shift + 1
    pairs = (31 - x.bit_length()) // 2 - 1
    x, shift = x << 2 * pairs, shift - pairs
    half, estimate = rounding_shift(x >> 1, 1), np.asarray(1 << 28)
    for _ in range(5):
        cube = saturating_shift(high_mul(high_mul(estimate, estimate), estimate), 6)
        estimate = saturating_shift(high_mul((1 << 28) + (1 << 27), estimate) - high_mul(half, cube), 3)
    mantissa = int(high_mul(estimate, _SQRT_HALF))
    return Multiplier(mantissa << max(0, -shift), -max(0, shift))


def hard_swish(x: Ints, output_multiplier: float, sixth_multiplier: float) -> Ints:
    """x * relu6(x + 3) / 6 in 16 bits, before the zero point is added. The multipliers are those of x * 2**7: to the
    output's scale, and to 3 / 2**15."""
    fine = x << 7
    to_output, to_sixth = Multiplier.of(output_multiplier), Multiplier.of(sixth_multiplier)
    preshift = _high_mul_16(fine, _upper_half(to_output.mantissa))
    gate = fine
    if to_sixth.shift > 0:
        gate = _clamped_16(gate << (to_sixth.shift - 1))
    gate = _high_mul_16(gate, _upper_half(to_sixth.mantissa))
    gate = _clamped_16(gate << 1) if to_sixth.shift > 0 else rounding_shift(gate, -to_sixth.shift)
    gate = (gate + (1 << 15)) >> 1
    product = gate * preshift
    truncated = np.sign(product) * (np.abs(product) >> 15)
    return rounding_shift(truncated, -to_output.shift)


def _upper_half(mantissa: int) -> int:
    """A mantissa rounded to 16 bits."""
    return 2**15 - 1 if mantissa >= INT32_MAX - 2**15 else (mantissa + 2**15) >> 16


def _clamped_16(x: Ints) -> Ints:
    clamped: Ints = np.clip(x, -(2**15), 2**15 - 1)
    return clamped


def _high_mul_16(a: Ints, b: int) -> Ints:
    """a * b / 2**15, halves upwards."""
    return _clamped_16((a * b + 2**14) >> 15)


def sigmoid_table() -> Ints:
    """65536 * sigmoid(i / 24), raised by half of what a chord to the next entry misses at its middle. So the error of
    straight lines between the entries spreads evenly."""

    def value(i: Any) -> Any:
        return 65536 / (1 + np.exp(-i / 24))

    i = np.arange(256)
    missed = value(i + 0.5) - (value(i) + value(i + 1)) / 2
    table: Ints = np.floor(value(i) + missed / 2 + 0.5).astype(np.int64)
    table[-1] = 65535
    return table
