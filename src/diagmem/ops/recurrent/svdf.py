"""SVDF: a filter over features, then one over time, which a variable holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node
from diagmem.ops.accesses import Accesses, Runs, node_reads
from diagmem.ops.c_call import CCall, CTable, Unsupported, by_type, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at
from diagmem.ops.numerics.fixed_point import Multiplier, rescale, wrapped
from diagmem.ops.numerics.quantised import Requantisation, real_range, scale_of, zero_point_of
from diagmem.ops.numerics.single_precision import clamped, product_in_order
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature, require_elems

STATE = 4
"""The position of the state among the inputs."""


@dataclass(frozen=True, slots=True)
class Svdf:
    """Inputs: data (batch, features); weights of features (filters, features); weights of time (filters, memory); bias
    (units), which may be absent; state (batch, filters * memory). A unit adds up `rank` filters. On integers
    TFLite ignores the activation."""

    rank: int = 0
    activation: Activation = Activation.NONE


class _Sizes(NamedTuple):
    """As the kernels take them."""

    batches: int
    features: int
    filters: int
    memory: int
    rank: int

    @property
    def units(self) -> int:
        return self.filters // self.rank


class SvdfKind(OpKind):
    names = ("SVDF",)
    tflm_agrees = True
    takes = Signature((3, 5))
    table = Table(Svdf, ("Rank", "FusedActivationFunction"), "SVDFOptions")

    def states(self, node: Node) -> tuple[int, ...]:
        return (STATE,)

    def output_shapes(self, name: str, attributes: Svdf, inputs: Inputs) -> Shapes:
        sizes = _sizes(attributes, inputs)
        return ((sizes.batches, sizes.units),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """A batch at a time its features are read; then units are written. The state stays."""
        sizes = _sizes(node.attributes, node.inputs)
        batches, outputs = sizes.batches, node.output.elems
        steps = batches + outputs + 1
        rows = Runs.of(np.arange(batches) * sizes.features, sizes.features, np.arange(batches), stride=0)
        return Accesses(steps, node_reads(node, steps, {0: rows}), (Runs.of(0, outputs, batches),))

    def macs(self, node: Node) -> int:
        sizes = _sizes(node.attributes, node.inputs)
        return sizes.batches * sizes.filters * (sizes.features + sizes.memory)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        sizes = _sizes(node.attributes, node.inputs)
        way = _real if node.input(0).dtype is DType.FLOAT32 else _whole
        state = inputs[STATE].copy().reshape(-1)
        state[:-1] = state[1:].copy()
        out = way(node, sizes, inputs, state.reshape(sizes.batches, sizes.filters, sizes.memory))
        return out, state.reshape(node.input(STATE).shape)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, {DType.INT8: _call_int, DType.FLOAT32: _call_f32})


def _sizes(attributes: Svdf, inputs: Inputs) -> _Sizes:
    data, by_feature, by_time = (input_at(inputs, position) for position in range(3))
    input_at(inputs, STATE)
    filters = by_feature.shape[0]
    is_suited = filters > 0 and len(data.shape) == len(by_feature.shape) == 2 and data.shape[1] == by_feature.shape[1]
    if not is_suited:
        raise ModelError(f"data {list(data.shape)} do not suit weights {list(by_feature.shape)}; the file is damaged")
    if attributes.rank < 1 or filters % attributes.rank or by_time.shape[0] != filters:
        raise ModelError(
            f"rank {attributes.rank} does not suit weights {list(by_feature.shape)} and {list(by_time.shape)}; "
            "the file is damaged"
        )
    batches, (_, features), memory = data.shape[0], by_feature.shape, by_time.elems // filters
    require_elems(inputs, {2: filters * memory, 3: filters // attributes.rank, STATE: batches * filters * memory})
    return _Sizes(batches, features, filters, memory, attributes.rank)


def _operands(sizes: _Sizes, inputs: Values) -> tuple[Array, Array, Array, Array | None]:
    """Data and weights. A file may give them axes of 1 more or less; kernels see elements only."""
    data, by_feature, by_time, bias = inputs[:4]
    return data, by_feature, by_time.reshape(sizes.filters, sizes.memory), None if bias is None else bias.reshape(-1)


def _real(node: Node, sizes: _Sizes, inputs: Values, state: Array) -> Array:
    """All sums are taken in order from 0, or from the bias."""
    data, by_feature, by_time, bias = _operands(sizes, inputs)
    state[:, :, -1] = product_in_order(data, by_feature.T)
    sums = np.zeros((sizes.batches, sizes.filters), np.float32)
    for k in range(sizes.memory):
        sums = sums + by_time[:, k] * state[:, :, k]
    out = np.zeros((sizes.batches, sizes.units), np.float32) + (0 if bias is None else bias)
    for k in range(sizes.rank):
        out = out + sums[:, k :: sizes.rank]
    return clamped(out, *real_range(node.attributes.activation)).astype(np.float32)


def _whole(node: Node, sizes: _Sizes, inputs: Values, state: Array) -> Array:
    """A state that does not fit wraps around: the zero point is added after the clamp."""
    data, by_feature, by_time, bias = _operands(sizes, inputs)
    wide = np.iinfo(state.dtype)
    zero_point = zero_point_of(node.input(STATE))
    sums = (data.astype(np.int64) - zero_point_of(node.input(0))) @ by_feature.astype(np.int64).T
    state[:, :, -1] = (np.clip(rescale(sums, *_to_state(node)), wide.min, wide.max) + zero_point).astype(state.dtype)
    passed = (by_time.astype(np.int64) * (state.astype(np.int64) - zero_point)).sum(axis=2)
    total = passed.reshape(sizes.batches, sizes.units, sizes.rank).sum(axis=2) + (0 if bias is None else bias)
    return _to_output(node).apply(wrapped(total)).astype(np.int8)


def _to_state(node: Node) -> Multiplier:
    """TFLite Micro as built computes both multipliers in float64, LiteRT in float32."""
    return Multiplier.of(scale_of(node.input(0)) * scale_of(node.input(1)) / scale_of(node.input(STATE)))


def _to_output(node: Node) -> Requantisation:
    real = scale_of(node.input(STATE)) * scale_of(node.input(2)) / scale_of(node.output)
    return Requantisation.of([real], node.output)


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1), node.input(2), node.input(STATE), node.output))
    low, high = real_range(node.attributes.activation)
    return _call(node, "f32", {"low": low, "high": high})


def _call_int(node: Node) -> CCall:
    require_types(DType.INT8, (node.input(1), node.output))
    state = node.input(STATE)
    require_types(state.dtype, (node.input(2),))
    if state.dtype not in (DType.INT8, DType.INT16):
        raise Unsupported(f"a {state.dtype.value} state; supported: int8, int16")
    mantissa, shift = _to_state(node)
    wide = np.iinfo(state.dtype.numpy)
    fields = {
        "zero_point": zero_point_of(node.input(0)),
        "state_zero_point": zero_point_of(state),
        "mantissa": mantissa,
        "shift": shift,
        "low": int(wide.min),
        "high": int(wide.max),
        "output": _to_output(node).c_struct(),
    }
    return _call(node, "s8" if state.dtype is DType.INT8 else "s8_s16", fields)


def _call(node: Node, suffix: str, fields: dict[str, Any]) -> CCall:
    tables = {
        name: CTable(name, values_of(node.input(position)))
        for name, position in (("by_feature", 1), ("by_time", 2), ("bias", 3))
        if node.inputs[position] is not None
    }
    sizes = _sizes(node.attributes, node.inputs)._asdict()
    own, name = {**sizes, "bias": None, **tables, **fields}, f"svdf_{suffix}"
    arguments = node.input(0), node.input(STATE), node.output
    return kernel_call("svdf", own, arguments, passes=sizes["batches"], function=name, struct=name)


KIND = SvdfKind()
