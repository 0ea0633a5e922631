"""Arithmetic: activations and other functions of each element; sums, extremes and normalisations over axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import (
    Constant,
    Dims,
    Shuffled,
    Stored,
    Value,
    is_integer,
    like,
    number,
    stored_as,
)
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts, composed
from diagmem.frontends.onnx.lowering.moving import given_axes, placed
from diagmem.frontends.onnx.proto import TYPES, OnnxNode
from diagmem.model.errors import damaged
from diagmem.model.graph import DType, Shape, Tensor
from diagmem.ops import Activation, kind_of
from diagmem.ops.elementwise.unary import CUSTOM_MATH, Unary
from diagmem.ops.options import CUSTOM
from diagmem.ops.reductions.reduce import ArgMax, CumSum, Reduce

RANGES = {(0.0, math.inf): Activation.RELU, (0.0, 6.0): Activation.RELU6, (-1.0, 1.0): Activation.RELU_N1_TO_1}


def fused(im: Importer, name: str, value: Stored) -> None:
    """Binds what an operation made; an activation that alone reads it becomes part of the operation."""
    behind = im.next_only(name, ["Relu", "Clip"])
    op = im.build.ops[-1]
    limits = None if behind is None else limits_of(im, behind)
    activation = None if limits is None else RANGES.get(limits)
    kind = kind_of(op.kind)
    can_clamp = kind is not None and op.kind in kind.clamps and value.tensor.index in op.outputs
    if behind is None or activation is None or not can_clamp:
        im.bind(name, value)
        return
    activation = activation.unlimited if value.dtype is DType.FLOAT32 else activation
    im.build.ops[-1] = replace(op, attributes=replace(op.attributes, activation=activation))
    im.done.add(behind.number)
    tensor = im.build.rename(value.tensor, behind.outputs[0])
    im.bind(behind.outputs[0], replace(value, tensor=tensor))


def limits_of(im: Importer, node: OnnxNode) -> tuple[float, float] | None:
    """What a Relu or Clip clamps to, integers exactly; None where that is not known yet."""
    if node.kind == "Relu":
        return 0.0, math.inf
    found = []
    for place, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        given = node.inputs[place] if place < len(node.inputs) else ""
        value = im.values.get(given) if given else Constant(np.array(im.attribute(node, name, default)))
        if not isinstance(value, Constant) or value.array.size != 1:
            return None
        found.append(value.array.reshape(-1)[0].item())
    # The largest number stands for none, as exporters of old opsets write it.
    largest = float(np.finfo(np.float32).max)
    return found[0] if found[0] > -largest else -math.inf, found[1] if found[1] < largest else math.inf


def activation(im: Importer, node: OnnxNode) -> Value:
    limits = limits_of(im, node)
    if limits is None:
        raise im.refuse(node, "its limits must be constant")
    value = im.input(node)
    if limits in RANGES and not is_integer(value):
        return unary(im, node, RANGES[limits].name)
    for kind, limit in zip(("MAXIMUM", "MINIMUM"), limits, strict=True):
        value = binary_of(im, kind, value, like(value, limit), node.outputs[0]) if math.isfinite(limit) else value
    return value


def unary(im: Importer, node: OnnxNode, kind: str, attributes: Any = None) -> Value:
    if kind == "GELU":
        attributes = Unary(approximate=im.attribute(node, "approximate", "none") == "tanh")
    return unary_of(im, kind, im.input(node), attributes, node.outputs[0])


def unary_of(
    im: Importer, kind: str, value: Value, attributes: Any = None, name: str = "", dtype: DType | None = None
) -> Value:
    """A function of each element."""

    def change(source: Stored) -> Stored:
        source = im.build.float32(source)
        return replace(source, tensor=im.build.make(kind, [source.tensor], attributes, name=name, dtype=dtype))

    return im.build.by_elements(value, change)


def binary_of(
    im: Importer, kind: str, first: Value, second: Value, name: str = "", dtype: DType | None = None
) -> Stored:
    """An operation on two tensors that are broadcast to a common shape."""
    operands = broadcast_operands(im, (first, second))
    return operands.result(im.build.make(kind, operands.tensors, name=name, dtype=dtype))


@dataclass(frozen=True, slots=True)
class Operands:
    """Tensors with their axes in the same places, and how their result is stored."""

    tensors: list[Tensor]
    dims: Dims
    shape: Shape

    def result(self, tensor: Tensor) -> Stored:
        return Stored(tensor, stored_as(self.shape, self.dims), self.shape)


def broadcast_operands(im: Importer, values: Sequence[Value], as_stored: bool = False) -> Operands:
    """Operands broadcast to a common shape."""
    try:
        shape = np.broadcast_shapes(*(value.shape for value in values))
    except ValueError:
        shapes = " and ".join(str(list(value.shape)) for value in values)
        raise damaged(f"{im.build.about}: shapes {shapes} cannot be broadcast to a common one") from None
    plain = [im.build.unshuffled(value) if isinstance(value, Shuffled) else value for value in values]
    dims = _common(shape, plain)
    return Operands([_operand(im, value, shape, dims, as_stored) for value in plain], dims, shape)


def _common(shape: Shape, values: Sequence[Constant | Stored]) -> Dims:
    """How the result is stored: as the operand that has all its axes, else in the file's order."""
    wanted = {axis for axis, size in enumerate(shape) if size > 1}
    for value in values:
        if isinstance(value, Stored):
            ahead = len(shape) - len(value.shape)
            dims = tuple(None if axis is None else axis + ahead for axis in value.dims)
            if {axis for axis in dims if axis is not None} == wanted:
                return dims
    return tuple(range(len(shape)))


