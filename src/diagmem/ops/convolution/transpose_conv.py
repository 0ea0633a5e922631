"""TRANSPOSE_CONV: the gradient of a convolution; every output pixel gathers the image pixels that reach it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Nhwc, Node, Padding, Tensor, Window1D, Window2D
from diagmem.model.multicore import Along, Cut
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import (
    MAX_ROWS,
    QUANTISED_OR_REAL,
    SUFFIXES,
    CCall,
    CChannels,
    CRow,
    CRows,
    CStruct,
    CTable,
    CTurn,
    Fields,
    by_type,
    kernel_call,
    require_types,
    values_of,
)
from diagmem.ops.kind import Array, Inputs, Shapes, Values, constant_ints, input_at, swept
from diagmem.ops.loops.pixels import PixelLoop
from diagmem.ops.loops.windowed import PixelKind, WindowedLoop, c_window
from diagmem.ops.numerics.quantised import (
    Requantisation,
    centred_weights,
    channel_scales,
    real_range,
    scale_of,
    zero_point_of,
)
from diagmem.ops.numerics.weighted_sums import (
    BY_CHANNEL,
    UNSIGNED_BIAS,
    ChannelsS16,
    finished_8_bit,
    finished_f32,
    weighted_fitting,
)
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import Order, Variant
from diagmem.ops.sampling import Draw, Fitting, activation, ints, node_of
from diagmem.ops.signature import Signature, Weights

FILTER, IMAGE = 1, 2
"""Where these stand among the inputs."""


@dataclass(frozen=True, slots=True)
class TransposeConv:
    """Inputs: the output's shape, filter (output channels, height, width, input channels), image, bias (optional)."""

    padding: Padding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    activation: Activation = Activation.NONE


@dataclass(frozen=True, slots=True)
class GatheredAxis:
    """A window seen from its other end: `window` slides over the output, one place for each image row or column."""

    window: Window1D

    def taps(self) -> tuple[IntArray, IntArray]:
        image, outputs = self.window.taps()
        order = np.argsort(outputs, kind="stable")
        return outputs[order], image[order]

    def first_reads(self) -> tuple[IntArray, IntArray]:
        outputs, image = self.taps()
        kept, first = np.unique(outputs, return_index=True)
        return kept, image[first]


