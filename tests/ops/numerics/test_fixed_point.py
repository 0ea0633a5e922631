"""Integer arithmetic is TFLite's to the bit: against its definition in exact fractions, and against its C twin."""

from __future__ import annotations

import math
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.backends.c.kernels import joined
from diagmem.ops import Unsupported
from diagmem.ops.numerics.fixed_point import (
    INT32_MAX,
    INT32_MIN,
    Multiplier,
    bit_lengths,
    exp_of_negative,
    high_mul,
    inverse_sqrt,
    multipliers,
    one_minus_over_one_plus,
    one_over_one_plus,
    reciprocal,
    rescale,
    round_half_away,
    rounding_shift,
    saturating_shift,
    wrapped,
)
from diagmem.ops.numerics.quantised import Requantisation
from tests.backends.c.models import compiler

INT32 = st.integers(INT32_MIN, INT32_MAX)
EDGES = [0, 1, -1, 2, -2, 3, -3, INT32_MAX, INT32_MIN, INT32_MIN + 1, 2**30, -(2**30), 12345678, -87654321]


def half_up(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def half_away(x: Fraction) -> int:
    return half_up(x) if x >= 0 else -half_up(-x)


@given(st.floats(1e-12, 1e6))
def test_multipliers_are_the_nearest(real: float) -> None:
    """Mantissas have 31 bits, and are off by half a unit at most; what is too small is nothing."""
    mantissa, shift = Multiplier.of(real)
    if mantissa == 0:
        assert real < 2.0**-31
    else:
        assert 2**30 <= mantissa < 2**31
        assert abs(Fraction(real) - Fraction(mantissa) * Fraction(2) ** (shift - 31)) <= Fraction(2) ** (shift - 32)


@given(INT32, st.integers(0, INT32_MAX))
def test_products_round_halves_upwards(a: int, b: int) -> None:
    assert int(high_mul(a, b)) == half_up(Fraction(a * b, 2**31))


@given(INT32, st.integers(0, 31))
def test_shifts_round_halves_away_from_zero(x: int, exponent: int) -> None:
    assert int(rounding_shift(x, exponent)) == half_away(Fraction(x, 2**exponent))


def test_small_numbers_are_shifted_right() -> None:
    """Where halves are frequent, all of them."""
    for x in range(-40, 41):
        for exponent in range(5):
            assert int(rounding_shift(x, exponent)) == half_away(Fraction(x, 2**exponent)), (x, exponent)


@given(INT32, st.integers(2**29, INT32_MAX), st.integers(-31, 0))
def test_rescaling_rounds_twice(x: int, mantissa: int, shift: int) -> None:
    once = half_up(Fraction(x * mantissa, 2**31))
    assert int(rescale(x, mantissa, shift)) == half_away(Fraction(once, 2**-shift))


def test_exponentials_and_reciprocals_are_close() -> None:
    """Not only the same as TFLite's, but right."""
    x = np.linspace(-31 * 2**26, 0, 1001).astype(np.int64)
    assert np.abs(exp_of_negative(x) / 2**31 - np.exp(x / 2**26)).max() < 1e-6
    y = np.linspace(0, INT32_MAX, 1001).astype(np.int64)
    assert np.abs(one_over_one_plus(y) / 2**31 - 1 / (1 + y / 2**31)).max() < 1e-8


@pytest.mark.parametrize("integer_bits", range(6))
def test_exponentials_of_any_range_are_close(integer_bits: int) -> None:
    """With so many bits before the binary point; 0 is just below 1."""
    x = -np.unique(np.geomspace(1, INT32_MAX, 4001).astype(np.int64))
    real = x / 2.0 ** (31 - integer_bits)
    assert np.abs(exp_of_negative(x, integer_bits) / 2**31 - np.exp(real)).max() < 1e-6
    assert int(exp_of_negative(0, integer_bits)) == INT32_MAX


def test_fractions_are_close() -> None:
    """(1 - x) / (1 + x), at the ends of its range too, where it saturates."""
    y = np.concatenate([np.linspace(0, INT32_MAX, 4001).astype(np.int64), [1, 2, INT32_MAX - 1]])
    real = y / 2**31
    assert np.abs(one_minus_over_one_plus(y) / 2**31 - (1 - real) / (1 + real)).max() < 1e-8
    assert one_minus_over_one_plus(y).max() <= INT32_MAX


@given(st.integers(1, INT32_MAX), st.integers(0, 12))
def test_reciprocals_are_close(x: int, integer_bits: int) -> None:
    """Of any number above 0, wherever its binary point is."""
    found, exponent = reciprocal(x, integer_bits)
    assert 2**30 <= int(found) <= INT32_MAX
    real = Fraction(x, 2 ** (31 - integer_bits))
    assert abs(Fraction(int(found)) * Fraction(2) ** (-31 - int(exponent)) * real - 1) < Fraction(1, 10**8)


@given(st.integers(1, 2**40))
def test_bits_are_counted(x: int) -> None:
    assert bit_lengths(np.array([x], np.int64)).tolist() == [x.bit_length()]


@given(INT32, st.integers(0, 31))
def test_shifts_to_the_left_saturate(x: int, exponent: int) -> None:
    assert int(saturating_shift(x, exponent)) == min(INT32_MAX, max(INT32_MIN, x << exponent))


@given(st.integers(-(2**62), 2**62))
def test_registers_wrap_around(x: int) -> None:
    assert (int(wrapped(np.array([x], np.int64))[0]) - x) % 2**32 == 0
    assert INT32_MIN <= int(wrapped(np.array([x], np.int64))[0]) <= INT32_MAX


@pytest.mark.parametrize("real", [-1.0, 2.0**31, math.inf, math.nan])
def test_factors_that_no_multiplier_is_are_refused(real: float) -> None:
    with pytest.raises(Unsupported, match="scales that make a factor of"):
        Multiplier.of(real)


def test_multipliers_at_the_ends_of_their_range() -> None:
    """0 is itself; the largest factor and the least that is not taken for 0; one that is rounded up to a power of 2."""
    assert Multiplier.of(0.0) == (0, 0)
    assert Multiplier.of(float(INT32_MAX)) == (INT32_MAX, 31)
    assert Multiplier.of(2.0**-32) == (2**30, -31)
    assert Multiplier.of(math.nextafter(2.0**-32, 0)) == (2**30, -31)
    assert Multiplier.of(2.0**-33) == (0, 0)
    assert Multiplier.of(math.nextafter(1.0, 0)) == (2**30, 1)


ENDS = [0.0, float(INT32_MAX), 2.0**-32, math.nextafter(2.0**-32, 0), 2.0**-33, math.nextafter(1.0, 0), 0.5, 1.5]


@given(st.lists(st.one_of(st.floats(0, INT32_MAX), st.floats(0, 1), st.sampled_from(ENDS))))
def test_many_multipliers_are_those_of_each(reals: list[float]) -> None:
    mantissas, shifts = multipliers(reals)
    assert [*zip(mantissas.tolist(), shifts.tolist(), strict=True)] == [Multiplier.of(real) for real in reals]


@pytest.mark.parametrize("real", [-1.0, 2.0**31, math.inf, math.nan])
def test_many_factors_are_refused_for_one(real: float) -> None:
    with pytest.raises(Unsupported, match="scales that make a factor of"):
        multipliers([0.5, real])


@given(st.floats(-1e9, 1e9))
def test_halves_are_rounded_away_from_zero(x: float) -> None:
    assert round_half_away(x) == half_away(Fraction(x))


PROGRAM = """
int main(void) {
    int32_t in[3];
    while (fread(in, sizeof in, 1, stdin) == 1) {
        const diagmem_requantisation above = {in[1], in[2], 127, -128, 127};
        const diagmem_requantisation below = {in[1], in[2], -128, -128, 127};
        const int32_t out[7] = {
            diagmem_high_mul(in[0], in[1]),
            diagmem_rounding_shift(in[0], in[2] < 0 ? -in[2] : in[2]),
            diagmem_rescale(in[0], in[1], in[2]),
            diagmem_exp_of_negative(in[0] > 0 ? -in[0] : in[0] == INT32_MIN ? 0 : in[0]),
            diagmem_one_over_one_plus(in[1]),
            diagmem_requantise(&above, in[0]),
            diagmem_requantise(&below, in[0]),
        };
        fwrite(out, sizeof out, 1, stdout);
    }
    return 0;
}
"""


@pytest.fixture(scope="module", params=[0, 1], ids=["long products", "short products"])
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C header, as a program that is sent numbers: as it is, and for cores whose products have 32 bits."""
    directory = tmp_path_factory.mktemp("twin")
    source = "\n".join(["#include <stdint.h>", "#include <stdio.h>", *joined(["_fixed_exp.h"]), PROGRAM])
    (directory / "twin.c").write_text(source)
    flags = ["-std=c99", "-O2", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    flags += [f"-DDIAGMEM_SHORT_PRODUCTS={request.param}"]
    subprocess.run([compiler("gcc"), *flags, "twin.c", "-o", "twin"], cwd=directory, check=True)
    return directory / "twin"


def test_c_twin(twin: Path) -> None:
    """The same bits for a million combinations, edges among them, and nothing undefined on the way."""
    rng = np.random.default_rng(0)
    count = 200_000
    x = np.concatenate([rng.integers(INT32_MIN, INT32_MAX, count), np.repeat(EDGES, 64 * 5)])
    x[: count // 2] >>= rng.integers(0, 31, count // 2)
    mantissa = rng.integers(2**29, INT32_MAX, len(x), endpoint=True)
    mantissa[-len(EDGES) * 64 * 5 :] = np.tile([2**30, 2**30 + 1, INT32_MAX, 2**29, 0], len(EDGES) * 64)
    shift = rng.integers(-31, 32, len(x))
    shift[-len(EDGES) * 64 * 5 :] = np.tile(np.repeat(np.arange(-31, 1), 10), len(EDGES))
    sent = np.stack([x, mantissa, shift], axis=1).astype(np.int32)
    got = np.frombuffer(subprocess.run([twin], input=sent.tobytes(), capture_output=True, check=True).stdout, np.int32)
    negative = np.where(x == INT32_MIN, 0, -np.abs(x))
    wanted = [
        high_mul(x, mantissa),
        rounding_shift(x, np.abs(shift)),
        rescale(x, mantissa, shift),
        exp_of_negative(negative),
        one_over_one_plus(mantissa),
        *(Requantisation(mantissa, shift, zero_point, -128, 127).apply(x) for zero_point in (127, -128)),
    ]
    assert np.array_equal(got.reshape(-1, 7), np.stack(wanted, axis=1))


@pytest.mark.parametrize("x", [1, 2, 3, 5, 1000, 123_456_789, (1 << 29) - 1, 1 << 29, (1 << 29) + 1, INT32_MAX])
def test_inverse_roots(x: int) -> None:
    """Close to the float one, also of numbers that are scaled down first."""
    found = inverse_sqrt(x)
    assert found.mantissa * 2.0 ** (found.shift - 31) == pytest.approx(x**-0.5, rel=2e-6)