def _operand(im: Importer, value: Constant | Stored, shape: Shape, dims: Dims, as_stored: bool) -> Tensor:
    """An operand with its axes where those of the result are."""
    ahead = len(shape) - len(value.shape)
    own = tuple(None if axis is None or axis < ahead else axis - ahead for axis in dims)
    if isinstance(value, Constant) and value.array.size == 1:
        return im.build.constant(value.array.reshape(()))
    return im.build.form(value, own, as_stored)


def binary(im: Importer, node: OnnxNode, kind: str, dtype: DType | None = None) -> None:
    name = node.outputs[0]
    fused(im, name, binary_of(im, kind, im.input(node, 0), im.input(node, 1), name, dtype))


def power(im: Importer, node: OnnxNode) -> Value:
    """A square or a root where the exponent says so."""
    both = base, exponent = im.input(node, 0), im.input(node, 1)
    real = float(exponent.array.reshape(-1)[0]) if isinstance(exponent, Constant) and exponent.array.size == 1 else None
    if is_integer(base):
        if real not in (2, 3, 4):
            raise im.refuse(node, "powers of integers need 2, 3 or 4 as their exponent")
        made = base
        for _ in range(int(real or 0) - 1):
            made = binary_of(im, "MUL", made, base, node.outputs[0])
        return made
    if real in _ROOTS:
        return unary(im, node, _ROOTS[real])
    base, exponent = (Constant(v.array.astype(np.float32)) if isinstance(v, Constant) else v for v in both)
    return binary_of(im, "POW", base, exponent, node.outputs[0])


_ROOTS: Mapping[float | None, str] = {2.0: "SQUARE", 0.5: "SQRT", -0.5: "RSQRT"}


def square(im: Importer, value: Value, name: str = "") -> Value:
    return binary_of(im, "MUL", value, value, name) if is_integer(value) else unary_of(im, "SQUARE", value, name=name)


def several(im: Importer, node: OnnxNode, kind: str) -> Value:
    """Sum, Max, Min of any number of tensors."""
    made = im.input(node, 0)
    for place in range(1, len(node.inputs)):
        made = binary_of(im, kind, made, im.input(node, place), node.outputs[0])
    if node.kind == "Mean":
        made = binary_of(im, "MUL", made, number(1 / len(node.inputs)), node.outputs[0])
    return made


def slope_of(im: Importer, node: OnnxNode) -> Unary:
    """Of a LeakyRelu."""
    return Unary(alpha=float(np.float32(im.attribute(node, "alpha", 0.01))))


def modulo(im: Importer, node: OnnxNode) -> Value | None:
    """The rest has the sign of the divisor; with `fmod`, that of the dividend."""
    first, second = im.input(node, 0), im.input(node, 1)
    if not im.attribute(node, "fmod", 0):
        return binary_of(im, "FLOOR_MOD", first, second, node.outputs[0])
    parts, (x, y) = Parts(im, node), node.inputs
    if is_integer(first):
        parts.end("Sub", x, parts("Mul", parts("Div", x, y), y))
    else:
        parts.end("Mul", parts("Sign", x), parts("Mod", parts("Abs", x), parts("Abs", y)))
    return None


