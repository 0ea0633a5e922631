"""float32 functions: the same operations in the same order as in C, so the same bits.

C libraries differ in the last bits of exp(); these functions are the same on every machine. Their twins
are in `_exp_f32.h` and `_real_f32.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

LARGEST_EXPONENT = np.float32(88.72283)
LEAST_EXPONENT = np.float32(-87.33654)

_TERMS = tuple(map(np.float32, (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 1.6666665e-1, 5.0000001e-1)))
"""Coefficients of r**7 down to r**2 in exp(r), |r| <= ln(2) / 2."""


def larger(x: Any, y: Any) -> Array:
    """The larger one; y where they are equal, also as zeros of different signs, or cannot be compared."""
    found: Array = np.where(x > y, x, y)
    return found


def smaller(x: Any, y: Any) -> Array:
    """The smaller one; y where they are equal, or cannot be compared."""
    found: Array = np.where(x < y, x, y)
    return found


def clamped(x: Any, low: float, high: float) -> Array:
    """In the range from low to high. What is equal to an end of it stays: a zero keeps its sign."""
    low, high = np.float32(low), np.float32(high)
    return np.where(x < low, low, np.where(x > high, high, x))


def sum_in_order(x: Floats) -> Floats:
    """The sums along the last axis, which stays with size 1: one element after the other, from 0 on."""
    total: Floats = np.zeros((*x.shape[:-1], 1), np.float32)
    for c in range(x.shape[-1]):
        total += x[..., c : c + 1]
    return total


def product_in_order(left: Floats, right: Floats) -> Floats:
    """The product of matrices, of which the axes before the last two are broadcast: of each sum one product after the
    other, from 0 on."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    sums: Floats = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.float32)
    for k in range(left.shape[-1]):
        sums += left[..., :, k, None] * right[..., None, k, :]
    return sums


def exp(x: Any) -> Floats:
    """exp(x) within 2 units in the last place; 0 where it would be less than the least normal number."""
    x = np.asarray(x, np.float32)
    inside = np.clip(x, LEAST_EXPONENT, LARGEST_EXPONENT)
    octaves = inside * np.float32(1.44269504)
    whole = (octaves + np.where(octaves < 0, np.float32(-0.5), np.float32(0.5))).astype(np.int32)
    rest = inside - whole.astype(np.float32) * np.float32(0.693359375)
    rest = rest - whole.astype(np.float32) * np.float32(-2.12194440e-4)
    total = _series(rest) + np.float32(1)
    half = whole // 2
    scaled = total * _power_of_two(half) * _power_of_two(whole - half)
    found: Floats = np.where(x < LEAST_EXPONENT, np.float32(0), scaled)
    return np.where(x > LARGEST_EXPONENT, np.float32(np.inf), found)


def _series(x: Floats) -> Floats:
    """exp(x) - 1 for |x| <= ln(2) / 2."""
    return _polynomial(_TERMS, x) * (x * x) + x


def _polynomial(terms: Sequence[np.float32], x: Floats) -> Floats:
    """The value of a polynomial at x; `terms` are its coefficients, that of the highest power first."""
    total: Floats = np.full_like(x, terms[0])
    for term in terms[1:]:
        total = total * x + term
    return total


def expm1(x: Any) -> Floats:
    """exp(x) - 1, also exact to a few units where x is small."""
    x = np.asarray(x, np.float32)
    near = np.abs(x) <= _HALF_LN_2
    return np.where(near, _series(np.where(near, x, np.float32(0))), exp(x) - np.float32(1))


_HALF_LN_2 = np.float32(0.34657359)


def tanh(x: Any) -> Floats:
    x = np.asarray(x, np.float32)
    size = smaller(np.where(x < 0, -x, x), np.float32(10))
    grown = expm1(size * np.float32(2))
    positive = grown / (grown + np.float32(2))
    found: Floats = np.where(x < 0, -positive, positive)
    return found


def logistic(x: Any) -> Floats:
    """Where 1 + exp(-x) would lose x, TFLite takes other ways; so does this."""
    x = np.asarray(x, np.float32)
    with np.errstate(over="ignore"):
        middle = np.float32(1) / (np.float32(1) + exp(-x))
    return np.where(x > np.float32(16.619047), np.float32(1), np.where(x < np.float32(-9), exp(x), middle))


def log(x: Any) -> Floats:
    """The natural logarithm of a normal number above 0: twice the area tangent of (m - 1) / (m + 1), m near 1."""
    bits = np.asarray(x, np.float32).view(np.int32)
    exponent = (bits >> 23) - 127
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).astype(np.int32).view(np.float32)
    is_large = mantissa > np.float32(1.41421356)
    mantissa = np.where(is_large, mantissa * np.float32(0.5), mantissa)
    whole = (exponent + is_large).astype(np.float32)
    ratio = (mantissa - np.float32(1)) / (mantissa + np.float32(1))
    part = ratio * np.float32(2) * _polynomial(_ATANH, ratio * ratio)
    total: Floats = whole * np.float32(0.693359375) + (part + whole * np.float32(-2.12194440e-4))
    return total


_ATANH = tuple(map(np.float32, (1 / 9, 1 / 7, 1 / 5, 1 / 3, 1)))
"""Coefficients of r**8, r**6, … in the area tangent of r, divided by r."""


def _in_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


IN_DOUBLE = {
    name: _in_double(function)
    for name, function in (
        *(("LOG", np.log), ("SIN", np.sin), ("COS", np.cos), ("Tan", np.tan), ("Acos", np.arccos), ("Asin", np.arcsin)),
        *(("Atan", np.arctan), ("Sinh", np.sinh), ("Cosh", np.cosh), ("Acosh", np.arccosh), ("Asinh", np.arcsinh)),
        ("Atanh", np.arctanh),
    )
}
"""What C libraries compute in their own ways, in float64, so that they agree in what is left of it: by TFLite's names,
and those of TensorFlow that TFLite does not have."""


def erfc(x: Any) -> Floats:
    """1 - erf(x). For x >= 0 it is exp(-x * x) * t times a polynomial in t = 1 / (1 + 0.4 * x), fitted for the least
    relative error."""
    x = np.asarray(x, np.float32)
    size = np.abs(x)
    t = np.float32(1) / (np.float32(1) + np.float32(0.4) * size)
    positive = exp(-(size * size)) * (t * _polynomial(_ERFC, t))
    found: Floats = np.where(x < 0, np.float32(2) - positive, positive)
    return found


_ERFC = tuple(
    map(
        np.float32,
        (
            *(-0.028637955, 0.19282793, -0.4866425, 0.5312449, -0.2709379),
            *(0.26488146, 0.1321539, 0.21439126, 0.22501521, 0.22570367),
        ),
    )
)


def gelu(x: Any) -> Floats:
    x = np.asarray(x, np.float32)
    found: Floats = np.float32(0.5) * x * erfc(x * np.float32(-0.70710678))
    return found


def gelu_by_tanh(x: Any) -> Floats:
    """GELU by its usual approximation with a tanh."""
    x = np.asarray(x, np.float32)
    inner = np.float32(0.79788456) * (x + np.float32(0.044715) * x * x * x)
    found: Floats = np.float32(0.5) * x * (np.float32(1) + tanh(inner))
    return found


def _power_of_two(exponent: npt.NDArray[np.int32]) -> Floats:
    power: Floats = ((exponent + 127) << 23).astype(np.int32).view(np.float32)
    return power
