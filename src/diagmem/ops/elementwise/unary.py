"""Activations and other operations on single elements; input and output elements may differ in size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.model.schedule import Cut
from diagmem.ops.c_call import TYPES, CCall, is_row_local
from diagmem.ops.elementwise._unary_arithmetic import (
    CLAMPS,
    STORED,
    is_looked_up_to_even,
    looked_up_to_even,
    looked_up_to_even_call,
    ways_of,
)
from diagmem.ops.kind import Array, OpKind, Values, Way
from diagmem.ops.loops.broadcast import c_elementwise, outer_cut
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.options import TYPE_CODES, BuiltinOptions, Options, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Unary:
    """`alpha` is LEAKY_RELU's slope; `approximate` chooses GELU's tanh form."""

    alpha: float = 0.0
    approximate: bool = False


LUT_ONLY = ("EXP", "GELU")
"""Kinds whose 8-bit outputs LiteRT gives a scale of their own."""

_SIZES_APART = (DType.BOOL, DType.INT16, DType.FLOAT32, DType.INT64)

_CASTABLE = (DType.INT8, DType.INT16, DType.FLOAT32, DType.INT32, DType.INT64, DType.UINT8, DType.BOOL, DType.UINT32)

QUANTISED = (DType.INT8, DType.INT16, DType.UINT8)

_CONVERTED = {
    "CAST": (_CASTABLE, _CASTABLE),
    "QUANTIZE": ((*QUANTISED, DType.FLOAT32, DType.INT32), QUANTISED),
    "DEQUANTIZE": (QUANTISED, (DType.FLOAT32,)),
}
"""Kinds whose output may be of another type than the input -> the types of inputs, and of outputs."""

_FIXED = {
    "LOGISTIC": {DType.INT8: (1 / 256, -128), DType.UINT8: (1 / 256, 0), DType.INT16: (1 / 32768, 0)},
    "TANH": {DType.INT8: (1 / 128, 0), DType.UINT8: (1 / 128, 128), DType.INT16: (1 / 32768, 0)},
}
"""Output scales and zero points that TFLite insists on."""


class UnaryKind(RearrangeKind):
    names = (
        *("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH"),
        *("GELU", "SQRT", "RSQRT", "SQUARE", "EXP", "LOG", "SIN", "COS", "ABS", "NEG", "FLOOR", "CEIL", "ROUND"),
        *("LOGICAL_NOT", "CAST", "QUANTIZE", "DEQUANTIZE"),
    )
    table = {
        **dict.fromkeys(names, Table(Unary, name=None)),
        "LEAKY_RELU": Table(Unary, {"alpha": "Alpha"}),
        "GELU": Table(Unary, {"approximate": "Approximate"}),
    }
    tflm_agrees = True
    is_pointwise = True
    takes_pitches = True

    def encode(self, node: Node) -> Options:
        if node.op.kind != "CAST":
            return super().encode(node)
        types = {"InDataType": TYPE_CODES[node.input(0).dtype], "OutDataType": TYPE_CODES[node.output.dtype]}
        return BuiltinOptions("CastOptions", types)

    def signature(self, name: str) -> Signature:
        if name == "CAST":
            return Signature(made=None)
        made = {"QUANTIZE": STORED, "DEQUANTIZE": (DType.FLOAT32, DType.FLOAT16)}.get(name)
        return Signature(made={} if made is None else dict.fromkeys(DType, made))

    def only_moves(self, name: str) -> bool:
        return name in ("CAST", "QUANTIZE")

    def ways(self, name: str) -> dict[DType, Way]:
        return ways_of(name)

    def moves(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(0, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if is_looked_up_to_even(node):
            return (np.reshape(looked_up_to_even(node, inputs[0]), node.output.shape),)
        return OpKind.reference(self, node, inputs)

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return outer_cut(node, c_elementwise)

    def c_call(self, node: Node) -> CCall:
        return looked_up_to_even_call(node) if is_looked_up_to_even(node) else super().c_call(node)

    def sample(self, name: str, draw: Draw) -> Node:
        """Any two element sizes, also from a small one to a large one; conversions from and to types that they take."""
        given, made = _CONVERTED.get(name, (_SIZES_APART, _SIZES_APART))
        attributes = Unary(approximate=draw.boolean()) if name == "GELU" else Unary()
        if name == "LEAKY_RELU":
            attributes = Unary(alpha=draw.integer(-2, 20) / 16)
        data = activation(draw.shape(), draw.choice(given))
        return node_of(self, name, attributes, [data], (draw.choice(made),))

    def fitting(self, node: Node) -> Fitting:
        name = node.op.kind
        if name in _CONVERTED:
            scaled = () if name == "CAST" else (*QUANTISED, DType.INT32)
            return Fitting(None, gain=1, scaled=scaled, draws_output_types=True)
        has_own_scale = name in CLAMPS or name in ("LEAKY_RELU", "ELU", "HARD_SWISH", "ABS", "RSQRT", *LUT_ONLY)
        return Fitting(tuple(self.ways(name)) or TYPES, gain=1 if has_own_scale else None, fixed=_FIXED.get(name, {}))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Only numbers above 0 have a root, and 0 none that is inverted."""
        if node.op.kind not in ("SQRT", "RSQRT", "LOG"):
            return None
        if tensor.quantisation is None:
            return np.abs(rng.normal(0, 3, tensor.shape)) + 0.01
        low, high = tensor.quantisation.zero_points[0], np.iinfo(tensor.dtype.numpy).max
        return rng.integers(low, high, tensor.shape, endpoint=True)


KIND = UnaryKind()
