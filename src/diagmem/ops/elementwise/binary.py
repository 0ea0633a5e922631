"""Operations on pairs of elements, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.model.teamwork import Cut
from diagmem.ops.c_call import CCall, by_type, require_types
from diagmem.ops.elementwise._binary_dsp import dsp_variants
from diagmem.ops.elementwise._binary_int import (
    QUANTISED,
    UNSIGNED,
    binary_call,
    plain,
    plain_call,
    product,
    product_call,
    quotient,
    quotient_call,
    sum_call,
    sum_or_difference,
)
from diagmem.ops.elementwise._binary_mve import mve_variants
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast, outer_cut
from diagmem.ops.numerics import single_precision
from diagmem.ops.numerics.quantised import real_range, rounds_to_even
from diagmem.ops.options import Activation, BuiltinOptions, activation_field, activation_of
from diagmem.ops.sampling import OPERAND_SIZE, Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature
from diagmem.ops.variants import InstructionSet, Variant


@dataclass(frozen=True, slots=True)
class Binary:
    """MAXIMUM, MINIMUM and SQUARED_DIFFERENCE have no activation."""

    activation: Activation = Activation.NONE


class BinaryKind(BroadcastKind):
    names = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
    tflm_agrees = True
    is_pointwise = True

    def decode(self, name: str, options: Any) -> Binary:
        if options is None or name not in ("ADD", "SUB", "MUL", "DIV"):
            return Binary()
        return Binary(activation_of(options.FusedActivationFunction()))

    def encode(self, node: Node) -> BuiltinOptions:
        if node.op.kind in ("MAXIMUM", "MINIMUM"):
            return BuiltinOptions("MaximumMinimumOptions", {})
        if node.op.kind == "SQUARED_DIFFERENCE":
            return BuiltinOptions("SquaredDifferenceOptions", {})
        return BuiltinOptions(f"{node.op.kind.title()}Options", activation_field(node.attributes.activation))

    def signature(self, name: str) -> Signature:
        return Signature((2, 2), alike=(1,))

    def output_shapes(self, name: str, attributes: Binary, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (broadcast_shape(input_at(inputs, 0).shape, input_at(inputs, 1).shape),)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        way = _WAYS[node.op.kind].get(node.output.dtype)
        if way is None:
            return super().reference(node, inputs)
        return (np.reshape(way.reference(node, *inputs), node.output.shape),)

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        if rounds_to_even(node.output):
            return ()
        return mve_variants(node) if instructions is InstructionSet.MVE else dsp_variants(node)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return outer_cut(node, c_broadcast)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, {dtype: way.call for dtype, way in _WAYS[node.op.kind].items()})

    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        shape = draw.shape()
        places = draw.choice(((activation, activation), (activation, constant), (constant, activation)))
        inputs = [place(draw.shrunk(shape), draw.dtype()) for place in places]
        attributes = Binary(draw.fused()) if name in ("ADD", "SUB", "MUL", "DIV") else Binary()
        return node_of(self, name, attributes, inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        types, gains = (
            tuple(_WAYS[node.op.kind]),
            {"ADD": 1, "SUB": 1, "SQUARED_DIFFERENCE": 1, "MUL": OPERAND_SIZE, "DIV": 1},
        )
        return Fitting(types, gain=gains.get(node.op.kind))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Whole numbers are not divided by 0."""
        if node.op.kind != "DIV" or position == 0 or tensor.dtype is DType.FLOAT32:
            return None
        zero = 0 if tensor.quantisation is None else tensor.quantisation.zero_points[0]
        found: Array = rng.integers(-100, 100, tensor.shape)
        return np.where(found == zero, zero - 1 if zero > 0 else zero + 1, found)


_REAL: Mapping[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "MAXIMUM": single_precision.larger,
    "MINIMUM": single_precision.smaller,
    "SQUARED_DIFFERENCE": lambda x, y: (x - y) * (x - y),
}


def _real(node: Node, first: Array, second: Array) -> Array:
    with np.errstate(all="ignore"):
        result: Array = _REAL[node.op.kind](first, second)
        return single_precision.clamped(result, *real_range(node.attributes.activation))


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1), node.output))
    low, high = real_range(node.attributes.activation)
    return binary_call(node, "binary_f32", {"low": low, "high": high}, "f32")


class _Way(NamedTuple):
    reference: Callable[[Node, Array, Array], Array]
    call: Callable[[Node], CCall]


_F32 = {DType.FLOAT32: _Way(_real, _call_f32)}
_SUM = dict.fromkeys(QUANTISED, _Way(sum_or_difference, sum_call))
_PRODUCT = dict.fromkeys(QUANTISED, _Way(product, product_call))
_PLAIN_S32 = {DType.INT32: _Way(plain, plain_call)}
_PLAIN = dict.fromkeys((*QUANTISED, *UNSIGNED, DType.INT32, DType.INT64), _Way(plain, plain_call))
_SUM_U8 = dict.fromkeys(UNSIGNED, _Way(sum_or_difference, sum_call))
_PRODUCT_U8 = dict.fromkeys(UNSIGNED, _Way(product, product_call))
_QUOTIENT = {DType.INT8: _Way(quotient, quotient_call)}

_WAYS = {
    "ADD": _SUM | _SUM_U8 | _PLAIN_S32 | _F32,
    "SUB": _SUM | _SUM_U8 | _PLAIN_S32 | _F32,
    "MUL": _PRODUCT | _PRODUCT_U8 | _PLAIN_S32 | _F32,
    "DIV": _QUOTIENT | _PLAIN_S32 | _F32,
    "MAXIMUM": _PLAIN | _F32,
    "MINIMUM": _PLAIN | _F32,
    "SQUARED_DIFFERENCE": _SUM | _PLAIN_S32 | _F32,
}


KIND = BinaryKind()
