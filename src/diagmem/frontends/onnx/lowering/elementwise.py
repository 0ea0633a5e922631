"""Arithmetic and activations, element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Dims, Shuffled, Stored, Value, stored_as
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts
from diagmem.frontends.onnx.proto import TYPES, OnnxNode
from diagmem.model.graph import DType, Shape, Tensor
from diagmem.ops import Activation
from diagmem.ops.elementwise.unary import Unary

RANGES = {(0.0, math.inf): Activation.RELU, (0.0, 6.0): Activation.RELU6, (-1.0, 1.0): Activation.RELU_N1_TO_1}
KINDS = {Activation.RELU: "RELU", Activation.RELU6: "RELU6", Activation.RELU_N1_TO_1: "RELU_N1_TO_1"}
CAN_FUSE = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "DIV")
"""Operations that limit their outputs in passing."""


def fused(im: Importer, name: str, value: Stored) -> None:
    """Binds what an operation made; an activation that alone reads it becomes part of the operation."""
    behind = im.next_only(name, ["Relu", "Clip"])
    op = im.build.ops[-1]
    limits = None if behind is None else limits_of(im, behind)
    activation = None if limits is None else RANGES.get(limits)
    if behind is None or activation is None or op.kind not in CAN_FUSE or value.tensor.index not in op.outputs:
        im.bind(name, value)
        return
    im.build.replace_attributes(op, replace(op.attributes, activation=activation))
    im.done.add(behind.number)
    tensor = im.build.rename(value.tensor, behind.outputs[0])
    im.bind(behind.outputs[0], replace(value, tensor=tensor))


def limits_of(im: Importer, node: OnnxNode) -> tuple[float, float] | None:
    """What a Relu or Clip limits its input to; None where that is not known yet."""
    if node.kind == "Relu":
        return 0.0, math.inf
    found = []
    for place, name, default in ((1, "min", -math.inf), (2, "max", math.inf)):
        given = node.inputs[place] if place < len(node.inputs) else ""
        value = im.values.get(given) if given else Constant(np.array(im.attribute(node, name, default)))
        if not isinstance(value, Constant) or value.array.size != 1:
            return None
        found.append(float(value.array.reshape(-1)[0]))
    # The largest number stands for none, as exporters of old opsets write it.
    largest = float(np.finfo(np.float32).max)
    return found[0] if found[0] > -largest else -math.inf, found[1] if found[1] < largest else math.inf


def activation_of_its_own(im: Importer, node: OnnxNode) -> None:
    limits = limits_of(im, node)
    if limits is None:
        raise im.refuse(node, "its limits must be constant")
    value = im.input(node)
    if limits in RANGES:
        unary(im, node, KINDS[RANGES[limits]])
        return
    made: Value = value
    for kind, limit in (("MAXIMUM", limits[0]), ("MINIMUM", limits[1])):
        if math.isfinite(limit):
            made = binary_of(im, kind, made, Constant(np.array(limit, dtype=np.float32)), node.outputs[0])
    im.bind(node.outputs[0], made)


def unary(im: Importer, node: OnnxNode, kind: str, attributes: Any = None, place: int = 0) -> None:
    value = im.input(node, place)
    im.bind(node.outputs[0], unary_of(im, kind, value, attributes, node.outputs[0]))


def unary_of(
    im: Importer, kind: str, value: Value, attributes: Any = None, name: str = "", dtype: DType | None = None
) -> Value:
    """A function of each element, whatever order they lie in."""
    source = im.build.float32(value.source if isinstance(value, Shuffled) else im.build.in_ram(value))
    tensor = im.build.make(kind, [source.tensor], attributes, name=name, dtype=dtype)
    made = replace(source, tensor=tensor)
    return Shuffled(made, value.shape) if isinstance(value, Shuffled) else made


def binary_of(
    im: Importer, kind: str, first: Value, second: Value, name: str = "", dtype: DType | None = None
) -> Stored:
    """An operation on two tensors, or more, that stretch to a common shape."""
    return stretched(im, kind, (first, second), name, dtype)


def stretched(im: Importer, kind: str, values: Sequence[Value], name: str = "", dtype: DType | None = None) -> Stored:
    operands = broadcast_operands(im, values)
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
    """Operands that stretch to a common shape."""
    try:
        shape = np.broadcast_shapes(*(value.shape for value in values))
    except ValueError:
        shapes = " and ".join(str(list(value.shape)) for value in values)
        raise im.refuse_here(f"shapes {shapes} do not stretch to a common one; the file is damaged") from None
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
    if im.attribute(node, "fmod", 0):
        raise im.refuse(node, "fmod is not supported")
    first, second = im.input(node, 0), im.input(node, 1)
    made = binary_of(im, kind, first, second, node.outputs[0], dtype)
    fused(im, node.outputs[0], made) if dtype is None else im.bind(node.outputs[0], made)


def power(im: Importer, node: OnnxNode) -> None:
    """A square or a root where the exponent says so."""
    exponent = im.given(node, 1)
    if isinstance(exponent, Constant) and exponent.array.size == 1:
        known = {2.0: "SQUARE", 0.5: "SQRT", -0.5: "RSQRT"}.get(float(exponent.array.reshape(-1)[0]))
        if known:
            unary(im, node, known)
            return
    base, exponent = (_as_type(value, np.float32) for value in (im.input(node, 0), im.input(node, 1)))
    im.bind(node.outputs[0], binary_of(im, "POW", base, exponent, node.outputs[0]))


def _as_type(value: Value, dtype: Any) -> Value:
    return Constant(value.array.astype(dtype)) if isinstance(value, Constant) else value


def several(im: Importer, node: OnnxNode, kind: str) -> None:
    """Sum, Max, Min of any number of tensors."""
    made = im.input(node, 0)
    for place in range(1, len(node.inputs)):
        made = binary_of(im, kind, made, im.input(node, place), node.outputs[0])
    if node.kind == "Mean":
        count = Constant(np.array(1 / len(node.inputs), dtype=np.float32))
        made = binary_of(im, "MUL", made, count, node.outputs[0])
    im.bind(node.outputs[0], made)


def reciprocal(im: Importer, node: OnnxNode) -> None:
    one = Constant(np.array(1, dtype=np.float32))
    im.bind(node.outputs[0], binary_of(im, "DIV", one, im.input(node), node.outputs[0]))


def hard_sigmoid(im: Importer, node: OnnxNode) -> None:
    alpha, beta = im.attribute(node, "alpha", 0.2), im.attribute(node, "beta", 0.5)
    steps = (("MUL", alpha), ("ADD", beta), ("MAXIMUM", 0.0), ("MINIMUM", 1.0))
    im.bind(node.outputs[0], chain(im, im.input(node), steps, node.outputs[0]))


def chain(im: Importer, value: Value, steps: Sequence[tuple[str, float]], name: str) -> Value:
    """Operations with a number each."""
    for kind, number in steps:
        value = binary_of(im, kind, value, Constant(np.array(number, dtype=np.float32)), name)
    return value


def softplus(im: Importer, node: OnnxNode) -> None:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    value = im.stored(node)
    small = unary_of(im, "EXP", unary_of(im, "NEG", unary_of(im, "ABS", value)))
    low = unary_of(im, "LOG", chain(im, small, (("ADD", 1.0),), ""))
    im.bind(node.outputs[0], binary_of(im, "ADD", unary_of(im, "RELU", value), low, node.outputs[0]))


def softsign(im: Importer, node: OnnxNode) -> None:
    value = im.stored(node)
    below = chain(im, unary_of(im, "ABS", value), (("ADD", 1.0),), "")
    im.bind(node.outputs[0], binary_of(im, "DIV", value, below, node.outputs[0]))


def leaky_relu(im: Importer, node: OnnxNode) -> None:
    unary(im, node, "LEAKY_RELU", Unary(alpha=float(np.float32(im.attribute(node, "alpha", 0.01)))))


def gelu(im: Importer, node: OnnxNode) -> None:
    approximate = im.attribute(node, "approximate", "none")
    unary(im, node, "GELU", Unary(approximate=approximate == "tanh"))


def prelu(im: Importer, node: OnnxNode) -> None:
    slope = im.input(node, 1)
    im.bind(node.outputs[0], binary_of(im, "PRELU", im.input(node), slope, node.outputs[0]))


def where(im: Importer, node: OnnxNode) -> None:
    values = [im.input(node, place) for place in range(3)]
    dtype = next((v.dtype for v in values[1:] if not isinstance(v, Constant)), DType.FLOAT32)
    im.bind(node.outputs[0], stretched(im, "SELECT_V2", values, node.outputs[0], dtype))


def cast(im: Importer, node: OnnxNode) -> None:
    number = im.attribute(node, "to")
    im.attribute(node, "saturate", 1)
    dtype = DType(TYPES[number]) if TYPES.get(number) in {d.value for d in DType} else None
    value = im.stored(node)
    if dtype is None:
        raise im.refuse(node, f"element type {number} is not supported")
    if dtype is value.dtype:
        im.bind(node.outputs[0], value)
    else:
        im.bind(node.outputs[0], unary_of(im, "CAST", value, name=node.outputs[0], dtype=dtype))


def identity(im: Importer, node: OnnxNode) -> None:
    """Identity, and Dropout, which does nothing at inference."""
    for name in ("ratio", "seed", "is_test"):
        im.attribute(node, name, None)
    if len(node.outputs) > 1 and im.uses[node.outputs[1]]:
        raise im.refuse(node, "its second output is not supported")
    im.bind(node.outputs[0], im.input(node))


ERF = (0.3275911, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
"""Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most."""


def erf(im: Importer, node: OnnxNode) -> None:
    """sign(x) * (1 - p(t) * exp(-x * x)) with t = 1 / (1 + c * |x|)."""
    parts, x = Parts(im, node), node.inputs[0]
    slope, factors = ERF
    t = parts("Reciprocal", parts("Add", parts("Mul", parts("Abs", x), slope), 1.0))
    sum_ = parts("Mul", t, factors[0])
    for factor in factors[1:]:
        sum_ = parts("Mul", parts("Add", sum_, factor), t)
    below = parts("Mul", sum_, parts("Exp", parts("Neg", parts("Mul", x, x))))
    parts.end("Mul", parts("Sign", x), parts("Sub", 1.0, below))


def sign(im: Importer, node: OnnxNode) -> None:
    parts, x = Parts(im, node), node.inputs[0]
    above, below = (parts("Cast", parts(kind, x, 0.0), to=1) for kind in ("Greater", "Less"))
    parts.end("Sub", above, below)


def elu(im: Importer, node: OnnxNode) -> None:
    """Elu, Selu and Celu: straight above zero, an exponential below."""
    defaults = {"Elu": 1.0, "Selu": 1.67326319217681884765625, "Celu": 1.0}
    alpha = float(np.float32(im.attribute(node, "alpha", defaults[node.kind])))
    gamma = float(np.float32(im.attribute(node, "gamma", 1.05070102214813232421875 if node.kind == "Selu" else 1.0)))
    if alpha == gamma == 1.0:
        im.bind(node.outputs[0], unary_of(im, "ELU", im.input(node), None, node.outputs[0]))
        return
    parts, x = Parts(im, node), node.inputs[0]
    low = parts("Min", x, 0.0)
    bent = parts("Elu", parts("Div", low, alpha) if node.kind == "Celu" else low)
    both = (parts("Relu", x), parts("Mul", bent, alpha))
    if gamma == 1.0:
        parts.end("Add", *both)
    else:
        parts.end("Mul", parts("Add", *both), gamma)


def thresholded_relu(im: Importer, node: OnnxNode) -> None:
    parts, x = Parts(im, node), node.inputs[0]
    parts.end("Where", parts("Greater", x, float(im.attribute(node, "alpha", 1.0))), x, 0.0)


def mish(im: Importer, node: OnnxNode) -> None:
    parts, x = Parts(im, node), node.inputs[0]
    parts.end("Mul", x, parts("Tanh", parts("Softplus", x)))


def swish(im: Importer, node: OnnxNode) -> None:
    alpha = float(im.attribute(node, "alpha", 1.702 if node.kind == "QuickGelu" else 1.0))
    parts, x = Parts(im, node), node.inputs[0]
    parts.end("Mul", x, parts("Sigmoid", x if alpha == 1.0 else parts("Mul", x, alpha)))


def biased_gelu(im: Importer, node: OnnxNode) -> None:
    """com.microsoft's BiasGelu and FastGelu."""
    parts, x = Parts(im, node), node.inputs[0]
    if len(node.inputs) > 1 and node.inputs[1]:
        x = parts("Add", x, node.inputs[1])
    approximate = "tanh" if node.kind == "FastGelu" else "none"
    parts.end("Gelu", x, approximate=approximate)


