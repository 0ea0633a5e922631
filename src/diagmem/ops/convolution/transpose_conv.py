"""TRANSPOSE_CONV: the gradient of a convolution; every output pixel gathers the image pixels that reach it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Nhwc, Node, Padding, Window1D, Window2D
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import (
    MAX_ROWS,
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CChannels,
    CRow,
    CRows,
    CTurn,
    by_type,
    kernel_call,
    require_types,
    values_of,
)
from diagmem.ops.kind import Array, Inputs, Shapes, Values, input_at, known_ints, swept, unless_computed
from diagmem.ops.loops.pixels import PixelLoop
from diagmem.ops.loops.windowed import PixelKind, WindowedLoop, c_window
from diagmem.ops.numerics.quantised import centred_weights, zero_point_of
from diagmem.ops.numerics.weighted_sums import (
    BIAS_TYPE,
    BY_CHANNEL,
    bias_of,
    filter_fields,
    finished,
    requantisation_of,
)
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.signature import Signature, Weights

FILTER, IMAGE = 1, 2
"""Where these stand among the inputs."""

FIELDS = ("window", "filter", "zero_point", "output", "filter_zero_point")
"""Of the kernels' parameters, in the order of the structs."""


@dataclass(frozen=True, slots=True)
class TransposeConv:
    """Inputs: the output's shape, filter (output channels, height, width, input channels), image, bias (optional).
    `bias_type`: TFLite's code for the type of biases; TensorFlow Lite Micro does not look at it."""

    padding: Padding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    activation: Activation = Activation.NONE
    bias_type: int = 0


@dataclass(frozen=True, slots=True)
class GatheredAxis:
    """A window seen from its other end: `window` slides over the output, one place for each image row or column."""

    window: Window1D

    @property
    def pairs(self) -> int:
        return self.window.pairs

    def last_taps(self) -> tuple[IntArray, IntArray]:
        window, image = self.window, np.flatnonzero(self.window.tap_counts())
        last = window.end_taps()[image] - 1
        return image * window.stride - window.pad_before + last * window.dilation, image

    def taps(self) -> tuple[IntArray, IntArray]:
        image, outputs = self.window.taps()
        order = np.argsort(outputs, kind="stable")
        return outputs[order], image[order]

    def first_reads(self) -> tuple[IntArray, IntArray]:
        outputs, image = self.taps()
        kept, first = np.unique(outputs, return_index=True)
        return kept, image[first]


class TransposeConvKind(PixelKind):
    names = clamps = ("TRANSPOSE_CONV",)
    orders = (Order.REFERENCE, Order.BUFFERED)
    takes = Signature((3, 4), data=IMAGE, numbers=(0,), weights=Weights(axis=0, filter=FILTER, bias=3))
    table = Table(TransposeConv, ("Padding", "StrideH", "StrideW", "FusedActivationFunction", BIAS_TYPE))

    @unless_computed
    def output_shapes(self, name: str, attributes: TransposeConv, inputs: Inputs) -> Shapes:
        shape = known_ints(inputs, 0)
        if len(shape) != 4:
            raise ModelError(f"the output's shape {list(shape)} needs 4 axes; the file is damaged")
        _window(attributes, inputs, Nhwc(*shape))
        return (shape,)

    def loop(self, node: Node) -> PixelLoop:
        window = _window(node.attributes, node.inputs, Nhwc.of(node.output))
        return PixelLoop.of(node.input(IMAGE), node.output, GatheredAxis(window.rows), GatheredAxis(window.cols), 1)

    def accesses(self, node: Node, order: Order) -> Accesses:
        if order is Order.BUFFERED:
            return swept(node, {IMAGE: Runs.of(0, node.input(IMAGE).elems, 0, stride=0)})
        return super().accesses(node, order)

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        is_read_first = position == IMAGE and order is Order.BUFFERED
        return None if is_read_first else super().closed_separation(node, position, order, output)

    def macs(self, node: Node) -> int:
        filters = Nhwc.of(node.input(FILTER))
        return node.input(IMAGE).elems * filters.height * filters.width * filters.batch

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        _, filters, image, *rest = inputs
        if node.output.dtype is not DType.FLOAT32:
            filters = centred_weights(node.input(FILTER), filters).astype(np.int64)
            image = image.astype(np.int64) - zero_point_of(node.input(IMAGE))
        return (finished(_weighted(node), 0, _sums(node, image, filters), rest[0] if rest else None),)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return (*self.cut_to_rows(node, variant), Cut(Along.CHANNELS, node.output.shape[-1]))

    def c_row_call(self, node: Node) -> CCall:
        call, window = self.c_call(node), _window(node.attributes, node.inputs, Nhwc.of(node.output))
        arguments = (CRows(node.input(IMAGE), window.rows, is_transposed=True), CTurn.NUMBER, CRow(node.output))
        return replace(call, function=f"{call.function}_row", arguments=arguments)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, dict.fromkeys(QUANTISED_OR_FLOAT, _call), data=IMAGE)


