"""SignalRfft, SignalIrfft: the spectrum of real numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import SUFFIXES, CCall, CStruct, CTable, Unsupported, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.options import TYPE_CODES, CustomOptions, whole_number
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signal._fixed_fft import Complex, backward, forward, sources, way_of
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

    def decode(self, name: str, options: Any) -> RealFft:
        return RealFft() if options is None else RealFft(whole_number(options, "fft_length"))

    def encode(self, node: Node) -> CustomOptions:
        return CustomOptions({"T": TYPE_CODES[node.input(0).dtype], "fft_length": node.attributes.size})

    def signature(self, name: str) -> Signature:
        return Signature()

    def output_shapes(self, name: str, attributes: RealFft, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
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
        suffix = SUFFIXES[dtype]
        function = f"diagmem_{'inverse_' if is_inverse else ''}real_fft_{suffix}"
        parameters = CStruct(f"diagmem_real_fft_{suffix}_params", fields)
        return CCall("real_fft.c", function, parameters, (node.input(0), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Powers of two; samples may be fewer."""
        size, dtype = 4 << draw.integer(0, 5), draw.choice(_TYPES)
        last = draw.choice((size, draw.integer(1, size + 1))) if name == FORWARD else size + 2
        data = activation((*draw.many(0, 2, draw.small), last), dtype)
        return node_of(self, name, RealFft(size), [data], (dtype,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(is_drawn_whole=True)

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        if tensor.dtype is DType.FLOAT32:
            return None
        largest = 1 << (tensor.dtype.bits - 1)
        found: Array = rng.integers(-largest, largest, tensor.shape)
        return found


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


KIND = RealFftKind()
