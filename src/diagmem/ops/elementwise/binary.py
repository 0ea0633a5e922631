"""Operations on two or more tensors, element by element, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node
from diagmem.model.schedule import Cut
from diagmem.ops.c_call import (
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CPointers,
    CStruct,
    Fields,
    Unsupported,
    by_type,
    kernel_call,
    require_types,
)
from diagmem.ops.elementwise import _rounded_once
from diagmem.ops.kind import Array, Inputs, Shapes, Values, Way, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast, outer_cut
from diagmem.ops.numerics import fixed_point, single_precision
from diagmem.ops.numerics.fixed_point import INT32_MAX, INT32_MIN, Ints, Multiplier, rescale, wrapped
from diagmem.ops.numerics.quantised import (
    Requantisation,
    real_range,
    require_same_quantisation,
    rounds_to_even,
    scale_of,
    zero_point_of,
)
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import MANY, Signature


@dataclass(frozen=True, slots=True)
class Binary:
    """MAXIMUM, MINIMUM and SQUARED_DIFFERENCE have no activation."""

    activation: Activation = Activation.NONE


class BinaryKind(BroadcastKind):
    names = ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
    clamps = ("ADD", "SUB", "MUL", "DIV")
    monotone = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")
    table = {
        **dict.fromkeys(clamps, Table(Binary, ("FusedActivationFunction",))),
        **dict.fromkeys(("MAXIMUM", "MINIMUM"), Table(Binary, name="MaximumMinimumOptions")),
        "SQUARED_DIFFERENCE": Table(Binary),
    }
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,))

    def ways(self, name: str) -> dict[DType, Way]:
        return _WAYS[name]

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        """ADD and MUL on 8-bit integers, in the order of the kernels in plain C. With Helium four elements are read
        before they are written, which is no nearer than one by one."""
        call = _VARIANTS[instructions].get(node.op.kind)
        is_8_bit = all(t.dtype is DType.INT8 for t in (*node.inputs, *node.outputs) if t)
        if call is not None and rounds_to_even(node.output):
            call = _rounded_once.mve_call if instructions is InstructionSet.MVE else None
        return (Variant(Order.REFERENCE, Order.REFERENCE, call),) if is_8_bit and call is not None else ()

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return outer_cut(node, c_broadcast)


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
        return single_precision.clamped(result, *_range(node))


def _range(node: Node) -> tuple[float, float]:
    has_activation = node.op.kind in BinaryKind.clamps
    return real_range(node.attributes.activation if has_activation else Activation.UNLIMITED)


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1), node.output))
    low, high = _range(node)
    return binary_call(node, "binary_f32", {"low": low, "high": high}, "f32")


QUANTISED = (DType.INT8, DType.INT16)
UNSIGNED = (DType.UINT8,)

_SUM_BITS = {DType.INT8: 20, DType.UINT8: 20, DType.INT16: 15}
_SQUARE_BITS = {DType.INT8: 7, DType.INT16: 0}
"""Bits behind the point that the inputs get before they are added, or their difference is squared."""


def binary_call(node: Node, parameters: str, fields: Fields, suffix: str = "int") -> CCall:
    """The call of the kernel for the kind and the type of its first input."""
    require_types(node.output.dtype, (node.input(0), node.input(1)))
    function = f"{node.op.kind.lower()}_{SUFFIXES[node.output.dtype]}"
    tensors = node.input(0), node.input(1), node.output
    own, stem = {"shape": c_broadcast(node), **fields}, f"elementwise_binary_{suffix}"
    return kernel_call(stem, own, tensors, function=function, struct=parameters)


@dataclass(frozen=True, slots=True)
class Sum:
    """Both inputs to one scale, with `left_shift` bits behind the point, and from there to the output."""

    left_shift: int
    inputs: tuple[Multiplier, Multiplier]
    output: Requantisation

    def terms(self, node: Node, *values: Array) -> list[Ints]:
        return [
            rescale((x.astype(np.int64) - zero_point_of(node.input(i))) << self.left_shift, *self.inputs[i])
            for i, x in enumerate(values)
        ]


@np.errstate(over="ignore")
def sum_of(node: Node) -> Sum:
    first, second, out = (scale_of(t) for t in (node.input(0), node.input(1), node.output))
    common = 2 * max(first, second)
    is_square = node.op.kind == "SQUARED_DIFFERENCE"
    left_shift = (_SQUARE_BITS if is_square else _SUM_BITS)[node.output.dtype]
    unit = common * common / (out * 4**left_shift) if is_square else common / (out * 2**left_shift)
    if unit >= 1 and not is_square:
        raise Unsupported("an output scale that is far smaller than the inputs'; TensorFlow Lite refuses it too")
    inputs = Multiplier.of(first / common), Multiplier.of(second / common)
    return Sum(left_shift, inputs, Requantisation.of([unit], node.output, node.attributes.activation))


def sum_or_difference(node: Node, first: Array, second: Array) -> Array:
    way = sum_of(node)
    x, y = way.terms(node, first, second)
    total = {"ADD": x + y, "SUB": x - y, "SQUARED_DIFFERENCE": (x - y) ** 2}[node.op.kind]
    return way.output.apply(total).astype(first.dtype)


def sum_call(node: Node) -> CCall:
    way = sum_of(node)
    fields = {"left_shift": way.left_shift, **_addends(node, way, "diagmem_addend"), "output": way.output.c_struct()}
    return binary_call(node, "sum", fields)


def _addends(node: Node, way: Sum, struct: str) -> dict[str, CStruct]:
    numbers = zip(("first", "second"), map(zero_point_of, (node.input(0), node.input(1))), way.inputs, strict=True)
    return {name: CStruct(struct, {"zero_point": zero, "mantissa": m, "shift": s}) for name, zero, (m, s) in numbers}


def product_requantisation(node: Node) -> Requantisation:
    """The scales of unsigned numbers are multiplied in float32."""
    first, second, out = (scale_of(t) for t in (node.input(0), node.input(1), node.output))
    real = first * second / out
    if node.output.dtype is DType.UINT8:
        real = float(np.float32(first) * np.float32(second) / np.float32(out))
    return Requantisation.of([real], node.output, node.attributes.activation)


def product(node: Node, first: Array, second: Array) -> Array:
    centred = (x.astype(np.int64) - zero_point_of(node.input(i)) for i, x in enumerate((first, second)))
    return product_requantisation(node).apply(math.prod(centred)).astype(first.dtype)


def product_call(node: Node) -> CCall:
    """Of a product or a quotient."""
    output = quotient_requantisation(node) if node.op.kind == "DIV" else product_requantisation(node)
    return binary_call(node, "product", {**_zero_points(node), "output": output.c_struct()})


def _zero_points(node: Node) -> dict[str, int]:
    return {"first_zero_point": zero_point_of(node.input(0)), "second_zero_point": zero_point_of(node.input(1))}


@np.errstate(over="ignore")
def quotient_requantisation(node: Node) -> Requantisation:
    """TFLite Micro as built divides scales in float64, LiteRT in float32."""
    real = scale_of(node.input(0)) / (scale_of(node.input(1)) * scale_of(node.output))
    return Requantisation.of([real], node.output, node.attributes.activation)


def quotient(node: Node, first: Array, second: Array) -> Array:
    """The reciprocal of the divisor with 31 bits, times the dividend with all bits that there are. TFLite leaves open
    what is divided by 0: here it becomes the largest number of its sign. Small quotients become 0, where TFLite shifts
    by more than 31 bits, of which processors make what they like."""
    to = quotient_requantisation(node)
    x, y = (v.astype(np.int64) - zero_point_of(node.input(i)) for i, v in enumerate((first, second)))
    x, y = np.broadcast_arrays(np.where(y < 0, -x, x), np.abs(y))
    inverse, inverse_bits = fixed_point.reciprocal(np.where(y == 0, 1, y), 31)
    headroom = 31 - fixed_point.bit_lengths(np.where(x < 0, -x - 1, x))
    scaled = fixed_point.high_mul(fixed_point.high_mul(x << headroom, inverse), to.mantissas)
    shifted = fixed_point.rounding_shift(scaled, np.clip(inverse_bits + headroom - to.shifts, 0, _MOST_SHIFT))
    result = wrapped(shifted + to.zero_point)
    beyond = np.sign(x) * 2**31
    return np.clip(np.where(y == 0, beyond, result), to.low, to.high).astype(first.dtype)


_MOST_SHIFT = 62
"""Nothing is left of any number."""


def _truncated(x: Ints, y: Ints) -> Ints:
    """x / y towards 0; a division by 0 gives 0."""
    divisor = np.where(y == 0, 1, y)
    whole = x // divisor
    return np.where(y == 0, 0, whole + ((whole < 0) & (whole * divisor != x)))


_ON_INTEGERS: Mapping[str, Callable[[Ints, Ints], Ints]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": _truncated,
    "SQUARED_DIFFERENCE": lambda x, y: wrapped(x - y) ** 2,
}


def plain(node: Node, first: Array, second: Array) -> Array:
    """Without scales; what does not fit into 32 or 64 bits wraps around."""
    if node.op.kind in ("MAXIMUM", "MINIMUM"):
        largest: Array = (np.maximum if node.op.kind == "MAXIMUM" else np.minimum)(first, second)
        return largest
    with np.errstate(over="ignore"):
        exact = _ON_INTEGERS[node.op.kind](first.astype(np.int64), second.astype(np.int64))
    low, high = real_range(node.attributes.activation)
    found = (exact if node.output.dtype is DType.INT64 else wrapped(exact)).astype(first.dtype)
    found = found if low < INT32_MIN else np.maximum(found, first.dtype.type(low))
    return found if high > INT32_MAX else np.minimum(found, first.dtype.type(high))


def plain_call(node: Node) -> CCall:
    require_same_quantisation((node.input(0), node.input(1), node.output))
    low, high = real_range(node.attributes.activation)
    fields = {"low": int(max(INT32_MIN, low)), "high": int(min(INT32_MAX, high))}
    is_wide = node.output.dtype is DType.INT64
    return binary_call(node, "plain_s64", fields, "s64") if is_wide else binary_call(node, "plain", fields)


HALF = Multiplier.of(0.5)
"""What one of the addends of every ADD is multiplied by: that of the larger scale."""

MOST = 2**30
"""Sums of two numbers below that fit into 32 bits."""


def _packed_add(node: Node) -> CCall:
    """Addition does not care which input is scaled. Numbers that do not fit go to the kernel in plain C."""
    way = sum_of(node)
    output = _c_output(way.output)
    if HALF not in way.inputs or output is None:
        return sum_call(node)
    plain = 1 if way.inputs[1] == HALF else 0
    (mantissa, shift), zero_point = way.inputs[1 - plain], zero_point_of(node.input(1 - plain))
    addend = ((1 << -shift) >> 1) - (zero_point_of(node.input(plain)) << (19 - shift))
    if abs(addend) >= MOST or way.left_shift != 20:
        return sum_call(node)
    scaled = {
        "offset": zero_point << 21,
        "mantissa": mantissa,
        "addend": addend,
        "sign": -1 if shift < 0 else 0,
        "shift": -shift,
    }
    order = node if plain == 1 else replace(node, inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))
    fields = {"scaled": CStruct("diagmem_scaled_addend", scaled), "output": output}
    return _variant_call(order, "packed", fields)


def _packed_mul(node: Node) -> CCall:
    output = _c_output(product_requantisation(node))
    if output is None:
        return product_call(node)
    return _variant_call(node, "packed", {**_zero_points(node), "output": output})


def _variant_call(node: Node, how: str, fields: Fields) -> CCall:
    """`how`: packed or mve."""
    name, tensors = f"{node.op.kind.lower()}_{how}_s8", (node.input(0), node.input(1), node.output)
    own, stem = {"shape": c_broadcast(node), **fields}, f"elementwise_binary_{how}_s8"
    return kernel_call(stem, own, tensors, function=name, struct=name)


def _c_output(output: Requantisation) -> CStruct | None:
    """None unless one rounding follows another, and all fits."""
    (mantissa,), (shift,) = output.mantissas.tolist(), output.shifts.tolist()
    if shift >= 0 or (output.low, output.high) != (-128, 127):
        return None
    addend = (1 << (-shift - 1)) + (output.zero_point << -shift)
    if abs(addend) >= MOST:
        return None
    fields = {"mantissa": mantissa, "addend": addend, "shift": -shift}
    return CStruct("diagmem_packed_output", fields)


def _mve_add(node: Node) -> CCall:
    """Multipliers of 1 and more go to the kernel in plain C."""
    way = sum_of(node)
    if max(int(way.output.shifts[0]), *(multiplier.shift for multiplier in way.inputs)) > 0:
        return sum_call(node)
    addends = _addends(node, way, "diagmem_mve_addend")
    return _variant_call(node, "mve", {**addends, "output": way.output.c_struct()})


def _mve_mul(node: Node) -> CCall:
    output = product_requantisation(node)
    if int(output.shifts[0]) > 0:
        return product_call(node)
    return _variant_call(node, "mve", {**_zero_points(node), "output": output.c_struct()})


_VARIANTS: Mapping[InstructionSet, Mapping[str, Callable[[Node], CCall]]] = {
    InstructionSet.DSP: {"ADD": _packed_add, "MUL": _packed_mul},
    InstructionSet.MVE: {"ADD": _mve_add, "MUL": _mve_mul},
}


def _by_rounding(way: Way) -> Way:
    """As TensorFlow Lite has it, or as onnxruntime."""

    def chosen(node: Node) -> Way:
        return _rounded_once.WAY if rounds_to_even(node.output) else way

    return Way(lambda node, *values: chosen(node).reference(node, *values), lambda node: chosen(node).call(node))


_F32 = {DType.FLOAT32: Way(_real, _call_f32)}
_PLAIN = Way(plain, plain_call)
_SUM = Way(sum_or_difference, sum_call)
_WITHOUT_SCALES = {DType.INT32: _PLAIN, **_F32, DType.INT64: _PLAIN}
_EXTREME = {**dict.fromkeys((*QUANTISED, *UNSIGNED, DType.INT32, DType.INT64), _PLAIN), **_F32}
_ADDITIVE = {**dict.fromkeys((*QUANTISED, *UNSIGNED), _SUM), **_WITHOUT_SCALES}

_WAYS = {
    "ADD": {**_ADDITIVE, DType.INT8: _by_rounding(_SUM)},
    "SUB": _ADDITIVE,
    "MUL": {
        **dict.fromkeys((*QUANTISED, *UNSIGNED), Way(product, product_call)),
        **_WITHOUT_SCALES,
        DType.INT8: _by_rounding(Way(product, product_call)),
    },
    "DIV": {DType.INT8: Way(quotient, product_call), **_WITHOUT_SCALES},
    "MAXIMUM": _EXTREME,
    "MINIMUM": _EXTREME,
    "SQUARED_DIFFERENCE": {**dict.fromkeys(QUANTISED, _SUM), DType.INT32: _PLAIN, **_F32},
}


class PreluKind(BroadcastKind):
    """Inputs: data, slopes, which are repeated to match the data."""

    names = ("PRELU",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2))

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        data, slopes = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if broadcast_shape(data, slopes) != data:
            raise ModelError(f"slopes {list(slopes)} cannot be repeated to match {list(data)}; the file is damaged")
        return (data,)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, slopes = inputs
        if node.output.dtype is DType.FLOAT32:
            return (np.where(data >= 0, data, data * slopes).reshape(data.shape),)
        above, below = _prelu_requantisations(node)
        value = data.astype(np.int64) - zero_point_of(node.input(0))
        slope = slopes.astype(np.int64) - zero_point_of(node.input(1))
        found = np.where(value >= 0, above.apply(value), below.apply(value * slope))
        return (found.astype(data.dtype).reshape(data.shape),)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, {**dict.fromkeys(QUANTISED_OR_FLOAT, _prelu_call_int), DType.FLOAT32: _prelu_call_f32})


def _prelu_requantisations(node: Node) -> tuple[Requantisation, Requantisation]:
    """Of elements above zero, and of the others times their slope. Scales of unsigned numbers are taken as
    float32."""
    number = np.float32 if node.output.dtype is DType.UINT8 else np.float64
    data, slope, out = (number(scale_of(t)) for t in (node.input(0), node.input(1), node.output))
    unit, sloped = float(data / out), float(data * slope / out)
    return Requantisation.of([unit], node.output), Requantisation.of([sloped], node.output)


def _prelu_call(node: Node, struct: str, fields: Fields) -> CCall:
    require_types(node.input(0).dtype, (node.output,))
    own, tensors = {"shape": c_broadcast(node), **fields}, (node.input(0), node.input(1), node.output)
    return kernel_call("prelu", own, tensors, function=f"prelu_{SUFFIXES[node.output.dtype]}", struct=struct)


def _prelu_call_int(node: Node) -> CCall:
    require_types(DType.UINT8 if node.output.dtype is DType.UINT8 else DType.INT8, (node.input(1),))
    above, below = _prelu_requantisations(node)
    fields = {
        "zero_point": zero_point_of(node.input(0)),
        "slope_zero_point": zero_point_of(node.input(1)),
        "above": above.c_struct(),
        "below": below.c_struct(),
    }
    return _prelu_call(node, "prelu", fields)


def _prelu_call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1),))
    return _prelu_call(node, "prelu_f32", {})


class FloorDivKind(BroadcastKind):
    names = ("FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2")
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        floored = _floored if node.output.dtype is DType.FLOAT32 else _floored_int
        return (np.reshape(floored(node.op.kind, *inputs), node.output.shape).astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(node.output.dtype, tensors)
        if node.output.dtype not in _floor_div_types(node.op.kind):
            raise Unsupported(f"{node.output.dtype.value} elements; supported: float32, of divisions also int32, int64")
        function = f"{node.op.kind.lower()}_{SUFFIXES[node.output.dtype]}"
        return kernel_call("floor_div", {"shape": c_broadcast(node)}, tensors, function=function)


_IN_DOUBLE: Mapping[str, Callable[[Array, Array], Array]] = {"POW": np.power, "ATAN2": np.arctan2}


def _floor_div_types(kind: str) -> tuple[DType, ...]:
    return (DType.FLOAT32,) if kind in _IN_DOUBLE else (DType.FLOAT32, DType.INT32, DType.INT64)


def _floored(kind: str, first: Array, second: Array) -> Array:
    with np.errstate(all="ignore"):
        if kind in _IN_DOUBLE:
            made: Array = _IN_DOUBLE[kind](first.astype(np.float64), second.astype(np.float64))
            return made
        if kind == "FLOOR_DIV":
            return np.floor(first / second)
        rest = np.fmod(first, second)
        found: Array = np.where((rest != 0) & ((second < 0) != (rest < 0)), rest + second, rest)
    return found


def _floored_int(kind: str, first: Array, second: Array) -> Array:
    """A division by 0 gives 0."""
    divisor = np.where(second == 0, 1, second).astype(np.int64)
    with np.errstate(over="ignore"):
        found = (np.floor_divide if kind == "FLOOR_DIV" else np.remainder)(first.astype(np.int64), divisor)
    return np.where(second == 0, 0, found)


_ADD_N_LEFT_SHIFT = 20
"""Bits behind the point that the inputs get before they are added."""


class AddNKind(BroadcastKind):
    names = ("ADD_N",)
    tflm_agrees = True
    is_pointwise = True
    takes_pitches = False
    takes = Signature((1, MANY), all_alike=True)

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        shapes = [input_at(inputs, position).shape for position in range(len(inputs))]
        if len(set(shapes)) != 1:
            raise ModelError(f"tensors of shapes {[list(s) for s in shapes]} cannot be added; the file is damaged")
        return (shapes[0],)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if node.output.dtype is DType.FLOAT32:
            return (np.reshape(sum(inputs, np.zeros(node.output.shape, np.float32)), node.output.shape),)
        half, zero_point = Multiplier.of(0.5), zero_point_of(node.input(0))
        # TFLite Micro starts from a stored 0, which stands for minus the zero point.
        scaled = rescale(np.full(node.output.shape, -zero_point) << _ADD_N_LEFT_SHIFT, *half)
        for values in inputs:
            scaled = scaled + rescale((values.astype(np.int64) - zero_point) << _ADD_N_LEFT_SHIFT, *half)
        return (np.reshape(_add_n_output(node).apply(scaled), node.output.shape).astype(np.int8),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(p) for p in range(len(node.inputs))))
        return by_type(node, {DType.INT8: _add_n_call_s8, DType.FLOAT32: lambda n: _add_n_call(n, "f32", {})})


def _add_n_output(node: Node) -> Requantisation:
    real = 2 * scale_of(node.input(0)) / ((1 << _ADD_N_LEFT_SHIFT) * scale_of(node.output))
    if real >= 1:
        raise Unsupported("an output scale that is far smaller than the inputs'; TensorFlow Lite refuses it too")
    return Requantisation.of([real], node.output)


def _add_n_call_s8(node: Node) -> CCall:
    inputs = [node.input(p) for p in range(len(node.inputs))]
    require_same_quantisation(inputs)
    mantissa, shift = Multiplier.of(0.5)
    fields = {"zero_point": zero_point_of(inputs[0]), "mantissa": mantissa, "shift": shift}
    return _add_n_call(node, "s8", {**fields, "output": _add_n_output(node).c_struct()})


def _add_n_call(node: Node, suffix: str, fields: dict[str, object]) -> CCall:
    sizes = {"elems": node.output.elems, "count": len(node.inputs)}
    inputs, name = CPointers(tuple(node.input(p) for p in range(len(node.inputs)))), f"add_n_{suffix}"
    return kernel_call("add_n", {**sizes, **fields}, (inputs, node.output), function=name, struct=name)


KINDS = (BinaryKind(), PreluKind(), FloorDivKind(), AddNKind())
