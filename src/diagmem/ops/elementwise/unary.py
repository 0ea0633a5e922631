"""Activations and other operations on single elements; input and output elements may differ in size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.model.multicore import Cut
from diagmem.ops.c_call import TYPES, CCall, CStruct, by_type, is_row_local, require_types
from diagmem.ops.elementwise._unary_arithmetic import (
    CLAMPS,
    LOOKUPS,
    MATH,
    STORED,
    UNSIGNED_LOOKUPS,
    cast,
    cast_call,
    clamped_s16,
    clamped_s16_call,
    dequantize,
    dequantize_call,
    logical_not,
    logical_not_call,
    lookup,
    lookup_call,
    lookup_to_even_call,
    math_call,
    math_f32,
    quantize,
    quantize_call,
    sigmoid_s16,
    sigmoid_s16_call,
    table_to_even,
    two_sided_s16,
    two_sided_s16_call,
)
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.loops.broadcast import c_elementwise, outer_cut
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.numerics import single_precision
from diagmem.ops.numerics.quantised import rounds_to_even
from diagmem.ops.options import TYPE_CODES, BuiltinOptions
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
        *(
            "RELU",
            "RELU6",
            "RELU_N1_TO_1",
            "RELU_0_TO_1",
            "LEAKY_RELU",
            "ELU",
            "HARD_SWISH",
            "LOGISTIC",
            "TANH",
            "GELU",
        ),
        *("SQRT", "RSQRT", "SQUARE", "EXP", "LOG", "SIN", "COS", "ABS", "NEG", "FLOOR", "CEIL", "ROUND"),
        *("LOGICAL_NOT", "CAST", "QUANTIZE", "DEQUANTIZE"),
    )
    tflm_agrees = True
    is_pointwise = True
    takes_pitches = True

    def decode(self, name: str, options: Any) -> Unary:
        if options is None:
            return Unary()
        if name == "LEAKY_RELU":
            return Unary(alpha=float(options.Alpha()))
        if name == "GELU":
            return Unary(approximate=bool(options.Approximate()))
        return Unary()

    def encode(self, node: Node) -> BuiltinOptions | None:
        if node.op.kind == "LEAKY_RELU":
            return BuiltinOptions("LeakyReluOptions", {"Alpha": node.attributes.alpha})
        if node.op.kind == "GELU":
            return BuiltinOptions("GeluOptions", {"Approximate": node.attributes.approximate})
        if node.op.kind == "CAST":
            types = TYPE_CODES[node.input(0).dtype], TYPE_CODES[node.output.dtype]
            return BuiltinOptions("CastOptions", dict(zip(("InDataType", "OutDataType"), types, strict=True)))
        return None

    def signature(self, name: str) -> Signature:
        if name == "CAST":
            return Signature(made=None)
        made = {"QUANTIZE": STORED, "DEQUANTIZE": (DType.FLOAT32, DType.FLOAT16)}.get(name)
        return Signature(made={} if made is None else dict.fromkeys(DType, made))

    def output_shapes(self, name: str, attributes: Unary, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def chunks(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(0, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        way = _way(node)
        if way is None:
            return OpKind.reference(self, node, inputs)
        return (np.reshape(way.reference(node, inputs[0]), node.output.shape),)

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return outer_cut(node, c_elementwise)

    def c_call(self, node: Node) -> CCall:
        if _is_looked_up_to_even(node):
            return lookup_to_even_call(node, _through_real)
        return by_type(node, {dtype: way.call for dtype, way in _ways(node.op.kind).items()})

    def sample(self, name: str, draw: Draw) -> Node:
        """Any two element sizes, also from a small one to a large one; conversions from and to types that they take."""
        given, made = _CONVERTED.get(name, (_SIZES_APART, _SIZES_APART))
        attributes = Unary()
        if name == "LEAKY_RELU":
            attributes = Unary(alpha=draw.integer(-2, 20) / 16)
        elif name == "GELU":
            attributes = Unary(approximate=draw.boolean())
        data = activation(draw.shape(), draw.choice(given))
        return node_of(self, name, attributes, [data], (draw.choice(made),))

    def fitting(self, node: Node) -> Fitting:
        name = node.op.kind
        if name in _CONVERTED:
            scaled = () if name == "CAST" else (*QUANTISED, DType.INT32)
            return Fitting(None, gain=1, scaled=scaled, draws_output_types=True)
        has_own_scale = name in CLAMPS or name in ("LEAKY_RELU", "ELU", "HARD_SWISH", "ABS", "RSQRT", *LUT_ONLY)
        return Fitting(tuple(_ways(name)) or TYPES, gain=1 if has_own_scale else None, fixed=_FIXED.get(name, {}))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Only numbers above 0 have a root, and 0 none that is inverted."""
        if node.op.kind not in ("SQRT", "RSQRT", "LOG"):
            return None
        if tensor.quantisation is None:
            return np.abs(rng.normal(0, 3, tensor.shape)) + 0.01
        low, high = tensor.quantisation.zero_points[0], np.iinfo(tensor.dtype.numpy).max
        return rng.integers(low, high, tensor.shape, endpoint=True)


