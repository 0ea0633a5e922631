"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION: along the last axis, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import (
    SUFFIXES,
    CCall,
    CTable,
    Fields,
    Unsupported,
    is_row_local,
    kernel_call,
    require_types,
)
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, Way, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.numerics import fixed_point, single_precision
from diagmem.ops.numerics.fixed_point import Ints, Multiplier, rescale, rounding_shift, wrapped
from diagmem.ops.numerics.quantised import quantisation_of, rounds_to_even, scale_of, stored_zero, zero_point_of
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.signature import Signature


class RowwiseKind(OpKind):
    """For each row: passes that read all of it and write nothing, then element c is read and written, in order."""

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes:
        shape = input_at(inputs, 0).shape
        if not shape:
            raise ModelError(f"{name} needs an input with at least one axis; the file is damaged")
        return (shape,)

    def keeps_channels(self, node: Node) -> bool:
        return False

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)

    def accesses(self, node: Node, order: Order) -> Accesses:
        data = node.input(0)
        size = data.shape[-1]
        row = np.arange(data.elems // max(1, size), dtype=np.int64)
        first_step = row * (size + 1)
        passes = Runs.of(row * size, size, first_step, stride=0)
        swept = Runs.of(row * size, size, first_step + 1)
        return Accesses(len(row) * (size + 1), (Runs.join(passes, swept), *(None for _ in node.inputs[1:])), (swept,))

    def cut_accesses(self, node: Node) -> Accesses:
        """All elements of a row are made of all of it."""
        size = node.input(0).shape[-1]
        row = np.arange(node.output.elems // max(1, size), dtype=np.int64) * size
        return swept(node, {0: Runs.of(row, size, row, stride=0, hold=size)})

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Several cores share rows."""
        return (Cut(Along.PIXELS, node.output.elems // max(1, node.output.shape[-1]), can_hold=True),)

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        """A row's passes come before its own writes, so only the sweep counts: element-wise."""
        if position:
            return None
        gain = node.output.dtype.size_bytes - node.input(0).dtype.size_bytes
        return separation_of((AxisTerm.even(node.output.elems, gain),))


@dataclass(frozen=True, slots=True)
class Softmax:
    """Input: rows. `beta` scales the input before the exponential (LOG_SOFTMAX has none: 1)."""

    beta: float = 1.0


class SoftmaxKind(RowwiseKind):
    names = ("SOFTMAX", "LOG_SOFTMAX")
    tflm_agrees = True
    table = {"SOFTMAX": Table(Softmax, ("Beta",)), "LOG_SOFTMAX": Table(Softmax, name=None)}
    is_pointwise = True

    def signature(self, name: str) -> Signature:
        return Signature(made={DType.INT8: (DType.INT8, DType.INT16)} if name == "SOFTMAX" else {})

    def ways(self, name: str) -> dict[DType, Way]:
        return _WAYS[name]

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (_softmax_to_even(node, inputs[0]),) if _is_to_even(node) else super().reference(node, inputs)

    def c_call(self, node: Node) -> CCall:
        if not _is_widening(node):
            require_types(node.output.dtype, (node.input(0),))
        if not _is_to_even(node):
            return super().c_call(node)
        fields = {"table": CTable("exponentials", _table_to_even(node)), "steps": _steps(node)}
        return _call(node, "softmax_to_even_s8", {**fields, "zero_point": zero_point_of(node.output)})


def _is_to_even(node: Node) -> bool:
    is_known = node.op.kind == "SOFTMAX" and node.input(0).dtype is DType.INT8
    return is_known and rounds_to_even(node.output)


def _is_widening(node: Node) -> bool:
    """Whether it makes 16 bits of 8."""
    return node.op.kind == "SOFTMAX" and (node.input(0).dtype, node.output.dtype) == (DType.INT8, DType.INT16)


_OUTPUTS = {
    ("SOFTMAX", DType.INT8): (1 / 256, -128),
    ("SOFTMAX", DType.UINT8): (1 / 256, 0),
    ("LOG_SOFTMAX", DType.INT8): (1 / 16, 127),
}
"""Scale and zero point of outputs of 8 bits."""

_DIFFERENCE_BITS = 5
"""Before the binary point, of a scaled difference of two inputs."""

_SUM_BITS = 12
"""Before the binary point, of a sum of exponentials; so many elements a row may have, as a power of two."""


def _difference_scaling(node: Node) -> tuple[Multiplier, int]:
    """From a difference of stored inputs to a number with 26 fractional bits, and the least difference whose
    exponential is not taken as 0."""
    if _is_widening(node):
        # Whatever the file says of the scale, runtimes take it as 1/65536.
        scale, zero_point = quantisation_of(node.output).scales[0], -(2**15)
    else:
        scale, zero_point = _OUTPUTS[node.op.kind, node.output.dtype]
    output = quantisation_of(node.output)
    if output.scales[0] != scale or output.zero_points[0] != zero_point:
        raise Unsupported(
            f"an output scale other than 1/{round(1 / scale)} with zero point {zero_point}; "
            "TensorFlow Lite refuses it too"
        )
    if node.output.shape[-1] >= 2**_SUM_BITS:
        raise Unsupported(f"rows of more than {2**_SUM_BITS - 1} elements")
    real = min(node.attributes.beta * scale_of(node.input(0)) * 2 ** (31 - _DIFFERENCE_BITS), 2.0**31 - 1)
    multiplier = Multiplier.of(real)
    if real <= 1:
        raise Unsupported("an input scale too small for its arithmetic; TensorFlow Lite refuses it too")
    radius = (2**_DIFFERENCE_BITS - 1) * 2 ** (31 - _DIFFERENCE_BITS) // 2**multiplier.shift
    return multiplier, -radius


def _softmax_8_bit(node: Node, data: Array) -> Array:
    (mantissa, shift), least = _difference_scaling(node)
    difference = data.astype(np.int64) - data.max(axis=-1, keepdims=True)
    is_counted = difference >= least
    exponentials = fixed_point.exp_of_negative(
        fixed_point.high_mul(np.where(is_counted, difference, 0) << shift, mantissa)
    )
    total = np.where(is_counted, rounding_shift(exponentials, _SUM_BITS), 0).sum(axis=-1, keepdims=True)
    scale, bits_over_unit = fixed_point.reciprocal(total, _SUM_BITS)
    info = np.iinfo(node.output.dtype.numpy)
    scaled = rounding_shift(fixed_point.high_mul(scale, exponentials), bits_over_unit + 31 - info.bits)
    shares: Array = np.clip(np.where(is_counted, scaled, 0) + info.min, info.min, info.max).astype(info.dtype)
    return shares


def _call_8_bit(node: Node) -> CCall:
    name = "softmax_s8_s16" if _is_widening(node) else f"softmax_{SUFFIXES[node.output.dtype]}"
    return _call(node, name, _difference_fields(node))


def _difference_fields(node: Node) -> Fields:
    (mantissa, shift), least = _difference_scaling(node)
    return {"mantissa": mantissa, "shift": shift, "least_difference": least}


def _softmax_f32(node: Node, data: Array) -> Array:
    exponentials = single_precision.exp((data - data.max(axis=-1, keepdims=True)) * np.float32(node.attributes.beta))
    return exponentials / single_precision.sum_in_order(exponentials)


def _call_f32(node: Node) -> CCall:
    return _call(node, "softmax_f32", {"beta": node.attributes.beta})


def _call(node: Node, name: str, fields: Fields) -> CCall:
    size = node.output.shape[-1]
    rows = {"rows": node.output.elems // size, "size": size}
    return kernel_call(name, {**rows, **fields}, (node.input(0), node.output))


def _log_softmax_f32(node: Node, data: Array) -> Array:
    largest = data.max(axis=-1, keepdims=True)
    total = single_precision.sum_in_order(single_precision.exp(data - largest))
    logarithms: Array = data - largest - single_precision.log(total)
    return logarithms


def _exponent_sums(difference: Ints, scaled: Ints, least: int) -> Ints:
    """With `_SUM_BITS` before the binary point."""
    exponentials = rounding_shift(fixed_point.exp_of_negative(scaled), _SUM_BITS)
    sums: Ints = np.where(difference >= least, exponentials, 0).sum(axis=-1, keepdims=True)
    return sums


def _inverse_scaling(multiplier: Multiplier) -> Multiplier:
    """From a number with 26 fractional bits back to a difference of stored inputs."""
    return Multiplier.of(2.0 ** (31 - multiplier.shift) / multiplier.mantissa)


def _log_softmax_s8(node: Node, data: Array) -> Array:
    multiplier, least = _difference_scaling(node)
    difference = data.astype(np.int64) - data.max(axis=-1, keepdims=True)
    scaled = rescale(difference, *multiplier)
    logarithm = fixed_point.log_of_sum(
        _exponent_sums(difference, np.where(difference >= least, scaled, 0), least), _SUM_BITS
    )
    shortest = np.maximum(least - 1, rescale(wrapped(logarithm - 2**31), *_inverse_scaling(multiplier)))
    result = rounding_shift(wrapped(scaled - logarithm), 31 - _DIFFERENCE_BITS - 4) + 127
    return np.clip(np.where(difference > shortest, result, -128), -128, 127).astype(np.int8)


def _call_log_s8(node: Node) -> CCall:
    back = _inverse_scaling(_difference_scaling(node)[0])
    fields = {**_difference_fields(node), "back_mantissa": back.mantissa, "back_shift": back.shift}
    return _call(node, "log_softmax_s8", fields)


_RANGE = 2**16 - 1
_LEAST, _MOST = -(2**15), 2**15 - 1
_STEPS = 512


def _scaling(node: Node) -> Multiplier:
    """From a difference of stored inputs to a place in the table of exponentials, which spans 10."""
    output = quantisation_of(node.output)
    if not math.isclose(output.scales[0], 1 / 32768, rel_tol=1e-3) or output.zero_points[0]:
        raise Unsupported("an output scale other than 1/32768 with zero point 0; TensorFlow Lite refuses it too")
    if zero_point_of(node.input(0)):
        raise Unsupported("16-bit inputs with a zero point other than 0; TensorFlow Lite refuses it too")
    return Multiplier.of(scale_of(node.input(0)) * node.attributes.beta / (10 / _RANGE))


def _softmax_s16(node: Node, data: Array) -> Array:
    mantissa, shift = _scaling(node)
    place = wrapped(rescale(data.astype(np.int64) - data.max(axis=-1, keepdims=True), mantissa, shift) + _MOST)
    exponentials = _on_lines(_exponentials(), np.clip(place, _LEAST, _MOST))
    total = exponentials.sum(axis=-1, keepdims=True)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    fraction = (((total << (31 - bits)) + (1 << 13)) >> 14) - ((1 << 15) + (1 << 16))
    scale = _on_lines(_reciprocals(), np.clip(fraction, _LEAST, _MOST))
    rounded = (exponentials * scale + (np.int64(1) << (bits - 2))) >> (bits - 1)
    stored: Array = np.clip(rounded, 0, _MOST).astype(np.int16)
    return stored


def _call_s16(node: Node) -> CCall:
    mantissa, shift = _scaling(node)
    fields = {
        "mantissa": mantissa,
        "shift": shift,
        "exponentials": CTable("exponentials", _exponentials().astype(DType.INT16.numpy)),
        "reciprocals": CTable("reciprocals", _reciprocals().astype(DType.INT16.numpy)),
    }
    return _call(node, "softmax_s16", fields)


def _on_lines(table: Ints, place: Ints) -> Ints:
    """The value at a place of 16 bits, on straight lines between the entries."""
    index = 256 + (place >> 7)
    value: Ints = table[index] + (((table[index + 1] - table[index]) * (place & 0x7F) + 64) >> 7)
    return value


@cache
def _exponentials() -> Ints:
    return _table_s16(np.exp, np.float32(10) / np.float32(_RANGE), _MOST)


@cache
def _reciprocals() -> Ints:
    return _table_s16(lambda x: np.float32(1) / (np.float32(1) + x), np.float32(1) / np.float32(_RANGE), _LEAST)


def _table_s16(function: Callable[[Any], Any], scale: Any, zero_point: int) -> Ints:
    """A function at 513 places of the 16-bit range, 15 fractional bits, in single precision as TFLite computes it. Each
    entry is moved by half of what the line to the next one misses at its middle."""
    out_scale, two = np.float32(2) / np.float32(_RANGE), np.float32(2)
    least, most = scale * np.float32(_LEAST - zero_point), scale * np.float32(_MOST - zero_point)
    step = (most - least) / np.float32(_STEPS)
    units = np.float32(2**16) / (out_scale * np.float32(_MOST) - out_scale * np.float32(_LEAST))
    i = np.arange(_STEPS, dtype=np.float32)
    here, middle = function(least + i * step), function(least + i * step + step / two)
    after = function(least + (i + np.float32(1)) * step)
    sample = _rounded(here * units)
    missed = _rounded((after * units + sample) / two) - _rounded(middle * units)
    entries = np.append(sample - _rounded(missed / two), _rounded(function(most) * units))
    table: Ints = np.clip(entries, _LEAST, _MOST).astype(np.int64)
    return table


def _rounded(x: Any) -> npt.NDArray[np.float32]:
    """The nearest integers, halves away from zero."""
    nearest: npt.NDArray[np.float32] = np.sign(x) * np.floor(np.abs(x) + np.float32(0.5))
    return nearest


SPARE = 5.0
"""Of the logarithm of the largest single, so that sums stay below it."""


def _table_to_even(node: Node) -> Array:
    """exp of each difference to the largest element of a row, -255 to 0, scaled so that it uses singles well."""
    scale, size = float(np.float32(scale_of(node.input(0)))), node.output.shape[-1]
    if size < 2 or _steps(node) > 256:
        raise Unsupported("rows of one element, or an output scale below 1/256, of which the arithmetic overflows")
    room = max(0.0, math.log(float(np.finfo(np.float32).max) / size) - SPARE) / scale
    exponents = (np.arange(256, dtype=np.float64) - 255 + room) * scale
    if exponents[-1] > 88:
        raise Unsupported("an input scale too large for its arithmetic")
    return np.exp(exponents).astype(np.float32)


def _steps(node: Node) -> float:
    """How many units of the output there are in 1."""
    return float(np.floor(np.float32(1) / np.float32(scale_of(node.output))))


def _softmax_to_even(node: Node, data: Array) -> Array:
    exponentials = _table_to_even(node)[data.astype(np.int64) - data.max(axis=-1, keepdims=True) + 255]
    units = exponentials * np.float32(_steps(node)) / single_precision.sum_in_order(exponentials)
    stored: Array = np.clip(np.rint(units).astype(np.int64) + zero_point_of(node.output), -128, 127).astype(np.int8)
    return stored


_8_BIT = Way(_softmax_8_bit, _call_8_bit)

_WAYS = {
    "SOFTMAX": {
        DType.INT8: _8_BIT,
        DType.UINT8: _8_BIT,
        DType.INT16: Way(_softmax_s16, _call_s16),
        DType.FLOAT32: Way(_softmax_f32, _call_f32),
    },
    "LOG_SOFTMAX": {
        DType.INT8: Way(_log_softmax_s8, _call_log_s8),
        DType.FLOAT32: Way(_log_softmax_f32, partial(_call, name="log_softmax_f32", fields={})),
    },
}


_OUTPUT_BITS = 7
"""Quantised outputs are in units of 1/128."""

_MIDDLE = {DType.INT8: 0, DType.UINT8: 128}
"""Type -> the stored number that stands for 0 in an output."""


@dataclass(frozen=True, slots=True)
class L2Normalization:
    """Input: rows."""

    activation: Activation = Activation.NONE


class L2NormalizationKind(RowwiseKind):
    names = ("L2_NORMALIZATION",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature()
    table = Table(L2Normalization, ("FusedActivationFunction",), "L2NormOptions")

    def ways(self, name: str) -> dict[DType, Way]:
        return _L2_WAYS

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        if node.attributes.activation is not Activation.NONE:
            raise Unsupported(f"a fused {node.attributes.activation.name}; TensorFlow Lite refuses it too")
        return super().c_call(node)


def _normalised_int(node: Node, data: Array) -> Array:
    value = data.astype(np.int64) - zero_point_of(node.input(0))
    squares = (value**2).sum(axis=-1, keepdims=True)
    roots = np.array([fixed_point.inverse_sqrt(int(square)) for square in squares.reshape(-1)]).reshape(
        *squares.shape, 2
    )
    # Unsigned numbers get their bits before they are multiplied, signed ones afterwards; roundings differ.
    before = _OUTPUT_BITS if node.output.dtype is DType.UINT8 else 0
    scaled = rescale(value << before, roots[..., 0], roots[..., 1] + _OUTPUT_BITS - before)
    info = np.iinfo(node.output.dtype.numpy)
    return np.clip(scaled + _MIDDLE[node.output.dtype], info.min, info.max).astype(info.dtype)


def _normalised_f32(node: Node, data: Array) -> Array:
    normalised: Array = data / np.maximum(np.sqrt(single_precision.sum_in_order(data * data)), np.float32(1e-6))
    return normalised


def _l2_call_int(node: Node) -> CCall:
    output, middle = quantisation_of(node.output), _MIDDLE[node.output.dtype]
    if output.scales[0] != 2**-_OUTPUT_BITS or output.zero_points[0] != middle:
        raise Unsupported(f"an output scale other than 1/128 with zero point {middle}; TensorFlow Lite refuses it too")
    return _l2_call(node)


def _l2_call(node: Node) -> CCall:
    size = node.output.shape[-1]
    zero_point = stored_zero(node.input(0)) if node.output.dtype in _MIDDLE else 0
    fields = {"rows": node.output.elems // size, "size": size, "zero_point": zero_point}
    function = f"l2_normalization_{SUFFIXES[node.output.dtype]}"
    return kernel_call("l2_normalization", fields, (node.input(0), node.output), function=function)


_INTEGER = Way(_normalised_int, _l2_call_int)
_L2_WAYS = {DType.INT8: _INTEGER, DType.UINT8: _INTEGER, DType.FLOAT32: Way(_normalised_f32, _l2_call)}


KINDS = (SoftmaxKind(), L2NormalizationKind())
