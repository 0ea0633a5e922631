"""UNIDIRECTIONAL_SEQUENCE_LSTM: a long short-term memory over the times of its input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.accesses import Accesses, Runs, node_reads
from diagmem.ops.c_call import CCall, CStruct, CTable, Unsupported, by_type, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at
from diagmem.ops.numerics import single_precision
from diagmem.ops.numerics.fixed_point import Ints, Multiplier, rescale, sigmoid_16, sigmoid_table, tanh_16, wrapped
from diagmem.ops.numerics.quantised import require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.numerics.weighted_sums import LARGEST_WIDE_BIAS
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature, require_elems

_INPUTS = 24
_ABSENT = (9, 10, 11, 16, 17, 20, 21, 22, 23)
"""Peepholes, projection, layer normalisation: no runtime for micro-controllers has them."""


@dataclass(frozen=True, slots=True)
class Lstm:
    """Inputs: data; input weights of the gates (1 to 4), recurrent ones (5 to 8), biases (12 to 15); hidden state (18),
    cell state (19). The activation is that of the cell gate. Data are (batch, time, features), or (time, batch,
    features)."""

    activation: Activation = Activation.NONE
    cell_clip: float = 0.0
    time_major: bool = False


class _Sizes(NamedTuple):
    """As the kernels take them."""

    batches: int
    times: int
    features: int
    units: int
    time_major: int


class LstmKind(OpKind):
    names = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)
    tflm_agrees = True
    takes = Signature((9, _INPUTS))
    table = Table(Lstm, ("FusedActivationFunction", "CellClip", "TimeMajor"), "UnidirectionalSequenceLSTMOptions")

    def states(self, node: Node) -> tuple[int, ...]:
        return HIDDEN, CELL

    def output_shapes(self, name: str, attributes: Lstm, inputs: Inputs) -> Shapes:
        return ((*input_at(inputs, 0).shape[:2], _sizes(attributes, inputs).units),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """For each unit of a row of the output, the row of the input is read whole. The states stay."""
        sizes = _sizes(node.attributes, node.inputs)
        row, steps = np.arange(sizes.batches * sizes.times), node.output.elems + 1
        rows = Runs.of(row * sizes.features, sizes.features, row * sizes.units, stride=0, hold=sizes.units)
        return Accesses(steps, node_reads(node, steps, {0: rows}), (Runs.sweep(node.output.elems),))

    def macs(self, node: Node) -> int:
        sizes = _sizes(node.attributes, node.inputs)
        return sizes.batches * sizes.times * 4 * sizes.units * (sizes.features + sizes.units)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        sizes, is_real = _sizes(node.attributes, node.inputs), node.input(0).dtype is DType.FLOAT32
        data = np.moveaxis(inputs[0], 0, 1) if sizes.time_major else inputs[0]
        hidden = inputs[HIDDEN].copy().reshape(sizes.batches, sizes.units)
        cell = inputs[CELL].copy().reshape(sizes.batches, sizes.units)
        out = np.zeros((sizes.batches, sizes.times, sizes.units), node.output.dtype.numpy)
        way = None if is_real else scaling(node)
        for n, time in itertools.product(range(sizes.batches), range(sizes.times)):
            given = data[n, time], hidden[n], cell[n]
            hidden[n], cell[n] = step_f32(node, *given) if way is None else step_int(node, way, *given)
            out[n, time] = hidden[n]
        found = np.moveaxis(out, 0, 1) if sizes.time_major else out
        return found, hidden.reshape(node.input(HIDDEN).shape), cell.reshape(node.input(CELL).shape)

    def c_call(self, node: Node) -> CCall:
        if _has_odd_parts(node.inputs):
            raise Unsupported("peepholes, a projection or layer normalisation")
        if node.attributes.activation is not Activation.TANH:
            raise Unsupported(f"a cell gate with {node.attributes.activation.name}; supported: TANH")
        require_types(node.input(0).dtype, (node.input(HIDDEN), node.output))
        require_same_quantisation((node.input(HIDDEN), node.output))
        return by_type(node, {DType.INT8: _call_int, DType.INT16: _call_int, DType.FLOAT32: _call_f32})


def _sizes(attributes: Lstm, inputs: Inputs) -> _Sizes:
    data, weights = input_at(inputs, 0).shape, input_at(inputs, GATES["forget"]).shape
    if len(data) != 3 or len(weights) != 2 or len(inputs) <= CELL or weights[1] != data[2]:
        raise ModelError(f"data {list(data)} do not suit weights {list(weights)}; the file is damaged")
    times, batches = data[:2] if attributes.time_major else (data[1], data[0])
    units, features = weights
    if not _has_odd_parts(inputs):
        held = dict.fromkeys((HIDDEN, CELL), batches * units)
        for position in GATES.values():
            held |= {position: units * features, position + 4: units * units, position + 11: units}
        require_elems(inputs, held)
    return _Sizes(batches, times, features, units, int(attributes.time_major))


def _has_odd_parts(inputs: Inputs) -> bool:
    return any(p < len(inputs) and inputs[p] is not None for p in _ABSENT)


def _call_f32(node: Node) -> CCall:
    for gate in GATES:
        require_types(DType.FLOAT32, weights_of(node, gate))
    gates = {gate: c_gate(node, gate, None) for gate in GATES}
    return _call(node, "f32", {**gates, "clip": float(node.attributes.cell_clip)})


def _call_int(node: Node) -> CCall:
    way, is_narrow = scaling(node), node.input(0).dtype is DType.INT8
    for gate in GATES:
        *weights, bias = weights_of(node, gate)
        require_types(DType.INT8, weights)
        require_types(DType.INT32 if is_narrow else DType.INT64, (bias,))
    fields: dict[str, Any] = {gate: c_gate(node, gate, way.gates[gate]) for gate in GATES}
    for name, (mantissa, shift) in (("kept", way.kept), ("given", way.given), ("output_scale", way.output)):
        fields[name] = CStruct("diagmem_lstm_multiplier", {"mantissa": mantissa, "shift": shift})
    fields |= {
        "zero_point": zero_point_of(node.input(0)),
        "hidden_zero_point": zero_point_of(node.input(HIDDEN)),
        "tanh_shift": way.tanh_shift,
        "clip": way.clip,
        "table": CTable("sigmoid", sigmoid_table().astype(np.uint16)),
    }
    return _call(node, "s8" if is_narrow else "s16", fields)


def _call(node: Node, suffix: str, fields: dict[str, Any]) -> CCall:
    sizes = _sizes(node.attributes, node.inputs)._asdict()
    arguments = node.input(0), node.input(HIDDEN), node.input(CELL), node.output
    name, passes = f"lstm_{suffix}", sizes["batches"] * sizes["times"]
    return kernel_call("lstm", {**sizes, **fields}, arguments, passes=passes, function=name, struct=name)


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

    product = single_precision.product_in_order

    def before(gate: str) -> Array:
        weights, recurrent, bias = _values(node, gate)
        total: Array = (product(weights, x[:, None])[:, 0] + bias) + product(recurrent, hidden[:, None])[:, 0]
        return total

    forget, given = single_precision.logistic(before("forget")), single_precision.logistic(before("input"))
    kept = cell * forget
    cell = kept + given * single_precision.tanh(before("cell"))
    clip = np.float32(node.attributes.cell_clip)
    cell = single_precision.clamped(cell, -clip, clip) if clip > 0 else cell
    return single_precision.tanh(cell) * single_precision.logistic(before("output")), cell


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

    def multiplier(a: Tensor, b: Tensor) -> Multiplier:
        return Multiplier.of(float(np.float32(scale_of(a)) * np.float32(scale_of(b))) / _GATE_SCALE)

    used = {gate: weights_of(node, gate) for gate in GATES}
    clip = node.attributes.cell_clip / scale_of(cell)
    return Scaling(
        {gate: (multiplier(data, own), multiplier(hidden, recurrent)) for gate, (own, recurrent, _) in used.items()},
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

    kept = _held(rescale(sigmoid_16(3 * before("forget")) * cell.astype(np.int64), *way.kept))
    given = _held(rescale(sigmoid_16(3 * before("input")) * tanh_16(3 * before("cell")), *way.given))
    new = _held(kept + given)
    new = np.clip(new, -way.clip, way.clip) if way.clip else new
    wide = np.iinfo(hidden.dtype)
    shift = way.tanh_shift
    place = new * (3 << shift) if shift >= 0 else (new * 3 + (1 << (-shift - 1))) >> -shift
    out = rescale(tanh_16(place) * sigmoid_16(3 * before("output")), *way.output)
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


KIND = LstmKind()