_REAL: Mapping[str, Callable[[Array], Array]] = {
    "ELU": lambda x: np.where(x < 0, single_precision.expm1(x), x),
    "HARD_SWISH": lambda x: x * single_precision.clamped(x + np.float32(3), 0, 6) / np.float32(6),
    "LOGISTIC": single_precision.logistic,
    "TANH": single_precision.tanh,
    "SQRT": np.sqrt,
    "RSQRT": lambda x: np.float32(1) / np.sqrt(x),
    "SQUARE": lambda x: x * x,
    "EXP": single_precision.exp,
    "ABS": np.abs,
    "NEG": np.negative,
}


def _real(node: Node, x: Array) -> Array:
    if node.op.kind in CLAMPS:
        return single_precision.clamped(x, *CLAMPS[node.op.kind])
    if node.op.kind == "LEAKY_RELU":
        return np.where(x > 0, x, x * np.float32(node.attributes.alpha))
    if node.op.kind == "GELU":
        return (single_precision.gelu_by_tanh if node.attributes.approximate else single_precision.gelu)(x)
    with np.errstate(all="ignore"):
        return _REAL[node.op.kind](x)


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.output,))
    kind = node.op.kind
    low, high = CLAMPS.get(kind, (0.0, 0.0))
    name = "relu" if kind in CLAMPS else "exponential" if kind == "EXP" else kind.lower()
    name += "_by_tanh" if kind == "GELU" and node.attributes.approximate else ""
    fields = {"shape": c_elementwise(node), "low": low, "high": high, "slope": float(node.attributes.alpha)}
    parameters = CStruct("diagmem_unary_f32_params", fields)
    return CCall("elementwise_unary_f32.c", f"diagmem_{name}_f32", parameters, (node.input(0), node.output))


class _Way(NamedTuple):
    reference: Callable[[Node, Array], Array]
    call: Callable[[Node], CCall]


_S16 = {
    **dict.fromkeys(CLAMPS, _Way(clamped_s16, clamped_s16_call)),
    **dict.fromkeys(("LEAKY_RELU", "ABS"), _Way(two_sided_s16, two_sided_s16_call)),
    **dict.fromkeys(("LOGISTIC", "TANH"), _Way(sigmoid_s16, sigmoid_s16_call)),
}

_CONVERSIONS = {
    "CAST": _Way(cast, cast_call),
    "QUANTIZE": _Way(quantize, quantize_call),
    "DEQUANTIZE": _Way(dequantize, dequantize_call),
}


def _ways(kind: str) -> dict[DType, _Way]:
    """How a kind is computed, by the type of the input."""
    if kind in _CONVERSIONS:
        return dict.fromkeys(DType, _CONVERSIONS[kind])
    ways: dict[DType, _Way] = {DType.INT8: _Way(lookup, lookup_call)} if kind in LOOKUPS else {}
    if kind in UNSIGNED_LOOKUPS:
        ways[DType.UINT8] = _Way(lookup, lookup_call)
    if kind in _S16:
        ways[DType.INT16] = _S16[kind]
    if kind in _REAL or kind in CLAMPS or kind in ("LEAKY_RELU", "GELU"):
        ways[DType.FLOAT32] = _Way(_real, _call_f32)
    if kind in MATH:
        ways[DType.FLOAT32] = _Way(math_f32, math_call)
    if kind == "LOGICAL_NOT":
        ways[DType.BOOL] = _Way(logical_not, logical_not_call)
    return ways


def _is_looked_up_to_even(node: Node) -> bool:
    """Of 8 bits, rounded once: any function that real numbers have too."""
    is_known = node.op.kind not in _CONVERSIONS and DType.FLOAT32 in _ways(node.op.kind)
    return is_known and node.input(0).dtype is DType.INT8 and rounds_to_even(node.output)


def _way(node: Node) -> _Way | None:
    if _is_looked_up_to_even(node):
        return _Way(_looked_up_to_even, lambda node: lookup_to_even_call(node, _through_real))
    return _ways(node.op.kind).get(node.input(0).dtype)


def _looked_up_to_even(node: Node, data: Array) -> Array:
    found: Array = table_to_even(node, _through_real)[data.astype(np.int64) + 128]
    return found


def _through_real(node: Node, data: Array) -> Array:
    return _ways(node.op.kind)[DType.FLOAT32].reference(node, dequantize(node, data))


KIND = UnaryKind()
