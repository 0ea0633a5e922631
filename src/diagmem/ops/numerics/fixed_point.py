"""TensorFlow Lite's integer arithmetic, exact to the bit, on numpy arrays.

Numbers have 64 bits here and mean what they would in 32-bit registers. TFLite's reference kernels round twice when they
scale an accumulator: to 31 fractional bits, halves upwards, and then to an integer, halves away from zero. The C twin
of this module is `_fixed_point.h`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.ops.c_call import Unsupported

Ints = npt.NDArray[np.int64]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


class Multiplier(NamedTuple):
    """A positive real number as mantissa * 2**(shift - 31), the mantissa in [2**30, 2**31) or 0."""

    mantissa: int
    shift: int

    @classmethod
    def of(cls, real: float) -> Multiplier:
        """The nearest one; numbers too small for a 32-bit shift become 0, and one too large for it is refused."""
        (mantissa,), (shift,) = multipliers([real])
        return cls(int(mantissa), int(shift))


def multipliers(reals: Sequence[float]) -> tuple[Ints, Ints]:
    """Mantissas and shifts of the Multipliers of many numbers."""
    values = np.array(reals, dtype=np.float64)
    wrong = values[~((values >= 0) & (values <= INT32_MAX))]
    if len(wrong):
        raise Unsupported(f"scales that make a factor of {wrong[0]:.6g}; supported: 0 to 2^31 - 1")
    fractions, shifts = np.frexp(values)
    scaled = fractions * 2**31
    whole = np.floor(scaled)
    mantissas = (whole + (scaled - whole >= 0.5)).astype(np.int64)
    is_over = mantissas == 2**31
    mantissas, shifts = np.where(is_over, 2**30, mantissas), shifts.astype(np.int64) + is_over
    is_zero = (mantissas == 0) | (shifts < -31)
    return np.where(is_zero, 0, mantissas), np.where(is_zero, 0, shifts)


def round_half_away(x: float) -> int:
    """The nearest integer, halves away from zero: C's round()."""
    whole = math.floor(abs(x))
    nearest = whole + (abs(x) - whole >= 0.5)
    return nearest if x >= 0 else -nearest


def high_mul(a: Any, b: Any) -> Ints:
    """a * b / 2**31, halves upwards: the product of two numbers with 31 fractional bits."""
    product = np.asarray(a, dtype=np.int64) * np.asarray(b, dtype=np.int64)
    rounded: Ints = np.minimum((product + 2**30) >> 31, INT32_MAX)
    return rounded


def rounding_shift(x: Any, exponent: Any) -> Ints:
    """x / 2**exponent, halves away from zero."""
    x, exponent = np.asarray(x, dtype=np.int64), np.asarray(exponent, dtype=np.int64)
    half = (np.int64(1) << exponent) >> 1
    rounded: Ints = (x + half - ((x < 0) & (half > 0))) >> exponent
    return rounded


def rescale(x: Any, mantissa: Any, shift: Any) -> Ints:
    """x times a Multiplier, rounded twice. Arrays are broadcast."""
    shift = np.asarray(shift, dtype=np.int64)
    shifted = wrapped(np.asarray(x, dtype=np.int64) << np.maximum(shift, 0))
    return rounding_shift(high_mul(shifted, mantissa), np.maximum(-shift, 0))


def wrapped(x: Ints) -> Ints:
    """What remains of x in a 32-bit register."""
    return x.astype(np.int32).astype(np.int64)


def exp_of_negative(x: Any, integer_bits: int = 5) -> Ints:
    """exp(x) with 31 fractional bits, for x <= 0 with at most 5 bits before the binary point.

    x is cut into multiples of 1/4, whose exponentials are multiplied as the bits of x tell, and a rest in [-1/4, 0),
    for which four terms of the series around -1/8 do.
    """
    x = np.asarray(x, dtype=np.int64)
    quarter = 1 << (29 - integer_bits)
    rest = (x & (quarter - 1)) - quarter
    result = _exp_near_zero(rest << integer_bits)
    whole = rest - x
    for bit, factor in enumerate(_EXPONENTIALS[: integer_bits + 2], start=29 - integer_bits):
        result = np.where(whole & (1 << bit), high_mul(result, factor), result)
    return np.where(x == 0, INT32_MAX, result)


_EXPONENTIALS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-1/4), exp(-1/2), exp(-1), exp(-2), exp(-4), exp(-8), exp(-16) with 31 fractional bits."""


def _exp_near_zero(x: Ints) -> Ints:
    """exp(x) with 31 fractional bits, for x in [-1/4, 0)."""
    exp_minus_eighth, third = 1895147668, 715827883
    x = x + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    tail = rounding_shift(high_mul(rounding_shift(x4, 2) + x3, third) + x2, 1)
    return exp_minus_eighth + high_mul(exp_minus_eighth, x + tail)


def reciprocal(x: Any, integer_bits: int) -> tuple[Ints, Ints]:
    """1/x for x > 0 with `integer_bits` before the binary point: (y, n) such that 1/x = y * 2**(-31 - n)."""
    x = np.asarray(x, dtype=np.int64)
    leading_zeros = 32 - bit_lengths(x)
    return one_over_one_plus((x << leading_zeros) - 2**31), integer_bits - leading_zeros


def bit_lengths(x: Ints) -> Ints:
    """How many bits each number has, from the highest that is set on."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def one_over_one_plus(x: Any) -> Ints:
    """1/(1 + x) for x in [0, 1), with 31 fractional bits."""
    return saturating_shift(_two_over_one_plus(x), 1)


def one_minus_over_one_plus(x: Any) -> Ints:
    """(1 - x)/(1 + x) for x in [0, 1), with 31 fractional bits."""
    return saturating_shift(_two_over_one_plus(x) - (1 << 29), 2)


def _two_over_one_plus(x: Any) -> Ints:
    """2/(1 + x) for x in [0, 1), 29 fractional bits: three steps of Newton's method from a straight line."""
    half_denominator = (np.asarray(x, dtype=np.int64) + INT32_MAX + 1) // 2
    estimate = 1515870810 + high_mul(half_denominator, -1010580540)
    for _ in range(3):
        error = (1 << 29) - high_mul(half_denominator, estimate)
        estimate = estimate + saturating_shift(high_mul(estimate, error), 2)
    return estimate


def saturating_shift(x: Any, exponent: Any) -> Ints:
    """x * 2**exponent, clamped to 32 bits."""
    clamped: Ints = np.clip(np.asarray(x, dtype=np.int64) << exponent, INT32_MIN, INT32_MAX)
    return clamped


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


def sigmoid_16(place: Ints) -> Ints:
    """The sigmoid with 15 fractional bits, by straight lines between entries of `sigmoid_table`, 512 places apart."""
    value = _on_lines(np.abs(place), 9, 0x7FFF << 10)
    return np.where(place >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1) >> 10


def tanh_16(place: Ints) -> Ints:
    """tanh likewise, with entries 256 places apart."""
    value = _on_lines(np.abs(place), 8, 0xFFFF << 8) - (1 << 23)
    return np.where(place >= 0, value + (1 << 7), -value + (1 << 7) - 1) >> 8


def _on_lines(size: Ints, bits: int, beyond: int) -> Ints:
    table = sigmoid_table()
    index = np.minimum(size >> bits, 254)
    line = (table[index] << bits) + (size & ((1 << bits) - 1)) * (table[index + 1] - table[index])
    return np.where(size >> bits >= 255, beyond, line)


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
