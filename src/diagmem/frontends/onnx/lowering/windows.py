"""Convolutions and pools: windows that slide over one or two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagmem.frontends.onnx.builder import Constant, Dims, Stored, Value, stored_as
from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.lowering.elementwise import binary_of, fused
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import ExplicitPadding, Padding, Shape, Tensor
from diagmem.model.sliding_window import Window1D
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce


@dataclass(frozen=True, slots=True)
class Window:
    """A window over height and width; a line of pixels has width one. `before`, `after`: padding."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def pads(self) -> bool:
        return any(self.before) or any(self.after)

    def padding(self, size: Sequence[int]) -> Padding | ExplicitPadding:
        """As TensorFlow would call it, if it has a name for it."""
        if not self.pads:
            return Padding.VALID
        same = [
            Window1D.resolve(n, k, s, d, Padding.SAME)
            for n, k, s, d in zip(size, self.kernel, self.stride, self.dilation, strict=True)
        ]
        given = self.before, self.after
        if given == (tuple(w.pad_before for w in same), tuple(w.pad_after for w in same)):
            return Padding.SAME
        return ExplicitPadding(self.before[0], self.after[0], self.before[1], self.after[1])


def image_dims(shape: Shape) -> Dims:
    """Batch, height, width, channels; a line of pixels stands upright."""
    return (0, 2, None, 1) if len(shape) == 3 else (0, 2, 3, 1)


def image_shape(im: Importer, node: OnnxNode, shape: Shape) -> tuple[int, ...]:
    """Height and width of an image of the file."""
    if len(shape) not in (3, 4):
        raise im.refuse(node, f"a tensor of {len(shape)} axes; images have 4, lines of pixels 3")
    return shape[2:]