def _window(attributes: TransposeConv, inputs: Inputs, out: Nhwc) -> Window2D:
    """The window of the convolution that leads from the output back to the image."""
    filters, image = Nhwc.of(input_at(inputs, FILTER)), Nhwc.of(input_at(inputs, IMAGE))
    window = Window2D.resolve(
        out,
        (filters.height, filters.width),
        (attributes.stride_h, attributes.stride_w),
        padding=attributes.padding,
    )
    if image != (out.batch, window.rows.size_out, window.cols.size_out, filters.depth) or out.depth != filters.batch:
        raise ModelError(
            f"image {list(image)} and filter {list(filters)} do not make the output {list(out)}; the file is damaged"
        )
    return window


def _weighted(node: Node) -> Node:
    """The node with its operands where other convolutions have them: image, filter, bias."""
    return replace(node, inputs=(node.inputs[IMAGE], node.inputs[FILTER], *node.inputs[3:]))


def _sums(node: Node, image: Array, filters: Array) -> Array:
    """Sums of products, one after the other: those of the image's first row, of its second row, …"""
    window = _window(node.attributes, node.inputs, Nhwc.of(node.output))
    sums = np.zeros(node.output.shape, image.dtype)
    for k_y in reversed(range(window.rows.kernel)):
        for k_x in reversed(range(window.cols.kernel)):
            (y, in_y), (x, in_x) = _reached(window.rows, k_y), _reached(window.cols, k_x)
            pixels, weights = image[:, in_y][:, :, in_x], filters[:, k_y, k_x]
            for c in range(image.shape[3]):
                sums[:, y[:, None], x] += pixels[..., c, None] * weights[:, c]
    return sums


def _reached(axis: Window1D, tap: int) -> tuple[IntArray, IntArray]:
    """Outputs that are reached with this tap, and the inputs that reach them."""
    inputs = np.arange(axis.size_out, dtype=np.int64)
    outputs = inputs * axis.stride - axis.pad_before + tap
    inside = (outputs >= 0) & (outputs < axis.size_in)
    return outputs[inside], inputs[inside]


def _call(node: Node) -> CCall:
    """The kernel's window is that of the convolution which leads from the output back to the image."""
    weighted, window = _weighted(node), _window(node.attributes, node.inputs, Nhwc.of(node.output))
    slid = WindowedLoop.of(node.input(IMAGE), node.output, window.rows, window.cols, 1)
    dtype, filters, bias = node.input(IMAGE).dtype, node.input(FILTER), bias_of(weighted)
    if dtype is not DType.INT16:
        require_types(dtype, (filters,))
    own = {"window": c_window(slid), **filter_fields(weighted, 0, values_of(filters))}
    if dtype in (DType.INT8, DType.UINT8):
        # The image is centred as it is read, so that the bias stays what it is.
        values = np.zeros(node.output.shape[3], np.int32) if bias is None else values_of(bias)
        own["output"] = requantisation_of(weighted, 0).c_channels(values)
        own["zero_point"] = zero_point_of(node.input(IMAGE))
    own = {name: own[name] for name in FIELDS if name in own}
    limits = {MAX_ROWS: -(-window.rows.kernel // window.rows.stride)}
    arguments, passes = (node.input(IMAGE), node.output), math.prod(node.input(IMAGE).shape[:3])
    name = f"transpose_conv_{SUFFIXES[node.output.dtype]}"
    call = kernel_call("transpose_conv", own, arguments, limits, passes, function=name, struct=name)
    return replace(call, channels=CChannels(("window.out_depth",), BY_CHANNEL))


KIND = TransposeConvKind()
