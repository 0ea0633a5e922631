"""Images: convolutions, pooling and resizing. A 1-D image, a line of pixels, is an image of width one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from diagmem.frontends.onnx.builder import CHANNELS_LAST, Constant, Dims, Stored, Value, stored_as
from diagmem.frontends.onnx.importer import Importer, Lowering, Parts, composed, integers
from diagmem.frontends.onnx.lowering.arithmetic import binary_of, fused
from diagmem.frontends.onnx.lowering.moving import taken
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.errors import one_line
from diagmem.model.graph import ExplicitPadding, Padding, Shape, Tensor
from diagmem.model.sliding_window import Window1D
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce
from diagmem.ops.resizing.resize import Resize


@dataclass(frozen=True, slots=True)
class Window:
    """A window over height and width. `before`, `after`: padding."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def pads(self) -> bool:
        return any(self.before) or any(self.after)

    def padding(self, size: Sequence[int]) -> Padding | ExplicitPadding:
        """By TensorFlow's name, if it has one."""
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
    """Batch, height, width, channels; a line of pixels is a column."""
    return (0, 2, None, 1) if len(shape) == 3 else (0, 2, 3, 1)


def image_shape(im: Importer, node: OnnxNode, shape: Shape) -> tuple[int, ...]:
    """Height and width of an image in the file."""
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
        raise im.damaged(node, "strides, dilations, pads or kernel_shape have a wrong length")
    if min(*stride, *dilation, *kernel) < 1 or min(pads) < 0 or max(*stride, *dilation, *kernel, *pads) > 1 << 20:
        raise im.damaged(node, "strides, dilations, pads or kernel_shape are out of range")
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
    columns = zip((kernel, stride, dilation, before, after), (1, 1, 1, 0, 0), strict=True)
    return Window(*((int(values[0]), int(values[1]) if rank > 1 else missing) for values, missing in columns))