def window_of(im: Importer, node: OnnxNode, size: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window that the attributes describe, over an image of that size."""
    rank = len(size)
    stride = im.attribute(node, "strides", [1] * rank)
    dilation = im.attribute(node, "dilations", [1] * rank)
    pads = im.attribute(node, "pads", [0] * (2 * rank))
    auto = im.attribute(node, "auto_pad", "NOTSET")
    im.attribute(node, "kernel_shape", None)
    ceil = im.attribute(node, "ceil_mode", 0)
    if not len(stride) == len(dilation) == len(kernel) == rank or len(pads) != 2 * rank:
        raise im.refuse(node, "strides, dilations, pads or kernel_shape have a wrong length; the file is damaged")
    if min(*stride, *dilation, *kernel) < 1 or min(pads) < 0 or max(*stride, *dilation, *kernel, *pads) > 1 << 20:
        raise im.refuse(node, "strides, dilations, pads or kernel_shape are out of range; the file is damaged")
    before, after = list(pads[:rank]), list(pads[rank:])
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for axis in range(rank):
            same = Window1D.resolve(size[axis], kernel[axis], stride[axis], dilation[axis], Padding.SAME)
            small, large = same.pad_before, same.pad_after
            before[axis], after[axis] = (small, large) if auto == "SAME_UPPER" else (large, small)
    elif auto == "VALID":
        before, after = [0] * rank, [0] * rank
    elif auto != "NOTSET":
        raise im.refuse(node, "its auto_pad is not known")
    if ceil:
        for axis in range(rank):
            after[axis] += _missing(size[axis], kernel[axis], stride[axis], dilation[axis], before[axis], after[axis])
    return Window(_pair(kernel, 1), _pair(stride, 1), _pair(dilation, 1), _pair(before, 0), _pair(after, 0))


def _pair(values: Sequence[int], missing: int) -> tuple[int, int]:
    """For height and width; a line of pixels has no width."""
    return int(values[0]), int(values[1]) if len(values) > 1 else missing


def _missing(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    """What padding lacks for one more window, where sizes are rounded up. A window must not start behind the image."""
    extent = (kernel - 1) * dilation + 1
    spare = (size + before + after - extent) % stride
    windows = (size + before + after - extent) // stride + 1
    return stride - spare if spare and windows * stride < size + before else 0


@dataclass(frozen=True, slots=True)
class Convolution:
    """As our kernels take it: the image, weights in our order with output channels along `channel_axis`."""

    kind: str
    tensor: Tensor
    filter: Any
    channel_axis: int
    attributes: Conv2D | DepthwiseConv2D


def convolution(
    im: Importer,
    node: OnnxNode,
    image: Value,
    weights: Any,
    activation: Activation = Activation.NONE,
    as_stored: bool = False,
) -> Convolution:
    """A Conv; one with a group for each channel is a depthwise one."""
    size = image_shape(im, node, image.shape)
    groups = im.attribute(node, "group", 1)
    if weights.ndim != len(image.shape) or weights.shape[1] * groups != image.shape[1] or weights.shape[0] % groups:
        raise im.refuse(node, f"weights {list(weights.shape)} and group {groups} do not fit {list(image.shape)}")
    window = window_of(im, node, size, weights.shape[2:])
    kernel = weights.reshape(*weights.shape[:2], *window.kernel)
    tensor = im.build.form(image, image_dims(image.shape), as_stored)
    rest = window.padding(tensor.shape[1:3]), *window.stride, *window.dilation
    if groups == image.shape[1] and weights.shape[1] == 1:
        depthwise = DepthwiseConv2D(*rest, weights.shape[0] // groups, activation)
        return Convolution("DEPTHWISE_CONV_2D", tensor, kernel.transpose(1, 2, 3, 0), 3, depthwise)
    return Convolution("CONV_2D", tensor, kernel.transpose(0, 2, 3, 1), 0, Conv2D(*rest, activation))


def conv(im: Importer, node: OnnxNode) -> None:
    image, weights = im.input(node), im.array(node, 1)
    found = convolution(im, node, image, weights)
    name, data, bias = node.outputs[0], found.filter, im.optional_array(node, 2)
    scale = _batch_normalisation_behind(im, node, weights.shape[0])
    if scale is not None:
        factor, shift, name = scale
        data = (data * np.expand_dims(factor, [a for a in range(4) if a != found.channel_axis])).astype(np.float32)
        bias = ((bias if bias is not None else 0) * factor + shift).astype(np.float32)
    bias = np.zeros(weights.shape[0], dtype=np.float32) if bias is None else bias
    inputs = [found.tensor, im.build.constant(data, "filter"), im.build.constant(bias, "bias")]
    made = im.build.make(found.kind, inputs, found.attributes, name=name)
    fused(im, name, bind_image(made, len(image.shape)))


def bind_image(tensor: Tensor, rank: int) -> Stored:
    """An image that a kernel made, as the file sees it."""
    batch, height, width, channels = tensor.shape
    shape = (batch, channels, height) if rank == 3 else (batch, channels, height, width)
    return Stored(tensor, stored_as(shape, image_dims(shape)), shape)


def _batch_normalisation_behind(im: Importer, node: OnnxNode, channels: int) -> tuple[Any, Any, str] | None:
    """Factor and shift of a batch normalisation that alone reads this node's output: both become one. Its output."""
    behind = im.next_only(node.outputs[0], ["BatchNormalization"])
    if behind is None or behind.inputs[0] != node.outputs[0]:
        return None
    if not all(name in im.model.constants or name in im.values for name in behind.inputs[1:]):
        return None
    factor, shift = normalisation(im, behind, channels)
    im.done.add(behind.number)
    return factor, shift, behind.outputs[0]


def normalisation(im: Importer, node: OnnxNode, channels: int) -> tuple[Any, Any]:
    """Factor and shift for each channel."""
    scale, bias, mean, variance = parameters = [im.array(node, place) for place in (1, 2, 3, 4)]
    if any(each.shape != (channels,) for each in parameters):
        raise im.refuse(node, f"its parameters are not those of {channels} channels; the file is damaged")
    epsilon = im.attribute(node, "epsilon", 1e-5)
    if im.attribute(node, "training_mode", 0):
        raise im.refuse(node, "it is in training mode; export the model for inference")
    for name in ("momentum", "spatial", "is_test"):
        im.attribute(node, name, None)
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    return factor.astype(np.float32), (bias - mean * factor).astype(np.float32)


def conv_transpose(im: Importer, node: OnnxNode) -> None:
    image, weights = im.input(node), im.array(node, 1)
    size = image_shape(im, node, image.shape)
    rank = len(size)
    groups = im.attribute(node, "group", 1)
    if weights.ndim != rank + 2 or weights.shape[0] != image.shape[1] or groups < 1 or image.shape[1] % groups:
        raise im.refuse(node, f"weights {list(weights.shape)} and group {groups} do not fit {list(image.shape)}")
    weights = _ungrouped(weights, groups)
    window = window_of(im, node, [1] * rank, weights.shape[2:])
    weights = weights.reshape(*weights.shape[:2], *window.kernel)
    if window.dilation != (1, 1):
        weights, window = _spread(im, node, weights, window)
    reached = [_reached(im, node, axis, size, window) for axis in range(rank)] + [(1, (0, 1))] * (2 - rank)
    _transpose_conv(im, node, image, weights, window, reached)


def _ungrouped(weights: Any, groups: int) -> Any:
    """Weights for all channels together: those between groups are zero."""
    if groups == 1:
        return weights
    given, made = weights.shape[0] // groups, weights.shape[1]
    whole = np.zeros((weights.shape[0], groups * made, *weights.shape[2:]), weights.dtype)
    for group in range(groups):
        rows = slice(group * given, (group + 1) * given)
        whole[rows, group * made : (group + 1) * made] = weights[rows]
    return whole


def _spread(im: Importer, node: OnnxNode, weights: Any, window: Window) -> tuple[Any, Window]:
    """Taps that lie apart, with zeros between them."""
    kernel = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True))
    if math.prod(kernel) * weights.shape[0] * weights.shape[1] > 1 << 26:
        raise im.refuse(node, "its dilations make weights that are too large")
    whole = np.zeros((*weights.shape[:2], *kernel), weights.dtype)
    whole[:, :, :: window.dilation[0], :: window.dilation[1]] = weights
    return whole, replace(window, kernel=(kernel[0], kernel[1]), dilation=(1, 1))


