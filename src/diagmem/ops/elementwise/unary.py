"""Operations on single elements: activations, functions of a number, and conversions between types, whose elements may
differ in size. Of 8-bit integers a table holds all results; others are computed as they come."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.model.schedule import Cut
from diagmem.ops.c_call import (
    SUFFIXES,
    CCall,
    CTable,
    Fields,
    Unsupported,
    element_code,
    is_row_local,
    kernel_call,
    require_types,
)
from diagmem.ops.kind import Array, OpKind, Way
from diagmem.ops.loops.broadcast import c_elementwise, outer_cut
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.numerics import fixed_point, single_precision
from diagmem.ops.numerics.fixed_point import INT32_MAX, Ints, Multiplier, rescale, wrapped
from diagmem.ops.numerics.quantised import (
    Requantisation,
    dequantised,
    quantisation_of,
    real_range,
    rounds_to_even,
    scale_of,
    zero_point_of,
)
from diagmem.ops.options import CUSTOM, TYPE_CODES, Activation, BuiltinOptions, CustomTable, Options, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Unary:
    """`alpha` is LEAKY_RELU's slope; `approximate` chooses GELU's tanh form."""

    alpha: float = 0.0
    approximate: bool = False


QUANTISED = (DType.INT8, DType.INT16, DType.UINT8)


_FIXED = {
    "LOGISTIC": {DType.INT8: (1 / 256, -128), DType.UINT8: (1 / 256, 0), DType.INT16: (1 / 32768, 0)},
    "TANH": {DType.INT8: (1 / 128, 0), DType.UINT8: (1 / 128, 128), DType.INT16: (1 / 32768, 0)},
}
"""Output scales and zero points that TFLite insists on."""


CUSTOM_MATH = tuple(f"{CUSTOM}{name}" for name in single_precision.IN_DOUBLE if not name.isupper())
"""Functions that TFLite does not define, by TensorFlow's names."""