def _missing(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    """The padding that one more window needs, where sizes are rounded up. A window must not start behind the image."""
    extent = (kernel - 1) * dilation + 1
    spare = (size + before + after - extent) % stride
    windows = (size + before + after - extent) // stride + 1
    return stride - spare if spare and windows * stride < size + before else 0


@dataclass(frozen=True, slots=True)
class Convolution:
    """As our kernels take it: the image, and weights in our layout with output channels along `channel_axis`."""

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
    """A Conv; with a group for each of several channels, a depthwise one."""
    size = image_shape(im, node, image.shape)
    groups = im.attribute(node, "group", 1)
    if weights.ndim != len(image.shape) or weights.shape[1] * groups != image.shape[1] or weights.shape[0] % groups:
        raise im.refuse(node, f"weights {list(weights.shape)} and group {groups} do not fit {list(image.shape)}")
    window = window_of(im, node, size, weights.shape[2:])
    kernel = weights.reshape(*weights.shape[:2], *window.kernel)
    tensor = im.build.form(image, image_dims(image.shape), as_stored)
    rest = window.padding(tensor.shape[1:3]), *window.stride, *window.dilation
    if groups == image.shape[1] > 1:
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
    """A kernel's output image, as the file sees it."""
    batch, height, width, channels = tensor.shape
    shape = (batch, channels, height) if rank == 3 else (batch, channels, height, width)
    return Stored(tensor, stored_as(shape, image_dims(shape)), shape)


def _batch_normalisation_behind(im: Importer, node: OnnxNode, channels: int) -> tuple[Any, Any, str] | None:
    """Factor, shift and output of a batch normalisation that alone reads this node's output, to fuse both."""
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
        raise im.damaged(node, f"its parameters are not those of {channels} channels")
    epsilon = im.attribute(node, "epsilon", 1e-5)
    if im.attribute(node, "training_mode", 0):
        raise im.refuse(node, "it is in training mode; export the model for inference")
    for name in ("momentum", "spatial", "is_test"):
        im.attribute(node, name, None)
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    return factor.astype(np.float32), (bias - mean * factor).astype(np.float32)


def conv_transpose(im: Importer, node: OnnxNode) -> None:
    """All that the windows reach, then the wanted part of it."""
    image, weights = im.input(node), im.array(node, 1)
    size, groups = image_shape(im, node, image.shape), im.attribute(node, "group", 1)
    rank = len(size)
    if weights.ndim != rank + 2 or weights.shape[0] != image.shape[1] or groups < 1 or image.shape[1] % groups:
        raise im.refuse(node, f"weights {list(weights.shape)} and group {groups} do not fit {list(image.shape)}")
    weights = _ungrouped(im, weights, groups)
    window = window_of(im, node, [1] * rank, weights.shape[2:])
    weights = weights.reshape(*weights.shape[:2], *window.kernel)
    if window.dilation != (1, 1):
        weights, window = _spread(im, weights, window)
    reached = [_reached(im, node, axis, size, window) for axis in range(rank)] + [(1, 0, 1)] * (2 - rank)
    full, begin, wanted = zip(*reached, strict=True)
    name, bias, channels = node.outputs[0], im.optional_array(node, 2), weights.shape[1]
    tensor = im.build.form(image, image_dims(image.shape))
    shape = im.build.ints([tensor.shape[0], *full, channels], "shape")
    inputs = [shape, im.build.constant(weights.transpose(1, 2, 3, 0), "filter"), tensor]
    if bias is not None:
        inputs.append(im.build.constant(bias, "bias"))
    whole = im.build.make("TRANSPOSE_CONV", inputs, TransposeConv(Padding.VALID, *window.stride), name=name)
    if full != wanted:
        ends = im.build.ints([0, *begin, 0], "begin"), im.build.ints([tensor.shape[0], *wanted, channels], "size")
        whole = im.build.make("SLICE", [whole, *ends], name=name)
    fused(im, name, bind_image(whole, len(image.shape)))


def _ungrouped(im: Importer, weights: Any, groups: int) -> Any:
    """Weights for all channels together; those between groups are zero."""
    if groups == 1:
        return weights
    given, made = weights.shape[0] // groups, weights.shape[1]
    im.build.take(weights.size * groups)
    whole = np.zeros((weights.shape[0], groups * made, *weights.shape[2:]), weights.dtype)
    for group in range(groups):
        rows = slice(group * given, (group + 1) * given)
        whole[rows, group * made : (group + 1) * made] = weights[rows]
    return whole


def _spread(im: Importer, weights: Any, window: Window) -> tuple[Any, Window]:
    """The weights with zeros between taps in place of dilation."""
    kernel = tuple((k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True))
    im.build.take(math.prod((*weights.shape[:2], *kernel)))
    whole = np.zeros((*weights.shape[:2], *kernel), weights.dtype)
    whole[:, :, :: window.dilation[0], :: window.dilation[1]] = weights
    return whole, replace(window, kernel=(kernel[0], kernel[1]), dilation=(1, 1))


def _reached(im: Importer, node: OnnxNode, axis: int, size: Sequence[int], window: Window) -> tuple[int, int, int]:
    """How far the windows reach along an axis, and where the wanted part of that starts, and its size."""
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
        raise im.damaged(node, "its padding is not possible")
    return max(whole, low + wanted), low, wanted


def pool(im: Importer, node: OnnxNode) -> Value:
    image = im.stored(node, as_stored=node.kind == "MaxPool")
    size = image_shape(im, node, image.shape)
    kernel = im.attribute(node, "kernel_shape")
    counts_padding = im.attribute(node, "count_include_pad", 0)
    if len(node.outputs) > 1 and im.uses[node.outputs[1]]:
        raise im.refuse(node, "its second output, the indices of the maxima, is not supported")
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
    bound = bind_image(im.build.moved(kind, [tensor], attributes, node.outputs[0]), len(image.shape))
    return replace(bound, is_dequantised=image.is_dequantised and node.kind == "MaxPool")


def _padded_image(
    im: Importer, node: OnnxNode, tensor: Tensor, window: Window, size: Sequence[int]
) -> tuple[Tensor, Window]:
    """Padding that counts as zeros is added as zeros. What rounding up adds does not count, so it stays."""
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


def global_pool(im: Importer, node: OnnxNode) -> Value:
    image = im.stored(node)
    image_shape(im, node, image.shape)
    tensor = im.build.form(image, image_dims(image.shape))
    inputs = [tensor, im.build.ints([1, 2], "axes")]
    kind = "MEAN" if node.kind == "GlobalAveragePool" else "REDUCE_MAX"
    return bind_image(im.build.make(kind, inputs, Reduce(keep_dims=True), name=node.outputs[0]), len(image.shape))


def batch_normalisation(im: Importer, node: OnnxNode) -> None:
    """One that was not fused into a convolution: a product and a sum."""
    value = im.stored(node)
    if len(value.shape) < 2:
        raise im.damaged(node, f"{list(value.shape)} has no channels")
    factor, shift = normalisation(im, node, value.shape[1])
    shape = (-1, *[1] * (len(value.shape) - 2))
    scaled = binary_of(im, "MUL", value, Constant(factor.reshape(shape)))
    fused(im, node.outputs[0], binary_of(im, "ADD", scaled, Constant(shift.reshape(shape)), node.outputs[0]))


def resize(im: Importer, node: OnnxNode) -> Stored:
    """Resize and Upsample: by our kernels where these read the same pixels, else axis by axis."""
    shape = im.input(node).shape
    size, scales = _new_size(im, node, shape)
    newer = im.opset(node) >= 11 and node.kind == "Resize"
    mode = im.attribute(node, "mode", "nearest")
    where = im.attribute(node, "coordinate_transformation_mode", "half_pixel" if newer else "asymmetric")
    rounding = im.attribute(node, "nearest_mode", "round_prefer_floor" if newer else "floor")
    cubic = _Cubic(float(im.attribute(node, "cubic_coeff_a", -0.75)), bool(im.attribute(node, "exclude_outside", 0)))
    im.attribute(node, "extrapolation_value", None)
    if im.attribute(node, "antialias", 0) or im.attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise im.refuse(node, "antialias and aspect ratios are not supported")
    axes = [_Axis(*axis) for axis in zip(shape, size, scales, strict=True)]
    value = im.stored(node, as_stored=mode == "nearest")
    attributes = None
    if len(shape) == 4 and size[:2] == shape[:2]:
        attributes = _resize_mode((mode, where, rounding), axes[2:])
    if attributes is None:
        return _by_axes(im, node, value, axes, (mode, where, rounding), cubic)
    kind = "RESIZE_NEAREST_NEIGHBOR" if mode == "nearest" else "RESIZE_BILINEAR"
    tensor = im.build.form(value, CHANNELS_LAST, as_stored=True)
    made = im.build.moved(kind, [tensor, im.build.ints(size[2:], "size")], attributes, node.outputs[0])
    return Stored(made, stored_as(size, CHANNELS_LAST), size, value.is_dequantised)


ELEMS_FOR_A_PLACE = 64
"""To work out one place of a new axis takes as long as so many elements."""


class _Cubic(NamedTuple):
    """`slope`: coefficient a of Keys' kernel. `inside_only`: pixels outside the image do not count."""

    slope: float
    inside_only: bool

    def weight(self, apart: float) -> float:
        x, a = abs(apart), self.slope
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def _by_axes(
    im: Importer, node: OnnxNode, value: Stored, axes: Sequence[_Axis], modes: tuple[str, str, str], cubic: _Cubic
) -> Stored:
    """One axis after the other: pixels that are copied, or weighted sums of them."""
    mode, where, rounding = modes
    if mode not in ("nearest", "linear", "cubic") or where not in PLACES:
        raise im.refuse(node, f"mode {one_line(mode)}, {one_line(where)} is not supported")
    if where == "align_corners" and not all(axis.is_even for axis in axes):
        raise im.refuse(node, "align_corners with scales that give no whole sizes: runtimes differ there; give sizes")
    for axis, sizes in enumerate(axes):
        if sizes.new == sizes.old and (sizes.scale == 1.0 or (mode == "nearest" and sizes.is_even)):
            continue
        if mode == "nearest":
            value = taken(im, value, axis, np.array(sizes.theirs(where, rounding)))
        else:
            value = _weighted(im, value, axis, sizes.taps(where, cubic if mode == "cubic" else None))
    return value


def _weighted(im: Importer, value: Stored, axis: int, taps: Sequence[Sequence[tuple[int, float]]]) -> Stored:
    """A sum of products, one for each tap of a pixel."""
    shape = [-1, *[1] * (len(value.shape) - 1 - axis)]
    made: Stored | None = None
    for column in zip(*taps, strict=True):
        weights = np.array([weight for _, weight in column], np.float32)
        if not weights.any():
            continue
        part = taken(im, value, axis, np.array([place for place, _ in column]))
        product = binary_of(im, "MUL", part, Constant(weights.reshape(shape)))
        made = product if made is None else binary_of(im, "ADD", made, product)
    return value if made is None else made


def _new_size(im: Importer, node: OnnxNode, shape: Shape) -> tuple[Shape, list[float]]:
    """The new shape, and each axis' scale."""
    newer = node.kind == "Resize" and im.opset(node) >= 11
    rank = len(shape)
    axes = [im.axis(node, a, rank) for a in im.attribute(node, "axes", [])] or list(range(rank))
    wanted = im.optional_array(node, 3) if newer else None
    size, factors = list(shape), [1.0] * rank
    if wanted is not None and wanted.size:
        if wanted.size != len(axes):
            raise im.damaged(node, "its sizes have a wrong length")
        for axis, n in zip(axes, integers(wanted), strict=True):
            size[axis], factors[axis] = n, n / shape[axis]
    else:
        is_input = len(node.inputs) > 1
        given = im.optional_array(node, 2 if newer else 1) if is_input else im.attribute(node, "scales")
        scales = np.asarray([] if given is None else given).reshape(-1)
        if len(scales) != len(axes) or not np.all(np.isfinite(scales)):
            raise im.damaged(node, "its scales are no numbers, or not one for each axis")
        for axis, scale in zip(axes, scales, strict=True):
            size[axis], factors[axis] = math.floor(shape[axis] * float(scale)), float(scale)
    if min(size) < 1:
        raise im.damaged(node, f"size {size} is not possible")
    im.build.take(ELEMS_FOR_A_PLACE * sum(size))
    return tuple(size), factors


class _Axis(NamedTuple):
    """One axis of an image before and after."""

    old: int
    new: int
    scale: float

    @property
    def is_even(self) -> bool:
        """Whether the size grows by exactly the scale."""
        return self.old * self.scale == self.new

    def ours(self, align: bool, half: bool) -> list[int]:
        """The pixels that our kernel reads."""
        step = np.float32((self.old - 1) / (self.new - 1) if align and self.new > 1 else self.old / self.new)
        places = [(np.float32(i) + np.float32(0.5 if half else 0)) * step for i in range(self.new)]
        found = [math.floor(float(p) + 0.5) if align else math.floor(p) for p in places]
        return [min(i, self.old - 1) for i in found]

    def theirs(self, where: str, rounding: str) -> list[int]:
        """The pixels that the file asks for."""
        pick = _ROUNDINGS.get(rounding, math.floor)
        return [min(max(pick(PLACES[where](self, i)), 0), self.old - 1) for i in range(self.new)]

    def taps(self, where: str, cubic: _Cubic | None) -> list[list[tuple[int, float]]]:
        """For each new pixel, the old ones that it sums and their weights: two, or four if cubic."""
        return [self._taps(PLACES[where](self, i), cubic) for i in range(self.new)]

    def _taps(self, place: float, cubic: _Cubic | None) -> list[tuple[int, float]]:
        last = self.old - 1
        if cubic is None:
            held = min(max(place, 0.0), float(last))
            first = min(math.floor(held), last)
            return [(first, 1 - (held - first)), (min(first + 1, last), held - first)]
        first = math.floor(place)
        found = [(n, cubic.weight(place - n)) for n in range(first - 1, first + 3)]
        if cubic.inside_only:
            found = [(n, weight if 0 <= n <= last else 0.0) for n, weight in found]
            total = sum(weight for _, weight in found)
            found = [(n, weight / total) for n, weight in found]
        return [(min(max(n, 0), last), weight) for n, weight in found]


def _half_pixel(axis: _Axis, i: int) -> float:
    return (i + 0.5) / axis.scale - 0.5


PLACES: dict[str, Callable[[_Axis, int], float]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": lambda a, i: a.old / 2 * (1 - a.new / (a.old * a.scale)) + (i + 0.5) / a.scale - 0.5,
    "pytorch_half_pixel": lambda a, i: _half_pixel(a, i) if a.new > 1 else 0.0,
    "tf_half_pixel_for_nn": lambda a, i: (i + 0.5) / a.scale,
    "align_corners": lambda a, i: i * (a.old - 1) / (a.new - 1) if a.new > 1 else 0.0,
    "asymmetric": lambda a, i: i / a.scale,
}
"""The position of pixel i in the old image, by mode."""

_ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}
_LINEAR = {"asymmetric": Resize(), "align_corners": Resize(True), "half_pixel": Resize(half_pixel_centers=True)}