def _reached(
    im: Importer, node: OnnxNode, axis: int, size: Sequence[int], window: Window
) -> tuple[int, tuple[int, int]]:
    """How far the windows reach along an axis, and which part of that is wanted: where it starts, and its size."""
    auto = node.attributes.get("auto_pad", b"NOTSET")
    shape = im.attribute(node, "output_shape", [])
    extra = im.attribute(node, "output_padding", [0] * len(size))[axis]
    whole = (size[axis] - 1) * window.stride[axis] + window.kernel[axis]
    if auto in (b"SAME_UPPER", b"SAME_LOWER") or shape:
        wanted = shape[-len(size) :][axis] if shape else size[axis] * window.stride[axis]
        total = whole + extra - wanted
        low = total // 2 if auto == b"SAME_UPPER" else total - total // 2
    else:
        low = window.before[axis]
        wanted = whole + extra - low - window.after[axis]
    if low < 0 or wanted < 1 or low + wanted > whole + extra:
        raise im.refuse(node, "its padding makes no sense; the file is damaged")
    return max(whole, low + wanted), (low, wanted)


def _transpose_conv(
    im: Importer, node: OnnxNode, image: Any, weights: Any, window: Window, reached: Sequence[Any]
) -> None:
    """The whole of what the windows reach, then the part that is wanted."""
    full, cut = zip(*reached, strict=True)
    bias = im.optional_array(node, 2)
    channels = weights.shape[1]
    tensor = im.build.form(image, image_dims(image.shape))
    shape = im.build.ints([tensor.shape[0], *full, channels], "shape")
    data = im.build.constant(weights.transpose(1, 2, 3, 0), "filter")
    inputs = [shape, data, tensor]
    if bias is not None:
        inputs.append(im.build.constant(bias, "bias"))
    attributes = TransposeConv(Padding.VALID, *window.stride)
    name = node.outputs[0]
    whole = im.build.make("TRANSPOSE_CONV", inputs, attributes, name=name)
    if tuple(full) != tuple(n for _, n in cut):
        begin = im.build.ints([0, *(low for low, _ in cut), 0], "begin")
        wanted = im.build.ints([tensor.shape[0], *(n for _, n in cut), channels], "size")
        whole = im.build.make("SLICE", [whole, begin, wanted], name=name)
    fused(im, name, bind_image(whole, len(image.shape)))


