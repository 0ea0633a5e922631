"""Operators of their own on 8-bit integers, each with the scales of what it reads and makes: QLinearConv and others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diagmem.frontends.onnx.branches import Parts
from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.layout import Constant, Scale, Stored, Value
from diagmem.frontends.onnx.lowering.integers import (
    arithmetic_of,
    conv_of,
    global_pool_of,
    layer_of,
    pool_of,
    slope,
    softmax_of,
    weights_of,
)
from diagmem.frontends.onnx.lowering.moving import joined
from diagmem.frontends.onnx.lowering.quantised import (
    TYPES,
    Attributes,
    Target,
    is_integer,
    made,
    meant,
    quantised,
    scale_at,
    signed,
    whole,
)
from diagmem.frontends.onnx.proto import OnnxNode


def operand(im: Importer, node: OnnxNode, place: int) -> Value:
    """An operand with its scale and zero point behind it, as the real numbers that it stands for."""
    scale, _ = scale_at(im, node, place + 1)
    value = im.input(node, place)
    if isinstance(value, Constant):
        return Constant(value.array, (signed(value.array), scale))
    return meant(im, node, value, scale)


def own_target(im: Importer, node: OnnxNode, place: int) -> Target:
    scale, dtype = scale_at(im, node, place)
    if len(scale.scales) > 1 or dtype.name not in TYPES:
        raise im.refuse(node, "outputs of one scale, int8 or uint8, are supported")
    return Target(node.outputs[0], scale, TYPES[dtype.name])


def _whole_numbers(bias: Value | None) -> Value | None:
    """A bias that is stored in units of the products already."""
    return Constant(bias.array, (bias.array, Scale((1.0,), (0,)))) if isinstance(bias, Constant) else bias


def qlinear_conv(im: Importer, node: OnnxNode) -> None:
    weights = weights_of(operand(im, node, 3), 0)
    target, image = own_target(im, node, 6), operand(im, node, 0)
    bias = _whole_numbers(im.given(node, 8))
    if weights is None or not is_integer(image) or not conv_of(im, node, image, weights, bias, target):
        _in_real_numbers(im, node, "Conv", (6, 7), 8)


def qlinear_matmul(im: Importer, node: OnnxNode) -> None:
    weights = weights_of(operand(im, node, 3), 1)
    data, target = operand(im, node, 0), own_target(im, node, 6)
    done = weights is not None and is_integer(data)
    if weights is None or not done or not layer_of(im, data, (weights[0].T, weights[1]), None, target):
        _in_real_numbers(im, node, "MatMul", (6, 7), None)


def qgemm(im: Importer, node: OnnxNode) -> None:
    turned = im.attribute(node, "transB", 0)
    is_plain = im.attribute(node, "alpha", 1.0) == 1.0 and not im.attribute(node, "transA", 0)
    weights = weights_of(operand(im, node, 3), 0 if turned else 1)
    bias = _whole_numbers(im.given(node, 6))
    target, data = own_target(im, node, 7), operand(im, node, 0)
    if weights is not None and is_plain and is_integer(data):
        rows = weights[0] if turned else weights[0].T
        if layer_of(im, data, (rows, weights[1]), bias, target):
            return
    _in_real_numbers(im, node, "Gemm", (7, 8), 6)


def _in_real_numbers(im: Importer, node: OnnxNode, kind: str, scale: tuple[int, int], bias: int | None) -> None:
    """What cannot be computed on 8-bit integers, as weights of nine bits: in real numbers, then quantised. `scale`:
    where that of the output stands; `bias`: where it stands, in units of the products."""
    parts, given = Parts(im, node), node.inputs
    axis = 0 if kind == "Conv" or im.attribute(node, "transB", 0) else 1
    operands = [parts("DequantizeLinear", *given[:3]), parts("DequantizeLinear", *given[3:6], axis=axis)]
    if bias is not None and im.given(node, bias) is not None:
        unit = im.array(node, 1).astype(np.float32).reshape(-1) * im.array(node, 4).astype(np.float32).reshape(-1)
        operands.append(parts("Identity", (im.array(node, bias).reshape(-1) * unit).astype(np.float32)))
    rest = {name: im.attribute(node, name) for name in node.attributes if name not in ("name", "doc_string")}
    parts.end("QuantizeLinear", parts(kind, *operands, **rest), *(given[place] for place in scale))


def qlinear_add(im: Importer, node: OnnxNode) -> None:
    values = [operand(im, node, place) for place in (0, 3)]
    tensors = [_in_memory(im, value) for value in values]
    arithmetic_of(im, "ADD", tensors, own_target(im, node, 6))


def _in_memory(im: Importer, value: Value) -> Value:
    """A constant operand as a tensor that holds its integers."""
    if not isinstance(value, Constant) or value.stored is None:
        return value
    values, scale = value.stored
    tensor = im.build.constant(values, "operand", scale.quantisation)
    return Stored(tensor, tuple(range(values.ndim)), values.shape, is_real=True)


def qlinear_mul(im: Importer, node: OnnxNode) -> None:
    values = [_in_memory(im, operand(im, node, place)) for place in (0, 3)]
    arithmetic_of(im, "MUL", values, own_target(im, node, 6))


def qlinear_pool(im: Importer, node: OnnxNode) -> None:
    if im.attribute(node, "channels_last", 0):
        raise im.refuse(node, "channels_last is not supported")
    image, target = operand(im, node, 0), own_target(im, node, 3)
    whole_image = node.kind == "QLinearGlobalAveragePool"
    done = (global_pool_of if whole_image else pool_of)(im, node, image, target)
    if not done:
        raise im.refuse(node, "padding that counts, and dilations, are not supported")


def qlinear_softmax(im: Importer, node: OnnxNode) -> None:
    im.attribute(node, "opset", 13)
    value = operand(im, node, 0)
    axis = im.axis(node, im.attribute(node, "axis", -1), len(value.shape))
    softmax_of(im, value, axis, own_target(im, node, 3))


def qlinear_unary(kind: str, attributes: Attributes | None = None) -> Callable[[Importer, OnnxNode], None]:
    def lower(im: Importer, node: OnnxNode) -> None:
        value, target = whole(im, operand(im, node, 0)), own_target(im, node, 3)
        given = None if attributes is None else attributes(im, node)
        im.bind(target.name, replace(value, tensor=made(im, kind, [value.tensor], given, target), is_real=False))

    return lower


def qlinear_concat(im: Importer, node: OnnxNode) -> None:
    """Each part on the scale of the whole, then side by side."""
    target = own_target(im, node, 0)
    operands = [operand(im, node, place) for place in range(2, len(node.inputs), 3)]
    parts = [quantised(im, value, target.scale, target.dtype, "") for value in operands]
    axis = im.axis(node, im.attribute(node, "axis"), len(parts[0].shape))
    im.bind(target.name, joined(im, node, parts, axis, as_stored=True))


_MICROSOFT = {
    "QLinearAdd": qlinear_add,
    "QLinearMul": qlinear_mul,
    "QLinearAveragePool": qlinear_pool,
    "QLinearGlobalAveragePool": qlinear_pool,
    "QLinearSoftmax": qlinear_softmax,
    "QLinearSigmoid": qlinear_unary("LOGISTIC"),
    "QLinearLeakyRelu": qlinear_unary("LEAKY_RELU", slope),
    "QLinearConcat": qlinear_concat,
    "QGemm": qgemm,
}

LOWERINGS = {
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    **{f"com.microsoft.{kind}": lowering for kind, lowering in _MICROSOFT.items()},
}