def _resize_mode(modes: tuple[str, str, str], axes: Sequence[_Axis]) -> Resize | None:
    """The attributes with which our kernel reads the pixels that the file asks for, if there are any."""
    mode, where, rounding = modes
    if mode == "nearest" and where in PLACES:
        for align, half in ((False, False), (False, True), (True, False)):
            if all(axis.ours(align, half) == axis.theirs(where, rounding) for axis in axes):
                return Resize(align, half)
    if mode == "linear" and all(axis.is_even for axis in axes):
        same = "half_pixel" if where == "pytorch_half_pixel" and all(axis.new > 1 for axis in axes) else where
        return _LINEAR.get(same)
    return None


def local_response_normalisation(parts: Parts, x: str) -> None:
    """The sum of the squares of neighbouring channels is a pointwise convolution with ones."""
    shape, size = parts.im.values[x].shape, parts.attribute("size")
    defaults = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
    alpha, beta, bias = (float(parts.attribute(name, default)) for name, default in defaults.items())
    if len(shape) != 4 or not 1 <= size <= 1 << 16:
        raise parts.im.refuse(parts.node, "only images, and sizes above zero, are supported")
    parts.im.build.take(shape[1] ** 2)
    channels = np.arange(shape[1])
    apart = channels[None] - channels[:, None]
    near = (apart >= -((size - 1) // 2)) & (apart <= size // 2)
    weights = (near * (alpha / size)).astype(np.float32)[:, :, None, None]
    sums = parts("Conv", parts("Mul", x, x), weights, np.full(shape[1], bias, np.float32))
    parts.end("Mul", x, parts("Pow", sums, -beta))


LOWERINGS: dict[str, Lowering] = {
    "LRN": composed(local_response_normalisation),
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    **dict.fromkeys(("MaxPool", "AveragePool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), global_pool),
    "BatchNormalization": batch_normalisation,
    **dict.fromkeys(("Resize", "Upsample"), resize),
}
