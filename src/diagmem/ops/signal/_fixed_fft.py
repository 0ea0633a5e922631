"""Fourier transforms in whole numbers, bit for bit as kissfft does them: powers of two, in radix 4, and one radix 2
where the power is odd. Every stage divides by its radix before it adds, so that nothing overflows but by rounding. Real
numbers go the same way, and nothing is divided."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, IntArray

Numbers = npt.NDArray[Any]
"""Whole numbers, wide enough for products; or real ones."""


class Complex(NamedTuple):
    real: Numbers
    imaginary: Numbers


def radix_of(size: int) -> int:
    """Of the outermost stage."""
    return 4 if size % 4 == 0 else 2


def sources(size: int) -> IntArray:
    """For each place at which the stages begin, the place of the input that is put there."""
    if size == 1:
        return np.zeros(1, np.int64)
    radix = radix_of(size)
    within = sources(size // radix) * radix
    return np.concatenate([within + part for part in range(radix)])


class FixedFft(NamedTuple):
    """Of complex numbers with parts of so many bits."""

    bits: int
    is_inverse: bool = False

    def wrapped(self, x: Numbers) -> Numbers:
        half = 1 << (self.bits - 1)
        return ((x + half) & (2 * half - 1)) - half

    def rounded(self, x: Numbers) -> Numbers:
        """Without the bits behind the point, halves upwards."""
        return (x + (1 << (self.bits - 2))) >> (self.bits - 1)

    def divided(self, x: Complex, by: int) -> Complex:
        part = ((1 << (self.bits - 1)) - 1) // by
        return Complex(*(self.wrapped(self.rounded(p * part)) for p in x))

    def halved(self, x: Numbers) -> Numbers:
        return x >> 1

    def times(self, x: Complex, y: Complex) -> Complex:
        real = self.rounded(x.real * y.real - x.imaginary * y.imaginary)
        imaginary = self.rounded(x.real * y.imaginary + x.imaginary * y.real)
        return Complex(self.wrapped(real), self.wrapped(imaginary))

    def turned(self, phase: npt.NDArray[np.float64]) -> Complex:
        """Points of the unit circle, backwards where the transform is inverse."""
        largest, phase = (1 << (self.bits - 1)) - 1, -phase if self.is_inverse else phase
        parts = (np.floor(0.5 + largest * f(phase)).astype(np.int64) for f in (np.cos, np.sin))
        return Complex(*parts)

    def twiddles(self, size: int) -> Complex:
        """Of a transform of that size."""
        return self.turned(-2 * np.pi * np.arange(size) / size)

    def real_twiddles(self, size: int) -> Complex:
        """That join a transform of `size` complex numbers to one of twice as many real numbers."""
        return self.turned(-np.pi * (np.arange(1, size // 2 + 1) / size + 0.5))

    def transform(self, x: Complex) -> Complex:
        return self._stages(Complex(*(part[sources(len(part))] for part in x)), self.twiddles(len(x.real)))

    def _stages(self, x: Complex, twiddles: Complex) -> Complex:
        """From the parts of x, each in order, to the whole."""
        size = len(x.real)
        if size == 1:
            return x
        radix, stride = radix_of(size), len(twiddles.real) // size
        parts = [self._stages(Complex(*(np.split(p, radix)[number] for p in x)), twiddles) for number in range(radix)]
        place = np.arange(size // radix)
        turned = [self.divided(parts[0], radix)]
        for number, part in enumerate(parts[1:], start=1):
            by = Complex(*(t[number * place * stride] for t in twiddles))
            turned.append(self.times(self.divided(part, radix), by))
        joined = self._two(turned) if radix == 2 else self._four(turned)
        return Complex(*(np.concatenate([self.wrapped(one[i]) for one in joined]) for i in range(2)))

    def _two(self, x: list[Complex]) -> list[Complex]:
        first, second = x
        return [_sum(first, second), _difference(first, second)]

    def _four(self, x: list[Complex]) -> list[Complex]:
        even, odd = (_sum(x[0], x[2]), _difference(x[0], x[2])), (_sum(x[1], x[3]), _difference(x[1], x[3]))
        even, odd = (self._both(even), self._both(odd))
        ahead = Complex(even[1].real + odd[1].imaginary, even[1].imaginary - odd[1].real)
        behind = Complex(even[1].real - odd[1].imaginary, even[1].imaginary + odd[1].real)
        second, fourth = (behind, ahead) if self.is_inverse else (ahead, behind)
        return [_sum(even[0], odd[0]), second, _difference(even[0], odd[0]), fourth]

    def _both(self, x: tuple[Complex, Complex]) -> tuple[Complex, Complex]:
        first, second = (Complex(*(self.wrapped(part) for part in one)) for one in x)
        return first, second


class RealNumbersFft(FixedFft):
    """In single precision."""

    def wrapped(self, x: Numbers) -> Numbers:
        return x

    def rounded(self, x: Numbers) -> Numbers:
        return x

    def divided(self, x: Complex, by: int) -> Complex:
        return x

    def halved(self, x: Numbers) -> Numbers:
        half: Numbers = x * np.float32(0.5)
        return half

    def turned(self, phase: npt.NDArray[np.float64]) -> Complex:
        phase = -phase if self.is_inverse else phase
        return Complex(*(f(phase).astype(np.float32) for f in (np.cos, np.sin)))


def way_of(dtype: DType, is_inverse: bool = False) -> FixedFft:
    """How numbers of a type are transformed."""
    return (RealNumbersFft if dtype is DType.FLOAT32 else FixedFft)(dtype.bits, is_inverse)


def _sum(x: Complex, y: Complex) -> Complex:
    return Complex(x.real + y.real, x.imaginary + y.imaginary)


def _difference(x: Complex, y: Complex) -> Complex:
    return Complex(x.real - y.real, x.imaginary - y.imaginary)


def forward(samples: Numbers, dtype: DType) -> Numbers:
    """Half of the spectrum of real numbers, and its middle: parts of complex numbers in turn."""
    way, size = way_of(dtype), len(samples) // 2
    x = way.transform(Complex(samples[0::2], samples[1::2]))
    k = np.arange(1, size // 2 + 1)
    start = way.divided(Complex(x.real[:1], x.imaginary[:1]), 2)
    near = way.divided(Complex(x.real[k], x.imaginary[k]), 2)
    far = way.divided(Complex(x.real[size - k], way.wrapped(-x.imaginary[size - k])), 2)
    total, rest = _sum(near, far), way.times(_difference(near, far), way.real_twiddles(size))
    found = np.zeros((size + 1, 2), samples.dtype)
    found[0, 0], found[size, 0] = (way.wrapped(start.real + s * start.imaginary)[0] for s in (1, -1))
    found[k] = way.halved(np.stack([total.real + rest.real, total.imaginary + rest.imaginary], axis=1))
    found[size - k] = way.halved(np.stack([total.real - rest.real, rest.imaginary - total.imaginary], axis=1))
    return found.reshape(-1)


def backward(spectrum: Numbers, dtype: DType) -> Numbers:
    """The real numbers whose half of the spectrum, and its middle, is given."""
    way, size = way_of(dtype, is_inverse=True), len(spectrum) // 2 - 1
    x = Complex(spectrum[0::2], spectrum[1::2])
    k = np.arange(1, size // 2 + 1)
    ends = [way.wrapped(x.real[:1] + sign * x.real[size:]) for sign in (1, -1)]
    near = way.divided(Complex(x.real[k], x.imaginary[k]), 2)
    far = way.divided(Complex(x.real[size - k], way.wrapped(-x.imaginary[size - k])), 2)
    total, rest = _sum(near, far), way.times(_difference(near, far), way.real_twiddles(size))
    parts = Complex(np.zeros(size, spectrum.dtype), np.zeros(size, spectrum.dtype))
    for part, end in zip(parts, way.divided(Complex(*ends), 2), strict=True):
        part[0] = end[0]
    parts.real[k], parts.imaginary[k] = (way.wrapped(part) for part in _sum(total, rest))
    parts.real[size - k] = way.wrapped(total.real - rest.real)
    parts.imaginary[size - k] = way.wrapped(-way.wrapped(total.imaginary - rest.imaginary))
    found = np.stack(way.transform(parts), axis=1).reshape(-1)
    return found / np.float32(2 * size) if dtype is DType.FLOAT32 else found