class TransposeConvKind(PixelKind):
    names = ("TRANSPOSE_CONV",)
    orders = (Order.REFERENCE, Order.BUFFERED)
    takes = Signature((3, 4), data=IMAGE, numbers=(0,), weights=Weights(axis=0, filter=FILTER, bias=3))
    table = Table(TransposeConv, ("Padding", "StrideH", "StrideW", "FusedActivationFunction"))

    def output_shapes(self, name: str, attributes: TransposeConv, inputs: Inputs) -> Shapes | None:
        shape = constant_ints(inputs, 0)
        if shape is None:
            return None
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
        bias = rest[0] if rest else None
        if node.output.dtype is DType.FLOAT32:
            return (finished_f32(node, _sums(node, image, filters), bias),)
        weights = centred_weights(node.input(FILTER), filters).astype(np.int64)
        sums = _sums(node, image.astype(np.int64) - zero_point_of(node.input(IMAGE)), weights)
        if node.output.dtype is DType.INT16:
            return (_channels_s16(node).apply(sums, bias),)
        return (finished_8_bit(node, sums, bias, _requantisation(node)),)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return (*self.cut_to_rows(node, variant), Cut(Along.CHANNELS, node.output.shape[-1]))

    def c_row_call(self, node: Node) -> CCall:
        call, window = self.c_call(node), _window(node.attributes, node.inputs, Nhwc.of(node.output))
        arguments = (CRows(node.input(IMAGE), window.rows, is_transposed=True), CTurn.NUMBER, CRow(node.output))
        return replace(call, function=f"{call.function}_row", arguments=arguments)

    def c_call(self, node: Node) -> CCall:
        fields = {DType.INT16: _fields_s16, DType.FLOAT32: _fields_f32}
        calls = {d: partial(_call, fields=fields.get(d, _fields_8_bit)) for d in QUANTISED_OR_REAL}
        return by_type(node, calls, data=IMAGE)

    def sample(self, name: str, draw: Draw) -> Node:
        """Any padding, stride and window; strides above the window leave output pixels that nothing reaches."""
        window = draw.window(dilated=False)
        sizes = zip(window.image, window.kernel, window.stride, strict=True)
        image = [Window1D.resolve(out, kernel, stride, 1, window.padding).size_out for out, kernel, stride in sizes]
        batch, depth_in, depth_out = draw.small(), draw.small(), draw.small()
        inputs = [
            ints([batch, *window.image, depth_out]),
            draw.operand((depth_out, *window.kernel, depth_in)),
            activation((batch, *image, depth_in), draw.dtype()),
            draw.choice((None, draw.operand((depth_out,)))),
        ]
        attributes = TransposeConv(window.padding, *window.stride, draw.fused())
        return node_of(self, name, attributes, inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return replace(weighted_fitting(self, node, axis=0), data=IMAGE)


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


def _bias(node: Node) -> Tensor | None:
    return node.inputs[3] if len(node.inputs) > 3 else None


def _requantisation(node: Node) -> Requantisation:
    """The product of the scales of unsigned numbers is rounded to single precision."""
    unit, output = scale_of(node.input(IMAGE)), scale_of(node.output)
    products = [unit * scale for scale in channel_scales(node.input(FILTER), axis=0)]
    if node.input(IMAGE).dtype is DType.UINT8:
        products = [float(np.float32(product)) for product in products]
    return Requantisation.of([product / output for product in products], node.output, node.attributes.activation)


def _channels_s16(node: Node) -> ChannelsS16:
    return ChannelsS16.of(node, _requantisation(node), _bias(node))


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


def _call(node: Node, fields: Callable[[Node], Fields]) -> CCall:
    """The kernel's window is that of the convolution which leads from the output back to the image."""
    window = _window(node.attributes, node.inputs, Nhwc.of(node.output))
    slid = WindowedLoop.of(node.input(IMAGE), node.output, window.rows, window.cols, 1)
    filters = CTable("filter", _stored(values_of(node.input(FILTER))))
    limits = {MAX_ROWS: -(-window.rows.kernel // window.rows.stride)}
    arguments, passes = (node.input(IMAGE), node.output), math.prod(node.input(IMAGE).shape[:3])
    given, name = {"window": c_window(slid), "filter": filters}, f"transpose_conv_{SUFFIXES[node.output.dtype]}"
    own = {**given, **fields(node)}
    call = kernel_call("transpose_conv", own, arguments, limits, passes, function=name, struct=name)
    return replace(call, channels=CChannels(("window.out_depth",), BY_CHANNEL))


def _stored(filters: Array) -> Array:
    """Unsigned weights are kept as signed numbers, 128 less than in the file."""
    is_unsigned = filters.dtype == np.uint8
    return (filters.astype(np.int16) - UNSIGNED_BIAS).astype(np.int8) if is_unsigned else filters


def _fields_8_bit(node: Node) -> Fields:
    bias = _bias(node)
    require_types(node.input(IMAGE).dtype, (node.input(FILTER), node.output))
    require_types(DType.INT32, () if bias is None else (bias,))
    values = np.zeros(node.output.shape[3], np.int32) if bias is None else values_of(bias)
    fields = {"zero_point": zero_point_of(node.input(IMAGE)), "output": _requantisation(node).c_channels(values)}
    if node.input(IMAGE).dtype is DType.INT8:
        return fields
    return {**fields, "filter_zero_point": zero_point_of(node.input(FILTER)) - UNSIGNED_BIAS}


def _fields_s16(node: Node) -> Fields:
    return {"output": _channels_s16(node).c_struct()}


def _fields_f32(node: Node) -> Fields:
    bias = _bias(node)
    require_types(DType.FLOAT32, (node.input(FILTER), node.output, *(() if bias is None else (bias,))))
    values = np.zeros(node.output.shape[3], np.float32) if bias is None else values_of(bias)
    low, high = real_range(node.attributes.activation)
    return {"output": CStruct("diagmem_channels_f32", {"bias": CTable("bias", values), "low": low, "high": high})}


KIND = TransposeConvKind()