class UnaryKind(RearrangeKind):
    names = (
        *("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH"),
        *("GELU", "SQRT", "RSQRT", "SQUARE", "EXP", "LOG", "SIN", "COS", "ABS", "NEG", "FLOOR", "CEIL", "ROUND"),
        *("SIGN", "LOGICAL_NOT", "CAST", "QUANTIZE", "DEQUANTIZE"),
        *CUSTOM_MATH,
    )
    table = {
        **dict.fromkeys(names, Table(Unary, name=None)),
        **dict.fromkeys(CUSTOM_MATH, CustomTable(Unary)),
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
        """How a kind is computed, by the type of the input."""
        if name in _CONVERSIONS:
            return dict.fromkeys(DType, _CONVERSIONS[name])
        looked_up = Way(_lookup, lambda node: _lookup_call(node, _table(node)))
        on_integers = Way(_real, _math_call) if name in ("ABS", "NEG", "SIGN") else None
        ways = {
            DType.INT8: looked_up if name in _S8 else None,
            DType.UINT8: looked_up if name in _U8 else None,
            DType.INT16: _S16.get(name),
            DType.FLOAT32: _IN_FLOAT32.get(name),
            DType.BOOL: Way(lambda node, x: ~x, _math_call) if name == "LOGICAL_NOT" else None,
            **dict.fromkeys((DType.INT32, DType.INT64), on_integers),
        }
        return {dtype: way for dtype, way in ways.items() if way is not None}

    def moves(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(0, node.output.elems)

    reference = OpKind.reference

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return outer_cut(node, c_elementwise)


STORED = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)


def _cast(node: Node, data: Array) -> Array:
    """float32 loses its fraction and is clamped to the integers' range; integers wrap around."""
    to = node.output.dtype
    if data.dtype.kind != "f" or to in (DType.FLOAT32, DType.BOOL):
        return data.astype(to.numpy)
    info = np.iinfo(to.numpy)
    with np.errstate(invalid="ignore"):
        inside = data.astype(to.numpy)
    clamped = np.where(data >= np.float32(info.max), info.max, np.where(data > np.float32(info.min), inside, info.min))
    return np.where(np.isnan(data), 0, clamped).astype(to.numpy)


def _cast_call(node: Node) -> CCall:
    fields = {
        "shape": c_elementwise(node),
        "from": element_code(node.input(0).dtype),
        "to": element_code(node.output.dtype),
    }
    return kernel_call("cast", fields, (node.input(0), node.output))


def _quantize(node: Node, data: Array) -> Array:
    if rounds_to_even(node.output):
        return stored_to_even(node.output, data if node.input(0).dtype is DType.FLOAT32 else _dequantize(node, data))
    if node.input(0).dtype is not DType.FLOAT32:
        result = _rescaling(node).apply(data.astype(np.int64) - zero_point_of(node.input(0)))
        return result.astype(node.output.dtype.numpy)
    (low, high), zero_point = _limits(node.output.dtype), zero_point_of(node.output)
    units = data / np.float32(scale_of(node.output))
    whole = np.trunc(np.clip(np.nan_to_num(units, nan=-np.inf), low - zero_point, high - zero_point))
    with np.errstate(invalid="ignore"):
        rest = np.where(np.abs(units) < 2**24, units - whole, 0)
    rounded = whole.astype(np.int64) + (rest >= 0.5) - (rest <= -0.5) + zero_point
    stored: Array = np.clip(rounded, low, high).astype(node.output.dtype.numpy)
    return stored


def stored_to_even(output: Tensor, real: Array) -> Array:
    """Real values as onnxruntime stores them: halves to even."""
    (low, high), zero_point = _limits(output.dtype), zero_point_of(output)
    with np.errstate(all="ignore"):
        units = real / np.float32(scale_of(output))
    held = np.clip(np.nan_to_num(units, nan=-np.inf), low - zero_point, high - zero_point)
    stored: Array = (np.rint(held).astype(np.int64) + zero_point).astype(output.dtype.numpy)
    return stored


def _quantize_call(node: Node) -> CCall:
    is_rounded_once = rounds_to_even(node.output)
    if node.input(0).dtype is DType.FLOAT32:
        return _real_call(node, "quantize_to_even" if is_rounded_once else "quantize", node.output)
    if is_rounded_once:
        return _lookup_call(node, _table_to_even(node))
    return _requantize_call(node, _rescaling(node))


def _dequantize(node: Node, data: Array) -> Array:
    """float16 has no scale."""
    if node.input(0).dtype is DType.FLOAT16:
        return data.astype(np.float32)
    return dequantised(node.input(0), data)


def _dequantize_call(node: Node) -> CCall:
    if node.output.dtype is not DType.FLOAT32:
        raise Unsupported(f"{node.output.dtype.value} outputs; supported: float32")
    return _real_call(node, "dequantize", node.input(0))


def _requantize_call(node: Node, output: Requantisation) -> CCall:
    """From integers to integers of another scale."""
    for tensor in (node.input(0), node.output):
        if tensor.dtype not in STORED:
            raise Unsupported(f"quantised {tensor.dtype.value}; supported: {', '.join(d.value for d in STORED)}")
    types = {"from": element_code(node.input(0).dtype), "to": element_code(node.output.dtype)}
    fields = {**types, "zero_point": zero_point_of(node.input(0)), "output": output.c_struct()}
    return _conversion_call(node, "requantize", "requantize", fields)


def _table_to_even(node: Node) -> Array:
    """-128, -127, … 127 on another scale."""
    require_types(DType.INT8, (node.input(0), node.output))
    return stored_to_even(node.output, _dequantize(node, np.arange(-128, 128, dtype=np.int8)))


def _rescaling(node: Node) -> Requantisation:
    return Requantisation.of([scale_of(node.input(0)) / scale_of(node.output)], node.output)


def _real_call(node: Node, function: str, stored: Any) -> CCall:
    if stored.dtype not in STORED[:3]:
        raise Unsupported(f"quantised {stored.dtype.value}; supported: {', '.join(d.value for d in STORED[:3])}")
    low, high = _limits(stored.dtype)
    fields = {
        "type": element_code(stored.dtype),
        "scale": scale_of(stored),
        "zero_point": zero_point_of(stored),
        "low": low,
        "high": high,
    }
    return _conversion_call(node, function, "quantize", fields)


def _conversion_call(node: Node, function: str, struct: str, fields: Fields) -> CCall:
    given = {"shape": c_elementwise(node), **fields}
    return kernel_call("quantize", given, (node.input(0), node.output), function=function, struct=struct)


def _limits(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


_MATH: Mapping[str, Callable[[Array], Array]] = {
    **{name if name.isupper() else f"{CUSTOM}{name}": f for name, f in single_precision.IN_DOUBLE.items()},
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND": np.rint,
    "SIGN": lambda x: np.where(x > 0, x.dtype.type(1), np.where(x < 0, x.dtype.type(-1), x)),
}
"""Halves are rounded to the even neighbour."""


def _math_call(node: Node) -> CCall:
    require_types(node.input(0).dtype, (node.output,))
    name, dtype = node.op.kind.removeprefix(CUSTOM).lower(), node.output.dtype
    function = name if dtype is DType.BOOL else f"math_{name}_{SUFFIXES[dtype]}"
    fields, tensors = {"shape": c_elementwise(node)}, (node.input(0), node.output)
    return kernel_call("elementwise_unary_math", fields, tensors, function=function, struct="unary_math")


Function = Callable[[Node, Ints], Ints]
"""From stored inputs to stored outputs, of which a type holds only those in its range."""

FUSED = {a.name: a for a in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1)}
"""Kinds that can be the activation of another operation."""

CLAMPS = {**{name: real_range(activation.unlimited) for name, activation in FUSED.items()}, "RELU_0_TO_1": (0.0, 1.0)}
"""Kinds that clamp, and the real values that they leave."""

single: Any = np.float32
"""The precision in which TFLite computes some multipliers."""


@np.errstate(over="ignore")
def _unit(node: Node) -> float:
    """What one unit of the input is worth, in units of the output. TFLite Micro as built divides in float64,
    LiteRT, which is the judge of unsigned numbers, in float32; of 65,536 stored numbers a few are then off by one."""
    return _coarse_unit(node) if _is_unsigned(node) else scale_of(node.input(0)) / scale_of(node.output)


def _coarse_unit(node: Node) -> float:
    return float(single(scale_of(node.input(0))) / single(scale_of(node.output)))


def _is_unsigned(node: Node) -> bool:
    return node.input(0).dtype is DType.UINT8


def _clamp_requantisation(node: Node) -> Requantisation:
    """RELU as TFLite Micro does it; of the others LiteRT is the judge, which divides in float32."""
    unit = _unit if node.op.kind == "RELU" else _coarse_unit
    return Requantisation.between([unit(node)], node.output, CLAMPS[node.op.kind])


def _clamped(node: Node, x: Ints) -> Ints:
    """Where input and output differ in scale, TFLite rescales; TFLite Micro's RELU6 does not."""
    return _clamp_requantisation(node).apply(x - zero_point_of(node.input(0)))


@np.errstate(over="ignore")
def _leaky_slope(node: Node) -> float:
    if _is_unsigned(node):
        product = single(scale_of(node.input(0))) * single(node.attributes.alpha)
        return float(product / single(scale_of(node.output)))
    return scale_of(node.input(0)) * float(single(node.attributes.alpha)) / scale_of(node.output)


def _leaky_relu(node: Node, x: Ints) -> Ints:
    """A negative slope turns the sign before it is rounded: halves go upwards in what comes out."""
    value, slope = x - zero_point_of(node.input(0)), _leaky_slope(node)
    below = rescale(int(math.copysign(1, slope)) * value, *Multiplier.of(abs(slope)))
    scaled = np.where(value >= 0, rescale(value, *Multiplier.of(_unit(node))), below)
    return wrapped(scaled + zero_point_of(node.output))


def _abs(node: Node, x: Ints) -> Ints:
    value = np.abs(x - zero_point_of(node.input(0)))
    return wrapped(rescale(value, *Multiplier.of(_unit(node))) + zero_point_of(node.output))


@np.errstate(over="ignore")
def _rsqrt(node: Node, x: Ints) -> Ints:
    """Negative numbers have no root; they are taken as 0, for which the largest output stands."""
    real = 1 / float(np.sqrt(single(scale_of(node.input(0)))) * single(scale_of(node.output)))
    mantissa, shift = Multiplier.of(real)
    fine = 20
    results = []
    for value in (x - zero_point_of(node.input(0))).tolist():
        root = fixed_point.inverse_sqrt(max(0, value))
        data = rescale(1, root.mantissa, root.shift + fine)
        result = int(rescale(data, mantissa, shift - fine)) + zero_point_of(node.output)
        results.append(result if value > 0 else INT32_MAX)
    return np.array(results, np.int64)


@np.errstate(over="ignore")
def _hard_swish(node: Node, x: Ints) -> Ints:
    fine = single(1 / 128) * single(scale_of(node.input(0)))
    to_output, to_sixth = float(fine / single(scale_of(node.output))), float(fine / (single(3) / single(32768)))
    if Multiplier.of(to_output).shift > 0:
        raise Unsupported("an output scale far smaller than the input's; TensorFlow Lite refuses it too")
    return fixed_point.hard_swish(x - zero_point_of(node.input(0)), to_output, to_sixth) + zero_point_of(node.output)


def _require_output(node: Node) -> None:
    scale, zero_point = _FIXED[node.op.kind][node.input(0).dtype]
    found = quantisation_of(node.output)
    if not math.isclose(found.scales[0], scale, rel_tol=1e-3) or found.zero_points[0] != zero_point:
        raise Unsupported(f"an output scale other than 1/{round(1 / scale)} with zero point {zero_point}")


def _sigmoid(node: Node, x: Ints) -> Ints:
    """LOGISTIC and TANH."""
    _require_output(node)
    argument, beyond = fixed_point.scaled_argument(x - zero_point_of(node.input(0)), scale_of(node.input(0)))
    if node.op.kind == "TANH":
        inside = fixed_point.rounding_shift(fixed_point.tanh(argument), 24)
    else:
        inside = fixed_point.rounding_shift(fixed_point.sigmoid(argument), 23) - 128
    return np.where(beyond, beyond * 128, inside)


def _by_real(function: Callable[[Node, Any], Any]) -> Function:
    """Dequantised, through a float32 function, and quantised again."""

    def stored(node: Node, x: Ints) -> Ints:
        real = single(scale_of(node.input(0))) * (x - zero_point_of(node.input(0))).astype(np.float32)
        with np.errstate(all="ignore"):
            units = function(node, real) * (single(1) / single(scale_of(node.output)))
        held = np.clip(np.nan_to_num(units, nan=0.0), -(2.0**30), 2.0**30)
        rounded: Ints = (np.sign(held) * np.floor(np.abs(held) + 0.5)).astype(np.int64)
        return rounded + zero_point_of(node.output)

    return stored


def _gelu(node: Node, x: Any) -> Any:
    if node.attributes.approximate:
        inner = single(math.sqrt(2 / math.pi)) * (x + single(0.044715) * x * x * x)
        return single(0.5) * x * (single(1) + np.tanh(inner))
    tail = np.array([math.erfc(float(v)) for v in (x * single(-math.sqrt(0.5))).tolist()], np.float32)
    return single(0.5) * x * tail


_S8: Mapping[str, Function] = {
    **dict.fromkeys(CLAMPS, _clamped),
    "LEAKY_RELU": _leaky_relu,
    "ABS": _abs,
    "RSQRT": _rsqrt,
    "HARD_SWISH": _hard_swish,
    **dict.fromkeys(("LOGISTIC", "TANH"), _sigmoid),
    "ELU": _by_real(lambda node, x: np.where(x < 0, np.exp(x) - single(1), x)),
    "EXP": _by_real(lambda node, x: np.exp(x)),
    "GELU": _by_real(_gelu),
}

_U8: Mapping[str, Function] = {
    **{kind: _S8[kind] for kind in (*CLAMPS, "LEAKY_RELU", "HARD_SWISH")},
    "LOGISTIC": _by_real(lambda node, x: single(1) / (single(1) + np.exp(-x))),
    "TANH": _by_real(lambda node, x: np.tanh(x)),
}
"""LiteRT is the judge here, for TFLite Micro knows no unsigned numbers."""


def _table(node: Node) -> Array:
    """The outputs of all numbers that the type has, from the smallest on."""
    dtype = node.input(0).dtype
    require_types(dtype, (node.output,))
    info = np.iinfo(dtype.numpy)
    function = (_U8 if _is_unsigned(node) else _S8)[node.op.kind]
    return np.clip(function(node, np.arange(info.min, info.max + 1)), info.min, info.max).astype(dtype.numpy)


def _lookup(node: Node, data: Array) -> Array:
    found: Array = _table(node)[data.astype(np.int64) - np.iinfo(data.dtype).min]
    return found


def _lookup_call(node: Node, table: Array) -> CCall:
    fields = {"shape": c_elementwise(node), "table": CTable("table", table)}
    return kernel_call(f"lookup_{SUFFIXES[node.input(0).dtype]}", fields, (node.input(0), node.output))


def _computed_s16(node: Node, data: Array) -> Array:
    result = _S8[node.op.kind](node, data.astype(np.int64))
    return np.clip(result, -(2**15), 2**15 - 1).astype(np.int16)


def _clamped_s16_call(node: Node) -> CCall:
    require_types(DType.INT16, (node.output,))
    return _requantize_call(node, _clamp_requantisation(node))


def _two_sided_s16_call(node: Node) -> CCall:
    """LEAKY_RELU and ABS: one factor for numbers below zero, another for the others."""
    require_types(DType.INT16, (node.output,))
    is_abs = node.op.kind == "ABS"
    slope = _unit(node) if is_abs else _leaky_slope(node)
    fields = {
        "shape": c_elementwise(node),
        "zero_point": zero_point_of(node.input(0)),
        "sign": -1 if is_abs or slope < 0 else 1,
        "above": Requantisation.of([_unit(node)], node.output).c_struct(),
        "below": Requantisation.of([abs(slope)], node.output).c_struct(),
    }
    return kernel_call("two_sided_s16", fields, (node.input(0), node.output))


def _sigmoid_scaling(node: Node) -> tuple[int, int]:
    """A multiplier and a right shift: from inputs to places in the table. Scales that are the right power of two need
    no rounding."""
    _require_output(node)
    if zero_point_of(node.input(0)):
        raise Unsupported("16-bit inputs with a zero point other than 0; TensorFlow Lite refuses it too")
    scale = scale_of(node.input(0))
    power = round(math.log2(scale))
    exact_shift = 12 + power
    if abs(math.log2(scale) - power) < 1e-3 and exact_shift in ((0,) if node.op.kind == "LOGISTIC" else (0, 1)):
        return 3 << exact_shift, 0
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    if multiplier > 32767:
        raise Unsupported("an input scale too large for its arithmetic; TensorFlow Lite refuses it too")
    return int(multiplier), shift


def _sigmoid_s16(node: Node, data: Array) -> Array:
    multiplier, shift = _sigmoid_scaling(node)
    place = (data.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift
    return (fixed_point.sigmoid_16 if node.op.kind == "LOGISTIC" else fixed_point.tanh_16)(place).astype(np.int16)


def _sigmoid_s16_call(node: Node) -> CCall:
    require_types(DType.INT16, (node.output,))
    multiplier, shift = _sigmoid_scaling(node)
    table = CTable("sigmoid", fixed_point.sigmoid_table().astype(np.uint16))
    fields = {"shape": c_elementwise(node), "multiplier": multiplier, "shift": shift, "table": table}
    return kernel_call("sigmoid_s16", fields, (node.input(0), node.output), function=f"{node.op.kind.lower()}_s16")


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
    **_MATH,
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
    tensors = node.input(0), node.output
    return kernel_call("elementwise_unary_f32", fields, tensors, function=f"{name}_f32", struct="unary_f32")


_S16 = {
    **dict.fromkeys(CLAMPS, Way(_computed_s16, _clamped_s16_call)),
    **dict.fromkeys(("LEAKY_RELU", "ABS"), Way(_computed_s16, _two_sided_s16_call)),
    **dict.fromkeys(("LOGISTIC", "TANH"), Way(_sigmoid_s16, _sigmoid_s16_call)),
}

_CONVERSIONS = {
    "CAST": Way(_cast, _cast_call),
    "QUANTIZE": Way(_quantize, _quantize_call),
    "DEQUANTIZE": Way(_dequantize, _dequantize_call),
}

_IN_FLOAT32 = {
    **dict.fromkeys((*_REAL, *CLAMPS, "LEAKY_RELU", "GELU"), Way(_real, _call_f32)),
    **dict.fromkeys(_MATH, Way(_real, _math_call)),
}


KIND = UnaryKind()
