"""Operators that are made of simpler ones: activations, normalisations, sums of products by letters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts
from diagmem.frontends.onnx.lowering.elementwise import unary_of
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.ops.elementwise.unary import Unary

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

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


def group_normalisation(im: Importer, node: OnnxNode) -> None:
    """Each group of channels by itself; scales are those of channels, up to opset 20 of groups."""
    shape, groups = im.input(node).shape, im.attribute(node, "num_groups")
    im.attribute(node, "stash_type", 1)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise im.refuse(node, f"{groups} groups do not fit {list(shape)}; the file is damaged")
    parts = Parts(im, node)
    flat = parts("Reshape", node.inputs[0], np.array([shape[0], groups, -1], np.int64))
    ones = np.ones(groups, np.float32)
    epsilon = im.attribute(node, "epsilon", 1e-5)
    made = parts("InstanceNormalization", flat, ones, 0 * ones, epsilon=epsilon)
    whole = parts("Reshape", made, np.array(shape, np.int64))
    scale, bias = (_of_channels(im, node, place, shape) for place in (1, 2))
    parts.end("Add", parts("Mul", whole, scale), bias)


def _of_channels(im: Importer, node: OnnxNode, place: int, shape: Sequence[int]) -> np.ndarray:
    values = im.array(node, place).reshape(-1).astype(np.float32)
    if not len(values) or shape[1] % len(values):
        raise im.refuse(node, f"its parameters do not fit {list(shape)}; the file is damaged")
    return np.repeat(values, shape[1] // len(values)).reshape(-1, *[1] * (len(shape) - 2))


def rms_normalisation(im: Importer, node: OnnxNode) -> None:
    rank = len(im.input(node).shape)
    axis = im.axis(node, im.attribute(node, "axis", -1), rank)
    im.attribute(node, "stash_type", 1)
    epsilon = float(im.attribute(node, "epsilon", 1e-5))
    parts, x = Parts(im, node), node.inputs[0]
    mean = parts("ReduceMean", parts("Mul", x, x), np.arange(axis, rank))
    scaled = parts("Div", x, parts("Sqrt", parts("Add", mean, epsilon)))
    parts.end("Mul", scaled, node.inputs[1])


def mean_variance_normalisation(im: Importer, node: OnnxNode) -> None:
    axes = np.array(im.attribute(node, "axes", [0, 2, 3]), np.int64)
    parts, x = Parts(im, node), node.inputs[0]
    centred = parts("Sub", x, parts("ReduceMean", x, axes))
    deviation = parts("Sqrt", parts("ReduceMean", parts("Mul", centred, centred), axes))
    parts.end("Div", centred, parts("Add", deviation, 1e-9))


def lp_normalisation(im: Importer, node: OnnxNode) -> None:
    axis, power = im.attribute(node, "axis", -1), im.attribute(node, "p", 2)
    if power not in (1, 2):
        raise im.refuse(node, "only p = 1 and p = 2 are supported")
    parts, x = Parts(im, node), node.inputs[0]
    norm = parts(f"ReduceL{power}", x, np.array([axis], np.int64))
    # Where all is 0, it stays so.
    parts.end("Div", x, parts("Where", parts("Equal", norm, 0.0), 1.0, norm))


def local_response_normalisation(im: Importer, node: OnnxNode) -> None:
    """The sum of the squares of neighbouring channels is a pointwise convolution with ones."""
    shape, size = im.input(node).shape, im.attribute(node, "size")
    alpha, beta, bias = (
        float(im.attribute(node, name, default)) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    if len(shape) != 4 or not 1 <= size <= 1 << 16:
        raise im.refuse(node, "only images, and sizes above zero, are supported")
    channels = np.arange(shape[1])
    apart = channels[None] - channels[:, None]
    near = (apart >= -((size - 1) // 2)) & (apart <= size // 2)
    weights = (near * (alpha / size)).astype(np.float32)[:, :, None, None]
    parts, x = Parts(im, node), node.inputs[0]
    sums = parts("Conv", parts("Mul", x, x), weights, np.full(shape[1], bias, np.float32))
    parts.end("Mul", x, parts("Pow", sums, -beta))


def reduce_logarithm(im: Importer, node: OnnxNode) -> None:
    """ReduceLogSum and ReduceLogSumExp."""
    given = {"keepdims": im.attribute(node, "keepdims", 1)}
    given |= {"noop_with_empty_axes": im.attribute(node, "noop_with_empty_axes", 0)}
    axes = im.attribute(node, "axes", None)
    rest: list[Any] = list(node.inputs[1:])
    if axes is not None:
        rest = [np.array(axes, np.int64)]
    parts, x = Parts(im, node), node.inputs[0]
    if node.kind == "ReduceLogSum":
        parts.end("Log", parts("ReduceSum", x, *rest, **given))
        return
    most = parts("ReduceMax", x, *rest, keepdims=1)
    sums = parts("Log", parts("ReduceSum", parts("Exp", parts("Sub", x, most)), *rest, **given))
    parts.end("Add", sums, parts("ReduceMax", x, *rest, **given))


def einsum(im: Importer, node: OnnxNode) -> None:
    """One operand, or two as a product of matrices: letters of both that are kept are those of a batch."""
    text = im.attribute(node, "equation").replace(" ", "")
    sides, arrow, result = text.partition("->")
    terms = sides.split(",")
    if "..." in text or len(terms) != len(node.inputs) or len(terms) > 2:
        raise im.refuse(node, "only equations of one or two operands, without an ellipsis, are supported")
    if not arrow:
        result = "".join(sorted(c for c in set(sides) - {","} if sides.count(c) == 1))
    shapes = [im.input(node, place).shape for place in range(len(terms))]
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if len(term) != len(shape) or len(set(term)) != len(term) or not set(term) <= set(LETTERS):
            raise im.refuse(node, f"its equation does not fit {list(shape)}, or names an axis twice")
        sizes |= dict(zip(term, shape, strict=True))
    if len(set(result)) != len(result) or not set(result) <= set(sizes):
        raise im.refuse(node, "its equation has a result of other letters; the file is damaged")
    parts = Parts(im, node)
    operands = [
        _summed(parts, name, term, set(result) | (set(terms[1 - place]) if len(terms) > 1 else set()))
        for place, (name, term) in enumerate(zip(node.inputs, terms, strict=True))
    ]
    if len(operands) == 1:
        name, term = operands[0]
        parts.end("Transpose", name, perm=[term.index(c) for c in result])
        return
    _product(parts, operands, sizes, result)


def _summed(parts: Parts, name: str, term: str, wanted: set[str]) -> tuple[str, str]:
    """An operand without letters that nothing else has."""
    alone = [place for place, letter in enumerate(term) if letter not in wanted]
    if not alone:
        return name, term
    made = parts("ReduceSum", name, np.array(alone, np.int64), keepdims=0)
    return made, "".join(c for c in term if c in wanted)


def _product(parts: Parts, operands: Sequence[tuple[str, str]], sizes: dict[str, int], result: str) -> None:
    (first, left), (second, right) = operands
    both = [c for c in left if c in right]
    batch, inner = [c for c in both if c in result], [c for c in both if c not in result]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]

    def matrix(name: str, term: str, groups: Sequence[Sequence[str]]) -> str:
        turned = parts("Transpose", name, perm=[term.index(c) for group in groups for c in group])
        return parts("Reshape", turned, _shape(groups, sizes))

    made = parts("MatMul", matrix(first, left, (batch, rows, inner)), matrix(second, right, (batch, inner, columns)))
    letters = [*batch, *rows, *columns]
    apart = parts("Reshape", made, np.array([sizes[c] for c in letters], np.int64))
    parts.end("Transpose", apart, perm=[letters.index(c) for c in result])


def _shape(groups: Sequence[Sequence[str]], sizes: dict[str, int]) -> np.ndarray:
    return np.array([math.prod(sizes[c] for c in group) for group in groups], np.int64)


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


LOWERINGS: dict[str, Callable[[Importer, OnnxNode], None]] = {
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
    "GroupNormalization": group_normalisation,
    "RMSNormalization": rms_normalisation,
    "MeanVarianceNormalization": mean_variance_normalisation,
    "LpNormalization": lp_normalisation,
    "LRN": local_response_normalisation,
    "ReduceLogSum": reduce_logarithm,
    "ReduceLogSumExp": reduce_logarithm,
    "Einsum": einsum,
}