def tangent(im: Importer, node: OnnxNode) -> None:
    parts, x = Parts(im, node), node.inputs[0]
    parts.end("Div", parts("Sin", x), parts("Cos", x))


def gelu_behind(im: Importer, node: OnnxNode) -> bool:
    """x / sqrt(2), or x * sqrt(1 / 2), that starts 0.5 * x * (1 + erf(x / sqrt(2))), in any order: one operation."""
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
    """The operand that is not known, and the number that the other one is; None where it is not so."""
    for name, other in (node.inputs, node.inputs[::-1]):
        array = im.model.constants.get(other)
        value = im.values.get(other)
        known = value.array if isinstance(value, Constant) else array
        if known is not None and known.size == 1 and name != other and (node.kind != "Div" or other == node.inputs[1]):
            return name, float(known.reshape(-1)[0])
    return None, math.nan


def or_gelu(lowering: Lowering) -> Lowering:
    """A product or quotient, unless it begins a GELU."""

    def lower(im: Importer, node: OnnxNode) -> None:
        if len(node.inputs) != 2 or not gelu_behind(im, node):
            lowering(im, node)

    return lower


_UNARY = {
    "Sigmoid": "LOGISTIC",
    "Tanh": "TANH",
    "Exp": "EXP",
    "Log": "LOG",
    "Sqrt": "SQRT",
    "Abs": "ABS",
    "Neg": "NEG",
    "Sin": "SIN",
    "Cos": "COS",
    "Floor": "FLOOR",
    "Ceil": "CEIL",
    "Round": "ROUND",
    "HardSwish": "HARD_SWISH",
    "Not": "LOGICAL_NOT",
}
_RELATIONS = {
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
    "And": "LOGICAL_AND",
    "Or": "LOGICAL_OR",
    "Xor": "NOT_EQUAL",
}

