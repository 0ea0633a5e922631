"""SOFTMAX on 16-bit integers, bit for bit as TFLite's reference kernel: with tables for exp(x) and 1 / (1 + x)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CTable, Fields, Unsupported
from diagmem.ops.kind import Array
from diagmem.ops.numerics.fixed_point import Ints, Multiplier, rescale, wrapped
from diagmem.ops.numerics.quantised import quantisation_of, scale_of, zero_point_of

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


def softmax_s16(node: Node, data: Array) -> Array:
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


def softmax_s16_fields(node: Node) -> Fields:
    mantissa, shift = _scaling(node)
    return {
        "mantissa": mantissa,
        "shift": shift,
        "exponentials": CTable("exponentials", _exponentials().astype(DType.INT16.numpy)),
        "reciprocals": CTable("reciprocals", _reciprocals().astype(DType.INT16.numpy)),
    }


def _on_lines(table: Ints, place: Ints) -> Ints:
    """The value at a place of 16 bits, on straight lines between the entries."""
    index = 256 + (place >> 7)
    value: Ints = table[index] + (((table[index + 1] - table[index]) * (place & 0x7F) + 64) >> 7)
    return value


@cache
def _exponentials() -> Ints:
    return _table(np.exp, np.float32(10) / np.float32(_RANGE), _MOST)


@cache
def _reciprocals() -> Ints:
    return _table(lambda x: np.float32(1) / (np.float32(1) + x), np.float32(1) / np.float32(_RANGE), _LEAST)


def _table(function: Callable[[Any], Any], scale: Any, zero_point: int) -> Ints:
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
