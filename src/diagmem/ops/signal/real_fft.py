"""SignalRfft, SignalIrfft: the spectrum of a real signal, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Node
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import SUFFIXES, CCall, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature

FORWARD = "CUSTOM:SignalRfft"
_TYPES = (DType.INT16, DType.INT32, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class RealFft:
    """Input: rows of samples, which are taken to go on with zeros; or rows of spectra, real and imaginary part in turn,
    from frequency 0 to the middle one. `size`: of the transform, in samples."""

    size: int = 0


class RealFftKind(OpKind):
    names = (FORWARD, "CUSTOM:SignalIrfft")
    orders = (Order.REFERENCE, Order.BUFFERED)
    takes = Signature()
    table = CustomTable(RealFft, ("fft_length",), has_type=True)

    def output_shapes(self, name: str, attributes: RealFft, inputs: Inputs) -> Shapes:
        shape, size = input_at(inputs, 0).shape, attributes.size
        fits = bool(shape) and (shape[-1] <= size if name == FORWARD else shape[-1] == size + 2)
        if size < 2 or size % 2 or not fits:
            raise ModelError(f"an input of shape {list(shape)} does not suit {size} samples; the file is damaged")
        return ((*shape[:-1], size + 2 if name == FORWARD else size),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Row by row: a complex number of the output after the other gets what stages begin with, read from all over
        the input; then all of the row is written over and over."""
        rows, size = _rows(node), node.output.shape[-1]
        if order is Order.BUFFERED:
            in_size, row = node.input(0).shape[-1], np.arange(rows)
            whole_rows = Runs.of(row * in_size, in_size, row, stride=0)
            return Accesses(rows, (whole_rows,), (Runs.of(row * size, size, row, stride=0),))
        steps, reads, begun = self._beginning(node)
        first = np.arange(rows)[:, None] * (steps + 1)
        number = np.arange(steps)
        in_row = np.arange(rows)[:, None, None] * node.input(0).shape[-1]
        out_row = np.arange(rows)[:, None, None] * size
        step = (first + number)[:, :, None]
        length = np.maximum(0, np.minimum(2, node.input(0).shape[-1] - 2 * reads))
        read = Runs.of(in_row + 2 * reads, length, step, stride=0)
        begin = Runs.of(out_row + 2 * begun, 2, step, stride=0)
        whole = Runs.of(out_row.reshape(-1), size, first.reshape(-1) + steps, stride=0)
        return Accesses(rows * (steps + 1), (read,), (Runs.join(begin, whole),))

    def _beginning(self, node: Node) -> tuple[int, IntArray, IntArray]:
        """How many steps there are, which complex numbers of the input each reads, and which it writes."""
        half = node.attributes.size // 2
        if half & (half - 1):
            # Nothing is known of transforms that are not powers of two.
            return 1, np.arange(half + 1)[None, :], np.arange(half)[None, :]
        if node.op.kind == FORWARD:
            return half, sources(half)[:, None], np.arange(half)[:, None]
        k, place = np.arange(half // 2 + 1), np.argsort(sources(half))
        return len(k), np.stack([k, half - k], axis=1), np.stack([place[k], place[(half - k) % half]], axis=1)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        size, dtype = _size(node), node.output.dtype
        wide = np.float32 if dtype is DType.FLOAT32 else np.int64
        rows = inputs[0].astype(wide).reshape(_rows(node), -1)
        padded = np.pad(rows, ((0, 0), (0, max(0, size - rows.shape[1]))))
        way = forward if node.op.kind == FORWARD else backward
        found = np.stack([way(row, dtype) for row in padded])
        return (found.reshape(node.output.shape).astype(dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.input(0).dtype, (node.output,))
        size, dtype, is_inverse = _size(node), node.input(0).dtype, node.op.kind != FORWARD
        way = way_of(dtype, is_inverse)
        fields = {
            "rows": _rows(node),
            "in_size": node.input(0).shape[-1],
            "size": size // 2,
            "twiddles": CTable("twiddles", _pairs(way.twiddles(size // 2), dtype)),
            "real_twiddles": CTable("real_twiddles", _pairs(way.real_twiddles(size // 2), dtype)),
        }
        name, tensors = f"real_fft_{SUFFIXES[dtype]}", (node.input(0), node.output)
        return kernel_call("real_fft", fields, tensors, function=f"{'inverse_' * is_inverse}{name}", struct=name)


def _rows(node: Node) -> int:
    return math.prod(node.input(0).shape[:-1])


def _size(node: Node) -> int:
    """Of the transform, in samples."""
    size = node.attributes.size
    if size < 4 or size & (size - 1):
        raise Unsupported(f"a transform of {size} samples; supported: powers of two from 4 on")
    if node.input(0).dtype not in _TYPES:
        names = ", ".join(dtype.value for dtype in _TYPES)
        raise Unsupported(f"{node.input(0).dtype.value} elements; supported: {names}")
    return int(size)


def _pairs(numbers: Complex, dtype: DType) -> Array:
    return np.stack(numbers, axis=1).reshape(-1).astype(dtype.numpy)


Numbers = npt.NDArray[Any]
"""Integers, wide enough for products; or float32."""


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
        """That join a transform of `size` complex numbers to one of twice as many real samples."""
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
        joined = [_sum(*turned), _difference(*turned)] if radix == 2 else self._four(turned)
        return Complex(*(np.concatenate([self.wrapped(one[i]) for one in joined]) for i in range(2)))

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


class Float32Fft(FixedFft):
    """The same in float32."""

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
    return (Float32Fft if dtype is DType.FLOAT32 else FixedFft)(dtype.bits, is_inverse)


def _sum(x: Complex, y: Complex) -> Complex:
    return Complex(x.real + y.real, x.imaginary + y.imaginary)


def _difference(x: Complex, y: Complex) -> Complex:
    return Complex(x.real - y.real, x.imaginary - y.imaginary)


def forward(samples: Numbers, dtype: DType) -> Numbers:
    """The first half of the spectrum of a real signal, and its middle: real and imaginary parts in turn."""
    way, size = way_of(dtype), len(samples) // 2
    x = way.transform(Complex(samples[0::2], samples[1::2]))
    start = way.divided(Complex(x.real[:1], x.imaginary[:1]), 2)
    k, total, rest = _folded(way, x, size)
    found = np.zeros((size + 1, 2), samples.dtype)
    found[0, 0], found[size, 0] = (way.wrapped(start.real + s * start.imaginary)[0] for s in (1, -1))
    found[k] = way.halved(np.stack([total.real + rest.real, total.imaginary + rest.imaginary], axis=1))
    found[size - k] = way.halved(np.stack([total.real - rest.real, rest.imaginary - total.imaginary], axis=1))
    return found.reshape(-1)


def _folded(way: FixedFft, x: Complex, size: int) -> tuple[IntArray, Complex, Complex]:
    """The frequencies up to the middle; and of each and its mirror image half the sum, and half the difference
    turned."""
    k = np.arange(1, size // 2 + 1)
    near = way.divided(Complex(x.real[k], x.imaginary[k]), 2)
    far = way.divided(Complex(x.real[size - k], way.wrapped(-x.imaginary[size - k])), 2)
    return k, _sum(near, far), way.times(_difference(near, far), way.real_twiddles(size))


def backward(spectrum: Numbers, dtype: DType) -> Numbers:
    """The real signal whose spectrum has this first half and middle."""
    way, size = way_of(dtype, is_inverse=True), len(spectrum) // 2 - 1
    x = Complex(spectrum[0::2], spectrum[1::2])
    ends = [way.wrapped(x.real[:1] + sign * x.real[size:]) for sign in (1, -1)]
    k, total, rest = _folded(way, x, size)
    parts = Complex(np.zeros(size, spectrum.dtype), np.zeros(size, spectrum.dtype))
    for part, end in zip(parts, way.divided(Complex(*ends), 2), strict=True):
        part[0] = end[0]
    parts.real[k], parts.imaginary[k] = (way.wrapped(part) for part in _sum(total, rest))
    parts.real[size - k] = way.wrapped(total.real - rest.real)
    parts.imaginary[size - k] = way.wrapped(-way.wrapped(total.imaginary - rest.imaginary))
    found = np.stack(way.transform(parts), axis=1).reshape(-1)
    return found / np.float32(2 * size) if dtype is DType.FLOAT32 else found


KIND = RealFftKind()