LOWERINGS: dict[str, Lowering] = {
    **{kind: partial(unary, kind=ours) for kind, ours in _UNARY.items()},
    **{kind: partial(binary, kind=ours) for kind, ours in (("Add", "ADD"), ("Sub", "SUB"))},
    **{kind: partial(binary, kind=ours, dtype=DType.BOOL) for kind, ours in _RELATIONS.items()},
    **{
        kind: partial(several, kind=ours)
        for kind, ours in (("Sum", "ADD"), ("Mean", "ADD"), ("Max", "MAXIMUM"), ("Min", "MINIMUM"))
    },
    "Relu": activation_of_its_own,
    "Clip": activation_of_its_own,
    "Pow": power,
    "Reciprocal": reciprocal,
    "HardSigmoid": hard_sigmoid,
    "Softplus": softplus,
    "Softsign": softsign,
    "LeakyRelu": leaky_relu,
    "Gelu": gelu,
    "com.microsoft.Gelu": gelu,
    "PRelu": prelu,
    "Where": where,
    "Cast": cast,
    "Identity": identity,
    "Dropout": identity,
    **{kind: or_gelu(partial(binary, kind=ours)) for kind, ours in (("Mul", "MUL"), ("Div", "DIV"))},
    "Erf": erf,
    "Sign": sign,
    **dict.fromkeys(("Elu", "Selu", "Celu"), elu),
    "ThresholdedRelu": thresholded_relu,
    "Mish": mish,
    "Swish": swish,
    "com.microsoft.QuickGelu": swish,
    "com.microsoft.BiasGelu": biased_gelu,
    "com.microsoft.FastGelu": biased_gelu,
    "Tan": tangent,
}