def where(im: Importer, node: OnnxNode) -> Value:
    values = [im.input(node, place) for place in range(3)]
    dtype = next((v.dtype for v in values[1:] if not isinstance(v, Constant)), DType.FLOAT32)
    operands = broadcast_operands(im, values)
    return operands.result(im.build.make("SELECT_V2", operands.tensors, name=node.outputs[0], dtype=dtype))


def cast(im: Importer, node: OnnxNode) -> Value:
    number = im.attribute(node, "to")
    im.attribute(node, "saturate", 1)
    dtype = DType(TYPES[number]) if TYPES.get(number) in {d.value for d in DType} else None
    value = im.stored(node)
    if dtype is None:
        raise im.refuse(node, f"element type {number} is not supported")
    return value if dtype is value.dtype else unary_of(im, "CAST", value, name=node.outputs[0], dtype=dtype)


def identity(im: Importer, node: OnnxNode) -> Value:
    """Identity, and Dropout, which does nothing at inference."""
    for name in ("ratio", "seed", "is_test"):
        im.attribute(node, name, None)
    if len(node.outputs) > 1 and im.uses[node.outputs[1]]:
        raise im.refuse(node, "its second output is not supported")
    return im.input(node)


ERF = (0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
"""Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most."""


def erf(parts: Parts, x: str) -> None:
    """sign(x) * (1 - p(t) * exp(-x * x)) with t = 1 / (1 + c * |x|)."""
    slope, factors = ERF
    t = parts("Reciprocal", parts("Add", parts("Mul", parts("Abs", x), slope), 1.0))
    sum_ = parts("Mul", t, factors[0])
    for factor in factors[1:]:
        sum_ = parts("Mul", parts("Add", sum_, factor), t)
    below = parts("Mul", sum_, parts("Exp", parts("Neg", parts("Mul", x, x))))
    parts.end("Mul", parts("Sign", x), parts("Sub", 1.0, below))


def elu(im: Importer, node: OnnxNode) -> Value | None:
    """Elu, Selu and Celu: straight above zero, an exponential below."""
    defaults = {"Elu": 1.0, "Selu": 1.67326319217681884765625, "Celu": 1.0}
    alpha = float(np.float32(im.attribute(node, "alpha", defaults[node.kind])))
    gamma = float(np.float32(im.attribute(node, "gamma", 1.05070102214813232421875 if node.kind == "Selu" else 1.0)))
    if alpha == gamma == 1.0:
        return unary_of(im, "ELU", im.input(node), None, node.outputs[0])
    parts, x = Parts(im, node), node.inputs[0]
    low = parts("Min", x, 0.0)
    bent = parts("Elu", parts("Div", low, alpha) if node.kind == "Celu" else low)
    both = (parts("Relu", x), parts("Mul", bent, alpha))
    if gamma == 1.0:
        parts.end("Add", *both)
    else:
        parts.end("Mul", parts("Add", *both), gamma)
    return None


def hard_sigmoid(parts: Parts, x: str) -> None:
    line = parts("Add", parts("Mul", x, parts.attribute("alpha", 0.2)), parts.attribute("beta", 0.5))
    parts.end("Min", parts("Max", line, 0.0), 1.0)


def softplus(parts: Parts, x: str) -> None:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    low = parts("Log", parts("Add", parts("Exp", parts("Neg", parts("Abs", x))), 1.0))
    parts.end("Add", parts("Relu", x), low)


def swish(parts: Parts, x: str) -> None:
    alpha = float(parts.attribute("alpha", 1.702 if parts.node.kind == "QuickGelu" else 1.0))
    parts.end("Mul", x, parts("Sigmoid", x if alpha == 1.0 else parts("Mul", x, alpha)))


def biased_gelu(parts: Parts, x: str) -> None:
    """com.microsoft's BiasGelu and FastGelu."""
    if parts.im.given(parts.node, 1) is not None:
        x = parts("Add", x, parts.node.inputs[1])
    parts.end("Gelu", x, approximate="tanh" if parts.node.kind == "FastGelu" else "none")


def gelu_behind(im: Importer, node: OnnxNode) -> bool:
    """Whether x / sqrt(2), or x * sqrt(1 / 2), begins 0.5 * x * (1 + erf(x / sqrt(2))), in any order; then all of it
    becomes one operation."""
    x, root = _by_constant(im, node)
    wanted = math.sqrt(2) if node.kind == "Div" else math.sqrt(0.5)
    if x is None or not math.isclose(root, wanted, rel_tol=1e-5):
        return False
    middle = im.next_only(node.outputs[0], ["Erf"])
    plus = None if middle is None else im.next_only(middle.outputs[0], ["Add"])
    if middle is None or plus is None or _by_constant(im, plus)[1] != 1.0:
        return False
    end = _end_of_gelu(im, plus, x)
    value = im.values[x]
    if end is None or isinstance(value, Constant):
        return False
    im.done |= {middle.number, plus.number, *(each.number for each in end)}
    im.bind(end[-1].outputs[0], unary_of(im, "GELU", value, Unary(approximate=False), end[-1].outputs[0]))
    return True


def _end_of_gelu(im: Importer, plus: OnnxNode, x: str) -> list[OnnxNode] | None:
    """The products with x and 0.5 behind 1 + erf(...)."""
    left, name, found = {"x", "half"}, plus.outputs[0], []
    while left:
        product = im.next_only(name, ["Mul"])
        if product is None or product.inputs.count(name) != 1:
            return None
        other = next(each for each in product.inputs if each != name)
        if other == x and "x" in left:
            left.remove("x")
        elif _by_constant(im, product)[1] == 0.5 and "half" in left:
            left.remove("half")
        elif left == {"x", "half"} and _is_half(im, other, x):
            left.clear()
        else:
            return None
        found.append(product)
        name = product.outputs[0]
    return found


def _is_half(im: Importer, name: str, x: str) -> bool:
    maker = next((node for node in im.model.nodes if name in node.outputs), None)
    if maker is None or maker.kind not in ("Mul", "Div"):
        return False
    return _by_constant(im, maker) == (x, 0.5 if maker.kind == "Mul" else 2.0)


def _by_constant(im: Importer, node: OnnxNode) -> tuple[str | None, float]:
    """The operand that is not constant, and the number that the other one is; None where it is not one number."""
    for name, other in (node.inputs, node.inputs[::-1]):
        array = im.model.constants.get(other)
        value = im.values.get(other)
        known = value.array if isinstance(value, Constant) else array
        if known is not None and known.size == 1 and name != other and (node.kind != "Div" or other == node.inputs[1]):
            return name, float(known.reshape(-1)[0])
    return None, math.nan


def product(im: Importer, node: OnnxNode, kind: str) -> None:
    """A product or quotient, unless a GELU begins there."""
    if len(node.inputs) != 2 or not gelu_behind(im, node):
        binary(im, node, kind)


INT32, INT64 = 6, 7
"""Numbers of ONNX's element types."""


def reduce_of(im: Importer, kind: str, value: Stored, axes: Sequence[int], name: str = "") -> Stored:
    """A reduction that keeps the reduced axes."""
    places = [place for place, axis in enumerate(value.dims) if axis in axes]
    if not places:
        return value
    tensor = im.build.moved(kind, [value.tensor, im.build.ints(places, "axes")], Reduce(keep_dims=True), name)
    return value.became(tensor, tuple(1 if axis in axes else n for axis, n in enumerate(value.shape)))


def reduce(im: Importer, node: OnnxNode, kind: str) -> Value:
    value = im.stored(node, as_stored=node.kind in ("ReduceMax", "ReduceMin"))
    keeps = im.attribute(node, "keepdims", 1)
    axes = given_axes(im, node)
    if not axes:
        if im.attribute(node, "noop_with_empty_axes", 0):
            return value
        axes = list(range(len(value.shape)))
    im.attribute(node, "noop_with_empty_axes", 0)
    found = im.axes(node, axes, len(value.shape))
    name = node.outputs[0]
    first = {"ReduceSumSquare": "SQUARE", "ReduceL2": "SQUARE", "ReduceL1": "ABS"}.get(node.kind)
    if first is not None:
        value = im.build.in_ram(square(im, value) if first == "SQUARE" else unary_of(im, first, value))
    made: Value = reduce_of(im, kind, value, found, name)
    if node.kind == "ReduceL2":
        made = unary_of(im, "SQRT", made, name=name)
    shape = made.shape if keeps else tuple(n for axis, n in enumerate(made.shape) if axis not in found)
    return im.build.reshape(made, shape)


def arg_max(im: Importer, node: OnnxNode) -> Value | None:
    value = im.stored(node)
    axis = im.axis(node, im.attribute(node, "axis", 0), len(value.shape))
    keeps = im.attribute(node, "keepdims", 1)
    if im.attribute(node, "select_last_index", 0):
        _last_index(im, node, axis, value.shape[axis])
        return None
    value = placed(im, value, [axis])
    place = value.dims.index(axis)
    kind = "ARG_MAX" if node.kind == "ArgMax" else "ARG_MIN"
    inputs = [value.tensor, im.build.ints(place, "axis")]
    made = im.build.make(kind, inputs, ArgMax(DType.INT64), name=node.outputs[0], dtype=DType.INT64)
    shape = tuple(1 if a == axis else n for a, n in enumerate(value.shape))
    dims = tuple(a for p, a in enumerate(value.dims) if p != place)
    found = Stored(made, stored_as(shape, dims), shape)
    final = shape if keeps else tuple(n for a, n in enumerate(shape) if a != axis)
    return im.build.reshape(found, final)


def _last_index(im: Importer, node: OnnxNode, axis: int, size: int) -> None:
    """The first index in the reversed tensor, counted from its end."""
    parts, ends = Parts(im, node), [np.array([n]) for n in (-1, -size - 1, axis, -1)]
    behind = parts("Slice", node.inputs[0], *ends)
    from_end = parts(node.kind, behind, axis=axis, keepdims=im.attribute(node, "keepdims", 1))
    index = parts("Sub", np.array(size - 1, np.int32), parts("Cast", from_end, to=INT32))
    parts.end("Cast", index, to=INT64)


def softmax(im: Importer, node: OnnxNode, kind: str) -> Value:
    """Over one axis; up to opset 12 over all axes from the given one on."""
    value, name, is_one = im.stored(node), node.outputs[0], im.opset(node) >= 13
    axis = im.axis(node, im.attribute(node, "axis", -1 if is_one else 1), len(value.shape))
    if is_one or math.prod(value.shape[axis + 1 :]) == 1:
        return _softmax(im, value, axis, kind, name)
    flat = math.prod(value.shape[:axis]), math.prod(value.shape[axis:])
    matrix = im.build.in_ram(im.build.reshape(value, flat))
    return im.build.reshape(_softmax(im, matrix, 1, kind, name), value.shape)


def _softmax(im: Importer, value: Stored, axis: int, kind: str, name: str) -> Stored:
    value = last(im, value, [axis])
    return replace(value, tensor=im.build.make(kind, [value.tensor], name=name))


def last(im: Importer, value: Stored, axes: Sequence[int], as_stored: bool = False) -> Stored:
    """The value in a layout that ends with these axes, in this order."""
    if value.dims[-len(axes) :] == tuple(axes) and len(value.dims) > len(axes):
        return value
    rest: list[int | None] = [axis for axis in value.order if axis not in axes]
    dims = (*(rest or [None]), *axes)
    return replace(value, tensor=im.build.form(value, dims, as_stored), dims=dims)


def layer_normalisation(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node)
    axis = im.axis(node, im.attribute(node, "axis", -1), len(value.shape))
    im.attribute(node, "stash_type", 1)
    axes = range(axis, len(value.shape))
    mean, inverse, made = normalised(im, value, axes, im.attribute(node, "epsilon", 1e-5))
    for name, found in zip(node.outputs[1:], (mean, inverse), strict=False):
        im.bind(name, found)
    scaled, bias = binary_of(im, "MUL", made, im.input(node, 1), node.outputs[0]), im.given(node, 2)
    return scaled if bias is None else binary_of(im, "ADD", scaled, bias, node.outputs[0])


def normalised(im: Importer, value: Stored, axes: Sequence[int], epsilon: float) -> tuple[Stored, Value, Stored]:
    """The mean, 1 / deviation, and (value - mean) / deviation."""
    mean = reduce_of(im, "MEAN", value, axes)
    centred = binary_of(im, "SUB", value, mean)
    variance = reduce_of(im, "MEAN", im.build.in_ram(unary_of(im, "SQUARE", centred)), axes)
    inverse = unary_of(im, "RSQRT", binary_of(im, "ADD", variance, number(epsilon)))
    return mean, inverse, binary_of(im, "MUL", centred, inverse)


def instance_normalisation(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node)
    _, _, made = normalised(im, value, range(2, len(value.shape)), im.attribute(node, "epsilon", 1e-5))
    shape = (-1, *[1] * (len(value.shape) - 2))
    scale, bias = (Constant(im.array(node, place).reshape(shape).astype(np.float32)) for place in (1, 2))
    return binary_of(im, "ADD", binary_of(im, "MUL", made, scale), bias, node.outputs[0])


def running_sum(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node)
    axis = im.axis(node, int(im.array(node, 1).reshape(-1)[0]), len(value.shape))
    given = CumSum(bool(im.attribute(node, "exclusive", 0)), bool(im.attribute(node, "reverse", 0)))
    value = placed(im, value, [axis])
    inputs = [value.tensor, im.build.ints(value.dims.index(axis), "axis")]
    return value.became(im.build.make("CUMSUM", inputs, given, name=node.outputs[0]), value.shape)


def group_normalisation(im: Importer, node: OnnxNode) -> None:
    """Each group of channels by itself; scales are per channel, up to opset 20 per group."""
    shape, groups = im.input(node).shape, im.attribute(node, "num_groups")
    im.attribute(node, "stash_type", 1)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise im.damaged(node, f"{groups} groups do not fit {list(shape)}")
    parts = Parts(im, node)
    flat = parts("Reshape", node.inputs[0], np.array([shape[0], groups, -1], np.int64))
    ones, epsilon = np.ones(groups, np.float32), im.attribute(node, "epsilon", 1e-5)
    made = parts("InstanceNormalization", flat, ones, 0 * ones, epsilon=epsilon)
    whole = parts("Reshape", made, np.array(shape, np.int64))
    given = [im.array(node, place).reshape(-1).astype(np.float32) for place in (1, 2)]
    if any(not len(values) or shape[1] % len(values) for values in given):
        raise im.damaged(node, f"its parameters do not fit {list(shape)}")
    per_channel = (np.repeat(values, shape[1] // len(values)) for values in given)
    scale, bias = (values.reshape(-1, *[1] * (len(shape) - 2)) for values in per_channel)
    parts.end("Add", parts("Mul", whole, scale), bias)


def rms_normalisation(parts: Parts, x: str) -> None:
    rank = len(parts.im.values[x].shape)
    axis = parts.im.axis(parts.node, parts.attribute("axis", -1), rank)
    parts.attribute("stash_type", 1)
    mean = parts("ReduceMean", parts("Mul", x, x), np.arange(axis, rank))
    scaled = parts("Div", x, parts("Sqrt", parts("Add", mean, float(parts.attribute("epsilon", 1e-5)))))
    parts.end("Mul", scaled, parts.node.inputs[1])


def mean_variance_normalisation(parts: Parts, x: str) -> None:
    axes = np.array(parts.attribute("axes", [0, 2, 3]), np.int64)
    centred = parts("Sub", x, parts("ReduceMean", x, axes))
    deviation = parts("Sqrt", parts("ReduceMean", parts("Mul", centred, centred), axes))
    parts.end("Div", centred, parts("Add", deviation, 1e-9))


def lp_normalisation(parts: Parts, x: str) -> None:
    axis, power = parts.attribute("axis", -1), parts.attribute("p", 2)
    if power not in (1, 2):
        raise parts.im.refuse(parts.node, "only p = 1 and p = 2 are supported")
    norm = parts(f"ReduceL{power}", x, np.array([axis], np.int64))
    # Where all elements are 0, so is the result.
    parts.end("Div", x, parts("Where", parts("Equal", norm, 0.0), 1.0, norm))


def reduce_logarithm(parts: Parts, x: str) -> None:
    """ReduceLogSum and ReduceLogSumExp."""
    given = {name: parts.attribute(name, default) for name, default in (("keepdims", 1), ("noop_with_empty_axes", 0))}
    axes = parts.attribute("axes", None)
    rest: list[Any] = list(parts.node.inputs[1:]) if axes is None else [np.array(axes, np.int64)]
    if parts.node.kind == "ReduceLogSum":
        parts.end("Log", parts("ReduceSum", x, *rest, **given))
        return
    most = parts("ReduceMax", x, *rest, keepdims=1)
    sums = parts("Log", parts("ReduceSum", parts("Exp", parts("Sub", x, most)), *rest, **given))
    parts.end("Add", sums, parts("ReduceMax", x, *rest, **given))


_UNARY = {"Sigmoid": "LOGISTIC", "HardSwish": "HARD_SWISH", "Not": "LOGICAL_NOT"}
_SAME_NAMES = ("Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign")
_RELATIONS = {kind: kind.upper() for kind in ("Equal", "Greater", "Less")}
_RELATIONS |= {"GreaterOrEqual": "GREATER_EQUAL", "LessOrEqual": "LESS_EQUAL"}
_RELATIONS |= {"And": "LOGICAL_AND", "Or": "LOGICAL_OR", "Xor": "NOT_EQUAL"}
_SEVERAL = {"Sum": "ADD", "Mean": "ADD", "Max": "MAXIMUM", "Min": "MINIMUM"}
_REDUCTIONS = {"ReduceMean": "MEAN", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN", "ReduceProd": "REDUCE_PROD"}
_REDUCTIONS |= dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"), "SUM")

LOWERINGS: dict[str, Lowering] = {
    **{kind: partial(unary, kind=ours) for kind, ours in _UNARY.items()},
    **{kind: partial(unary, kind=kind.upper()) for kind in _SAME_NAMES},
    **{kind.removeprefix(CUSTOM): partial(unary, kind=kind) for kind in CUSTOM_MATH},
    **{kind: partial(binary, kind=kind.upper()) for kind in ("Add", "Sub", "PRelu")},
    **{kind: partial(product, kind=kind.upper()) for kind in ("Mul", "Div")},
    **{kind: partial(binary, kind=ours, dtype=DType.BOOL) for kind, ours in _RELATIONS.items()},
    **{kind: partial(several, kind=ours) for kind, ours in _SEVERAL.items()},
    **dict.fromkeys(("Relu", "Clip"), activation),
    "Pow": power,
    "Reciprocal": composed(lambda parts, x: parts.end("Div", 1.0, x)),
    "HardSigmoid": composed(hard_sigmoid),
    "Softplus": composed(softplus),
    "Softsign": composed(lambda parts, x: parts.end("Div", x, parts("Add", parts("Abs", x), 1.0))),
    "LeakyRelu": lambda im, node: unary(im, node, "LEAKY_RELU", slope_of(im, node)),
    **dict.fromkeys(("Gelu", "com.microsoft.Gelu"), partial(unary, kind="GELU")),
    "Mod": modulo,
    "Where": where,
    "Cast": cast,
    **dict.fromkeys(("Identity", "Dropout"), identity),
    **dict.fromkeys(("Elu", "Selu", "Celu"), elu),
    "Erf": composed(erf),
    "Mish": composed(lambda parts, x: parts.end("Mul", x, parts("Tanh", parts("Softplus", x)))),
    "ThresholdedRelu": composed(
        lambda parts, x: parts.end("Where", parts("Greater", x, float(parts.attribute("alpha", 1.0))), x, 0.0)
    ),
    **dict.fromkeys(("Swish", "com.microsoft.QuickGelu"), composed(swish)),
    **dict.fromkeys(("com.microsoft.BiasGelu", "com.microsoft.FastGelu"), composed(biased_gelu)),
    **{name: partial(reduce, kind=kind) for name, kind in _REDUCTIONS.items()},
    **dict.fromkeys(("ArgMax", "ArgMin"), arg_max),
    "Softmax": partial(softmax, kind="SOFTMAX"),
    "LogSoftmax": partial(softmax, kind="LOG_SOFTMAX"),
    "LayerNormalization": layer_normalisation,
    "InstanceNormalization": instance_normalisation,
    "CumSum": running_sum,
    "GroupNormalization": group_normalisation,
    "RMSNormalization": composed(rms_normalisation),
    "MeanVarianceNormalization": composed(mean_variance_normalisation),
    "LpNormalization": composed(lp_normalisation),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), composed(reduce_logarithm)),
}
