"""Layers on 8-bit integers: between QuantizeLinear and DequantizeLinear, and as operators of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from diagmem.frontends.onnx.folding import axes_of
from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.layout import Constant, Scale, Stored, Value, in_file_order, stored_as
from diagmem.frontends.onnx.lowering import windows
from diagmem.frontends.onnx.lowering.elementwise import broadcast_operands
from diagmem.frontends.onnx.lowering.matrix import layer_input
from diagmem.frontends.onnx.lowering.moving import joined
from diagmem.frontends.onnx.lowering.quantised import (
    Target,
    finish,
    is_integer,
    made,
    quantised,
    target_of,
    unary,
    whole,
)
from diagmem.frontends.onnx.lowering.reductions import last
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import Tensor
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.matrix.fully_connected import FullyConnected
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce

Weights = tuple[Any, Scale]
Cluster = Callable[[Importer, OnnxNode], bool]


def weights_of(value: Value | None, channel_axis: int) -> Weights | None:
    """Weights of 8 bits around zero, with one scale or one for each output channel; None if they are not such. Those
    around another number are moved where that leaves them 8 bits."""
    if not isinstance(value, Constant) or value.stored is None:
        return None
    values, scale = value.stored
    if values.dtype != np.int8 or not (len(scale.scales) == 1 or scale.axis == channel_axis):
        return None
    if any(scale.zero_points):
        shape = [1] * values.ndim
        shape[scale.axis] = -1
        zeros = np.array(scale.zero_points).reshape(shape if len(scale.zero_points) > 1 else ())
        moved = values.astype(np.int64) - zeros
        if moved.min(initial=0) < -128 or moved.max(initial=0) > 127:
            return None
        values, scale = moved.astype(np.int8), replace(scale, zero_points=(0,) * len(scale.zero_points))
    return values, scale


def bias_of(value: Value | None, unit: Any, channels: int) -> Any:
    """32-bit integers in units of the products; None where that cannot be. Real ones are rounded to them."""
    if value is None:
        return np.zeros(channels, np.int32)
    if not isinstance(value, Constant) or value.array.size != channels:
        return None
    if value.stored is not None and value.stored[0].dtype == np.int32:
        return value.stored[0].reshape(-1)
    found = np.rint(value.array.reshape(-1).astype(np.float32) / unit)
    return np.clip(found, -(2**31), 2**31 - 1).astype(np.int64).astype(np.int32)


def unit_of(tensor: Tensor, scale: Scale) -> Any:
    """What a product of data and weights is worth."""
    found = tensor.quantisation
    assert found is not None
    return np.float32(found.scales[0]) * np.array(scale.scales, np.float32)


def conv(im: Importer, node: OnnxNode) -> bool:
    image, target = im.input(node), target_of(im, node)
    weights = weights_of(im.given(node, 1), 0)
    if not is_integer(image) or target is None or weights is None:
        return False
    return conv_of(im, node, image, weights, im.given(node, 2), target)


def conv_of(im: Importer, node: OnnxNode, image: Value, weights: Weights, bias: Value | None, target: Target) -> bool:
    values, scale = weights
    size = windows.image_shape(im, node, image.shape)
    groups = im.attribute(node, "group", 1)
    if values.ndim != len(image.shape) or values.shape[1] * groups != image.shape[1] or values.shape[0] % groups:
        raise im.refuse(node, f"weights {list(values.shape)} and group {groups} do not fit {list(image.shape)}")
    window = windows.window_of(im, node, size, values.shape[2:])
    tensor = im.build.form(image, windows.image_dims(image.shape), as_stored=True)
    sums = bias_of(bias, unit_of(tensor, scale), values.shape[0])
    if sums is None:
        return False
    kernel = values.reshape(*values.shape[:2], *window.kernel)
    rest = window.padding(tensor.shape[1:3]), *window.stride, *window.dilation
    attributes: Conv2D | DepthwiseConv2D
    if groups == image.shape[1] and values.shape[1] == 1:
        data, axis, kind = kernel.transpose(1, 2, 3, 0), 3, "DEPTHWISE_CONV_2D"
        attributes = DepthwiseConv2D(*rest, values.shape[0] // groups, target.activation)
    else:
        data, axis, kind = kernel.transpose(0, 2, 3, 1), 0, "CONV_2D"
        attributes = Conv2D(*rest, target.activation)
    inputs = [tensor, *_constants(im, data, replace(scale, axis=axis), sums)]
    result = windows.bind_image(made(im, kind, inputs, attributes, target), len(image.shape))
    finish(im, target, result)
    return True


def _constants(im: Importer, data: Any, scale: Scale, sums: Any) -> list[Tensor]:
    return [im.build.constant(data, "filter", scale.quantisation), im.build.constant(sums, "bias")]


def gemm(im: Importer, node: OnnxNode) -> bool:
    turned = im.attribute(node, "transB", 0)
    data, target = im.input(node), target_of(im, node)
    weights = weights_of(im.given(node, 1), 0 if turned else 1)
    is_plain = im.attribute(node, "alpha", 1.0) == 1.0 == im.attribute(node, "beta", 1.0)
    if not is_integer(data) or target is None or weights is None or not is_plain or im.attribute(node, "transA", 0):
        return False
    return layer_of(im, data, (weights[0] if turned else weights[0].T, weights[1]), im.given(node, 2), target)


def matmul(im: Importer, node: OnnxNode) -> bool:
    data, second, target = im.input(node), im.given(node, 1), target_of(im, node)
    weights = weights_of(second, 1)
    if not is_integer(data) or target is None or weights is None or weights[0].ndim != 2:
        return False
    return layer_of(im, data, (weights[0].T, weights[1]), None, target)


def layer_of(im: Importer, data: Value, weights: Weights, bias: Value | None, target: Target) -> bool:
    """`weights`: a row for each output."""
    values, scale = weights
    if values.ndim != 2 or len(data.shape) < 2 or data.shape[-1] != values.shape[1] or isinstance(data, Constant):
        return False
    tensor, columns = layer_input(im, data, as_stored=True)
    sums = bias_of(bias, unit_of(tensor, scale), values.shape[0])
    if sums is None:
        return False
    rows = np.ascontiguousarray(values if columns is None else values[:, columns])
    inputs = [tensor, *_constants(im, rows, replace(scale, axis=0), sums)]
    attributes = FullyConnected(target.activation, len(tensor.shape) > 2)
    shape = (*data.shape[:-1], values.shape[0])
    finish(im, target, Stored(made(im, "FULLY_CONNECTED", inputs, attributes, target), in_file_order(shape), shape))
    return True


def pool(im: Importer, node: OnnxNode) -> bool:
    image, target = im.input(node), target_of(im, node)
    return is_integer(image) and target is not None and pool_of(im, node, image, target)


def pool_of(im: Importer, node: OnnxNode, image: Value, target: Target) -> bool:
    kernel = im.attribute(node, "kernel_shape")
    window = windows.window_of(im, node, windows.image_shape(im, node, image.shape), kernel)
    if window.dilation != (1, 1) or (im.attribute(node, "count_include_pad", 0) and window.pads):
        return False
    tensor = im.build.form(image, windows.image_dims(image.shape), as_stored=True)
    attributes = Pool2D(window.padding(tensor.shape[1:3]), *window.stride, *window.kernel, target.activation)
    result = made(im, "AVERAGE_POOL_2D", [tensor], attributes, target)
    finish(im, target, windows.bind_image(result, len(image.shape)))
    return True


def global_pool(im: Importer, node: OnnxNode) -> bool:
    image, target = im.input(node), target_of(im, node)
    is_plain = target is not None and target.activation is Activation.NONE
    return is_integer(image) and target is not None and is_plain and global_pool_of(im, node, image, target)


def global_pool_of(im: Importer, node: OnnxNode, image: Value, target: Target) -> bool:
    windows.image_shape(im, node, image.shape)
    tensor = im.build.form(image, windows.image_dims(image.shape), as_stored=True)
    result = made(im, "MEAN", [tensor, im.build.ints([1, 2], "axes")], Reduce(keep_dims=True), target)
    finish(im, target, windows.bind_image(result, len(image.shape)))
    return True


def softmax(im: Importer, node: OnnxNode) -> bool:
    value, target = im.input(node), target_of(im, node)
    is_plain = target is not None and target.activation is Activation.NONE
    axis = im.attribute(node, "axis", -1 if im.model.opset >= 13 else 1)
    axis = im.axis(node, axis, len(value.shape))
    if not is_integer(value) or target is None or not is_plain:
        return False
    if im.model.opset < 13 and any(n > 1 for n in value.shape[axis + 1 :]):
        return False
    return softmax_of(im, value, axis, target)


def softmax_of(im: Importer, value: Value, axis: int, target: Target) -> bool:
    rows = last(im, whole(im, value), [axis], as_stored=True)
    finish(im, target, replace(rows, tensor=made(im, "SOFTMAX", [rows.tensor], Softmax(), target), is_real=False))
    return True


def arithmetic(im: Importer, node: OnnxNode, kind: str) -> bool:
    values, target = [im.input(node, place) for place in (0, 1)], target_of(im, node)
    return all(map(is_integer, values)) and target is not None and arithmetic_of(im, kind, values, target)


def arithmetic_of(im: Importer, kind: str, values: list[Value], target: Target) -> bool:
    """A sum or a product, element by element."""
    operands = broadcast_operands(im, values, as_stored=True)
    result = made(im, kind, operands.tensors, Binary(target.activation), target)
    finish(im, target, operands.result(result))
    return True


def mean(im: Importer, node: OnnxNode) -> bool:
    """Over height and width, as exporters write a pool of the whole image."""
    image, target = im.input(node), target_of(im, node)
    axes = node.attributes.get("axes") or axes_of(node, [None, im.optional_array(node, 1)])
    is_plain = target is not None and target.activation is Activation.NONE and len(image.shape) == 4
    if not is_integer(image) or target is None or not is_plain or sorted(a % 4 for a in axes or ()) != [2, 3]:
        return False
    im.attribute(node, "axes", None)
    im.attribute(node, "noop_with_empty_axes", 0)
    tensor = im.build.form(image, windows.image_dims(image.shape), as_stored=True)
    result = made(im, "MEAN", [tensor, im.build.ints([1, 2], "axes")], Reduce(keep_dims=False), target)
    shape = image.shape[:2]
    found = im.build.reshape(
        Stored(result, stored_as(shape, (0, 1)), shape), (*shape, 1, 1) if im.attribute(node, "keepdims", 1) else shape
    )
    finish(im, target, found)
    return True


def concat(im: Importer, node: OnnxNode) -> bool:
    """Each part on the scale of the whole, then side by side."""
    values = [im.input(node, place) for place in range(len(node.inputs))]
    target = target_of(im, node)
    is_plain = target is not None and target.activation is Activation.NONE
    if not values or not all(map(is_integer, values)) or target is None or not is_plain:
        return False
    axis = im.axis(node, im.attribute(node, "axis", 1), len(values[0].shape))
    parts = [quantised(im, value, target.scale, target.dtype, "") for value in values]
    finish(im, target, joined(im, node, parts, axis, as_stored=True))
    return True


def slope(im: Importer, node: OnnxNode) -> Unary:
    return Unary(alpha=float(np.float32(im.attribute(node, "alpha", 0.01))))


CLUSTERS: dict[str, Cluster] = {
    "Conv": conv,
    "Gemm": gemm,
    "MatMul": matmul,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "Softmax": softmax,
    "Add": partial(arithmetic, kind="ADD"),
    "Mul": partial(arithmetic, kind="MUL"),
    "ReduceMean": mean,
    "Concat": concat,
    "Sigmoid": unary("LOGISTIC"),
    "Tanh": unary("TANH"),
    "HardSwish": unary("HARD_SWISH"),
    "Elu": unary("ELU"),
    "LeakyRelu": unary("LEAKY_RELU", slope),
}
"""What becomes one operation on integers, where everything around it is quantised; else they return False."""
