"""Operations that gather over axes: sums, extremes, normalisations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Stored, Value, stored_as
from diagmem.frontends.onnx.folding import axes_of
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts, composed
from diagmem.frontends.onnx.lowering.elementwise import binary_of, chain, unary_of
from diagmem.frontends.onnx.lowering.moving import placed
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import DType
from diagmem.ops.reductions.cumsum import CumSum
from diagmem.ops.reductions.reduce import ArgMax, Reduce

INT32, INT64 = 6, 7
"""Numbers of ONNX's element types."""


def reduce_of(im: Importer, kind: str, value: Stored, axes: Sequence[int], name: str = "") -> Stored:
    """A reduction that keeps its axes."""
    places = [place for place, axis in enumerate(value.dims) if axis in axes]
    if not places:
        return value
    tensor = im.build.moved(kind, [value.tensor, im.build.ints(places, "axes")], Reduce(keep_dims=True), name)
    return value.became(tensor, tuple(1 if axis in axes else n for axis, n in enumerate(value.shape)))


def reduce(im: Importer, node: OnnxNode, kind: str) -> Value:
    value = im.stored(node, as_stored=node.kind in ("ReduceMax", "ReduceMin"))
    keeps = im.attribute(node, "keepdims", 1)
    im.attribute(node, "axes", None)
    axes = axes_of(node, [None, im.optional_array(node, 1)])
    if not axes:
        if im.attribute(node, "noop_with_empty_axes", 0):
            return value
        axes = list(range(len(value.shape)))
    im.attribute(node, "noop_with_empty_axes", 0)
    found = im.axes(node, axes, len(value.shape))
    name = node.outputs[0]
    first = {"ReduceSumSquare": "SQUARE", "ReduceL2": "SQUARE", "ReduceL1": "ABS"}.get(node.kind)
    if first is not None:
        value = _stored(unary_of(im, first, value))
    made: Value = reduce_of(im, kind, value, found, name)
    if node.kind == "ReduceL2":
        made = unary_of(im, "SQRT", made, name=name)
    shape = made.shape if keeps else tuple(n for axis, n in enumerate(made.shape) if axis not in found)
    return im.build.reshape(made, shape)


def _stored(value: Value) -> Stored:
    assert isinstance(value, Stored)
    return value


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
    """The first index from the end on, counted from there."""
    parts, ends = Parts(im, node), [np.array([n]) for n in (-1, -size - 1, axis, -1)]
    behind = parts("Slice", node.inputs[0], *ends)
    from_end = parts(node.kind, behind, axis=axis, keepdims=im.attribute(node, "keepdims", 1))
    index = parts("Sub", np.array(size - 1, np.int32), parts("Cast", from_end, to=INT32))
    parts.end("Cast", index, to=INT64)


def softmax(im: Importer, node: OnnxNode, kind: str) -> Value:
    """Over one axis; up to opset 12 over all axes from one on, taken as one."""
    value, name, is_one = im.stored(node), node.outputs[0], im.model.opset >= 13
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
    """The value stored with these axes at the end, in this order."""
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
    """The mean, one over the deviation, and the value less its mean, over its deviation."""
    mean = reduce_of(im, "MEAN", value, axes)
    centred = binary_of(im, "SUB", value, mean)
    squares = _stored(unary_of(im, "SQUARE", centred))
    variance = reduce_of(im, "MEAN", squares, axes)
    inverse = unary_of(im, "RSQRT", chain(im, variance, (("ADD", epsilon),), ""))
    return mean, inverse, binary_of(im, "MUL", centred, inverse)


def instance_normalisation(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node)
    _, _, made = normalised(im, value, range(2, len(value.shape)), im.attribute(node, "epsilon", 1e-5))
    shape = (-1, *[1] * (len(value.shape) - 2))
    scale, bias = (Constant(im.array(node, place).reshape(shape).astype(np.float32)) for place in (1, 2))
    scaled = binary_of(im, "MUL", made, scale)
    return binary_of(im, "ADD", scaled, bias, node.outputs[0])


def running_sum(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node)
    axis = im.axis(node, int(im.array(node, 1).reshape(-1)[0]), len(value.shape))
    given = CumSum(bool(im.attribute(node, "exclusive", 0)), bool(im.attribute(node, "reverse", 0)))
    value = placed(im, value, [axis])
    inputs = [value.tensor, im.build.ints(value.dims.index(axis), "axis")]
    return value.became(im.build.make("CUMSUM", inputs, given, name=node.outputs[0]), value.shape)


def group_normalisation(im: Importer, node: OnnxNode) -> None:
    """Each group of channels by itself; scales are those of channels, up to opset 20 of groups."""
    shape, groups = im.input(node).shape, im.attribute(node, "num_groups")
    im.attribute(node, "stash_type", 1)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise im.damaged(node, f"{groups} groups do not fit {list(shape)}")
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
        raise im.damaged(node, f"its parameters do not fit {list(shape)}")
    return np.repeat(values, shape[1] // len(values)).reshape(-1, *[1] * (len(shape) - 2))


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
    # Where all is 0, it stays so.
    parts.end("Div", x, parts("Where", parts("Equal", norm, 0.0), 1.0, norm))


def local_response_normalisation(parts: Parts, x: str) -> None:
    """The sum of the squares of neighbouring channels is a pointwise convolution with ones."""
    shape, size = parts.im.values[x].shape, parts.attribute("size")
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    alpha, beta, bias = (float(parts.attribute(name, default)) for name, default in defaults.items())
    if len(shape) != 4 or not 1 <= size <= 1 << 16:
        raise parts.im.refuse(parts.node, "only images, and sizes above zero, are supported")
    channels = np.arange(shape[1])
    apart = channels[None] - channels[:, None]
    near = (apart >= -((size - 1) // 2)) & (apart <= size // 2)
    weights = (near * (alpha / size)).astype(np.float32)[:, :, None, None]
    sums = parts("Conv", parts("Mul", x, x), weights, np.full(shape[1], bias, np.float32))
    parts.end("Mul", x, parts("Pow", sums, -beta))


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


_KINDS = {"ReduceMean": "MEAN", "ReduceMax": "REDUCE_MAX", "ReduceMin": "REDUCE_MIN"}
_KINDS |= dict.fromkeys(("ReduceSum", "ReduceSumSquare", "ReduceL1", "ReduceL2"), "SUM")

LOWERINGS: dict[str, Lowering] = {
    **{name: partial(reduce, kind=kind) for name, kind in _KINDS.items()},
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
    "LRN": composed(local_response_normalisation),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), composed(reduce_logarithm)),
}
