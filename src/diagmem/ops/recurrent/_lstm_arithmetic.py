"""One step of an LSTM in numpy: on single precision, and on integers bit for bit as TFLite Micro does it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import CStruct, CTable, Unsupported, values_of
from diagmem.ops.kind import Array
from diagmem.ops.numerics import single_precision
from diagmem.ops.numerics.channels_s16 import LARGEST_WIDE_BIAS
from diagmem.ops.numerics.fixed_functions import sigmoid_table
from diagmem.ops.numerics.fixed_point import Ints, Multiplier, rescale, wrapped
from diagmem.ops.numerics.quantised import scale_of, zero_point_of

GATES = {"forget": 2, "input": 1, "cell": 3, "output": 4}
"""A gate -> the position of its input weights; its recurrent ones lie 4 behind, its bias 11."""

HIDDEN, CELL = 18, 19
"""Positions of the states."""

_GATE_SCALE = 2.0**-12
"""Of what goes into the functions of a gate."""


def weights_of(node: Node, gate: str) -> tuple[Tensor, Tensor, Tensor]:
    """Input weights, recurrent weights, bias."""
    position = GATES[gate]
    return node.input(position), node.input(position + 4), node.input(position + 11)


def _values(node: Node, gate: str) -> tuple[Array, Array, Array]:
    """Those of `weights_of`, the weights with a row for each unit: a file may give them axes of 1 more or less."""
    weights, recurrent, bias = (values_of(tensor) for tensor in weights_of(node, gate))
    return weights.reshape(bias.size, -1), recurrent.reshape(bias.size, -1), bias.reshape(-1)


def step_f32(node: Node, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
    """Outputs and cells of one batch at one time. Sums are taken in order from 0, the bias is added last."""

    def before(gate: str) -> Array:
        weights, recurrent, bias = _values(node, gate)
        total: Array = (_dot(weights, x) + bias) + _dot(recurrent, hidden)
        return total

    forget, given = single_precision.logistic(before("forget")), single_precision.logistic(before("input"))
    kept = cell * forget
    cell = kept + given * single_precision.tanh(before("cell"))
    clip = np.float32(node.attributes.cell_clip)
    cell = single_precision.clamped(cell, -clip, clip) if clip > 0 else cell
    return single_precision.tanh(cell) * single_precision.logistic(before("output")), cell


def _dot(weights: Array, x: Array) -> Array:
    total = np.zeros(len(weights), np.float32)
    for k in range(weights.shape[1]):
        total = total + weights[:, k] * x[k]
    return total


class Scaling(NamedTuple):
    """Multipliers and limits of the integer arithmetic. `clip` is 0 where cells are not clipped."""

    gates: Mapping[str, tuple[Multiplier, Multiplier]]
    kept: Multiplier
    given: Multiplier
    output: Multiplier
    tanh_shift: int
    clip: int


def scaling(node: Node) -> Scaling:
    data, hidden, cell = node.input(0), node.input(HIDDEN), node.input(CELL)
    power = round(math.log2(scale_of(cell)))
    if cell.dtype is not DType.INT16 or zero_point_of(cell) or scale_of(cell) != 2.0**power:
        raise Unsupported("a cell state other than of 16 bits with a scale that is a power of two")
    if not -31 <= 12 + power <= 14:
        raise Unsupported(f"a cell state with a scale of 2^{power}; supported: 2^-43 to 2^2")
    gates = {}
    for gate in GATES:
        weights, recurrent, _ = weights_of(node, gate)
        pairs = (data, weights), (hidden, recurrent)
        gates[gate] = tuple(
            Multiplier.of(float(np.float32(scale_of(a)) * np.float32(scale_of(b))) / _GATE_SCALE) for a, b in pairs
        )
    clip = node.attributes.cell_clip / scale_of(cell)
    return Scaling(
        gates,  # type: ignore[arg-type]
        Multiplier.of(2.0**-15),
        Multiplier.of(2.0**-30 / scale_of(cell)),
        Multiplier.of(2.0**-30 / scale_of(hidden)),
        12 + power,
        int(min(clip, 32767.0)) if clip > 0 else 0,
    )


def step_int(node: Node, way: Scaling, x: Array, hidden: Array, cell: Array) -> tuple[Array, Array]:
    """Outputs and cells of one batch at one time. Each product of matrix and vector is rounded to 16 bits by itself."""
    scaled = rescale if node.input(0).dtype is DType.INT8 else rescale_64

    def before(gate: str) -> Ints:
        weights, recurrent, bias = (values.astype(np.int64) for values in _values(node, gate))
        from_input, from_hidden = way.gates[gate]
        first = weights @ (x.astype(np.int64) - zero_point_of(node.input(0))) + bias
        second = recurrent @ (hidden.astype(np.int64) - zero_point_of(node.input(HIDDEN)))
        return _held(_held(scaled(first, *from_input)) + _held(scaled(second, *from_hidden)))

    kept = _held(rescale(sigmoid(before("forget")) * cell.astype(np.int64), *way.kept))
    given = _held(rescale(sigmoid(before("input")) * tanh(before("cell"), 0), *way.given))
    new = _held(kept + given)
    new = np.clip(new, -way.clip, way.clip) if way.clip else new
    wide = np.iinfo(hidden.dtype)
    out = rescale(tanh(new, way.tanh_shift) * sigmoid(before("output")), *way.output)
    held = np.clip(wrapped(out + zero_point_of(node.input(HIDDEN))), wide.min, wide.max)
    return held.astype(hidden.dtype), new.astype(np.int16)


def rescale_64(x: Any, mantissa: int, shift: int) -> Ints:
    """A sum of 64 bits times a multiplier that is cut to 16 bits."""
    short = (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF
    rounded: Ints = (np.asarray(x, np.int64) * short + (1 << (14 - shift))) >> (15 - shift)
    return rounded


def _held(x: Ints) -> Ints:
    held: Ints = np.clip(x, -32768, 32767)
    return held


def _line(size: Ints, bits: int, beyond: int) -> Ints:
    """Straight lines between the entries of the table."""
    table = sigmoid_table()
    index = np.minimum(size >> bits, 254)
    line = (table[index] << bits) + (size & ((1 << bits) - 1)) * (table[index + 1] - table[index])
    return np.where(size >> bits >= 255, beyond, line)


def sigmoid(x: Ints) -> Ints:
    """From 12 bits behind the point to 15."""
    place = x * 3
    value = _line(np.abs(place), 9, 0x7FFF << 10)
    return np.where(place >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1) >> 10


def tanh(x: Ints, shift: int) -> Ints:
    """From 12 - shift bits behind the point to 15."""
    place = x * (3 << shift) if shift >= 0 else (x * 3 + (1 << (-shift - 1))) >> -shift
    value = _line(np.abs(place), 8, 0xFFFF << 8) - (1 << 23)
    return np.where(place >= 0, value + (1 << 7), -value + (1 << 7) - 1) >> 8


def c_gate(node: Node, gate: str, multipliers: tuple[Multiplier, Multiplier] | None) -> CStruct:
    """The constants of a gate, of the struct for the type of the data."""
    tables = {
        name: CTable(f"{gate}_{name}", values_of(tensor))
        for name, tensor in zip(("weights", "recurrent", "bias"), weights_of(node, gate), strict=True)
    }
    if multipliers is None:
        return CStruct("diagmem_lstm_gate_f32", tables)
    (mantissa, shift), (hidden_mantissa, hidden_shift) = multipliers
    bias = weights_of(node, gate)[2]
    if node.input(0).dtype is DType.INT16 and max(shift, hidden_shift) > 14:
        raise Unsupported("weights of a scale so large that sums overflow")
    if node.input(0).dtype is DType.INT16 and np.abs(values_of(bias).astype(np.float64)).max() > LARGEST_WIDE_BIAS:
        raise Unsupported(f"'{bias.label}' holds biases that 64 bits cannot scale")
    numbers = {"mantissa": mantissa, "shift": shift, "hidden_mantissa": hidden_mantissa, "hidden_shift": hidden_shift}
    suffix = "s8" if node.input(0).dtype is DType.INT8 else "s16"
    return CStruct(f"diagmem_lstm_gate_{suffix}", {**tables, **numbers})