def pool(im: Importer, node: OnnxNode) -> None:
    image = im.stored(node, as_stored=node.kind == "MaxPool")
    size = image_shape(im, node, image.shape)
    kernel = im.attribute(node, "kernel_shape")
    counts_padding = im.attribute(node, "count_include_pad", 0)
    if len(node.outputs) > 1 and im.uses[node.outputs[1]]:
        raise im.refuse(node, "its second output, the places of the largest, is not supported")
    if im.attribute(node, "storage_order", 0) or not isinstance(kernel, list) or len(kernel) != len(size):
        raise im.refuse(node, "storage_order or kernel_shape is not supported")
    window = window_of(im, node, size, kernel)
    if window.dilation != (1, 1):
        raise im.refuse(node, "dilations of pools are not supported")
    tensor = im.build.form(image, image_dims(image.shape), as_stored=node.kind == "MaxPool")
    if counts_padding and window.pads and node.kind == "AveragePool":
        tensor, window = _padded_image(im, node, tensor, window, size)
    kind = "MAX_POOL_2D" if node.kind == "MaxPool" else "AVERAGE_POOL_2D"
    attributes = Pool2D(window.padding(tensor.shape[1:3]), *window.stride, *window.kernel)
    made = im.build.make(kind, [tensor], attributes, name=node.outputs[0], quantisation=tensor.quantisation)
    bound = bind_image(made, len(image.shape))
    im.bind(node.outputs[0], replace(bound, is_dequantised=image.is_dequantised and node.kind == "MaxPool"))


def _padded_image(
    im: Importer, node: OnnxNode, tensor: Tensor, window: Window, size: Sequence[int]
) -> tuple[Tensor, Window]:
    """Where padding counts as zeros, zeros are put there. What rounding up adds counts for nothing, so it stays."""
    rank = len(size)
    pads = im.attribute(node, "pads", [0] * (2 * rank))
    explicit = [(*pads[:rank], *[0] * (2 - rank)), (*pads[rank:], *[0] * (2 - rank))]
    if node.attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        explicit = [window.before, window.after]
    sides = list(zip(*explicit, strict=True))
    paddings = im.build.ints([[0, 0], *(list(side) for side in sides), [0, 0]], "paddings")
    after = tuple(a - e for a, e in zip(window.after, explicit[1], strict=True))
    padded = im.build.make("PAD", [tensor, paddings]) if any(map(any, sides)) else tensor
    return padded, replace(window, before=(0, 0), after=(after[0], after[1]))


def global_pool(im: Importer, node: OnnxNode) -> None:
    image = im.stored(node)
    image_shape(im, node, image.shape)
    tensor = im.build.form(image, image_dims(image.shape))
    kind = "MEAN" if node.kind == "GlobalAveragePool" else "REDUCE_MAX"
    axes = im.build.ints([1, 2], "axes")
    made = im.build.make(kind, [tensor, axes], Reduce(keep_dims=True), name=node.outputs[0])
    im.bind(node.outputs[0], bind_image(made, len(image.shape)))


def batch_normalisation(im: Importer, node: OnnxNode) -> None:
    """One that no convolution in front of it could take in: a product and a sum."""
    value = im.stored(node)
    if len(value.shape) < 2:
        raise im.refuse(node, f"{list(value.shape)} has no channels; the file is damaged")
    factor, shift = normalisation(im, node, value.shape[1])
    shape = (-1, *[1] * (len(value.shape) - 2))
    scaled = binary_of(im, "MUL", value, Constant(factor.reshape(shape)))
    fused(im, node.outputs[0], binary_of(im, "ADD", scaled, Constant(shift.reshape(shape)), node.outputs[0]))


LOWERINGS = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    "BatchNormalization": batch_normalisation,
}
