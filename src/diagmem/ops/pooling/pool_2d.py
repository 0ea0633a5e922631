"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D: each channel is summed up over its window alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from diagmem.model.graph import DType, ExplicitPadding, Nhwc, Node, Padding, Window2D
from diagmem.model.schedule import Along, Cut
from diagmem.ops.c_call import (
    MAX_ROWS,
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CChannels,
    Unsupported,
    by_type,
    kernel_call,
    require_types,
    taking_call,
)
from diagmem.ops.kind import SUM_BYTES, Array, Inputs, Shapes, Values, input_at
from diagmem.ops.loops.pixels import GROUPS, ChannelGroups, HeldPixels, pixel_cut
from diagmem.ops.loops.windowed import OrderedLoop, WindowedKind, WindowedLoop, c_window, tap_counts, tap_images
from diagmem.ops.numerics.quantised import (
    integer_range,
    lowered_by,
    real_range,
    rounds_to_even,
    scale_of,
    zero_point_of,
)
from diagmem.ops.numerics.single_precision import clamped, larger
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import Signature

MOST_SUMMED = 255
"""Pixels whose bytes add up to less than 16 bits hold, as in `average_pool_2d_fours_s8.c`."""


_CHANNELS = CChannels(("window.in_depth", "window.out_depth"), frozenset(), are_of_input=True)


@dataclass(frozen=True, slots=True)
class Pool2D:
    """Input: image."""

    padding: Padding | ExplicitPadding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    kernel_h: int = 1
    kernel_w: int = 1
    activation: Activation = Activation.NONE


class Pool2DKind(WindowedKind):
    names = clamps = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
    takes_padding = ("MAX_POOL_2D",)
    orders = (Order.REFERENCE, Order.FOURS, Order.EIGHTS, Order.SIXTEENS, Order.ACCUMULATE)
    tflm_agrees = True
    takes = Signature()
    table = Table(
        Pool2D,
        ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth", "FusedActivationFunction"),
        "Pool2DOptions",
    )

    def output_shapes(self, name: str, attributes: Pool2D, inputs: Inputs) -> Shapes:
        image = Nhwc.of(input_at(inputs, 0))
        window = self.window_over(attributes, inputs)
        return ((image.batch, window.rows.size_out, window.cols.size_out, image.depth),)

    def window_over(self, attributes: Pool2D, inputs: Inputs) -> Window2D:
        kernel, stride = (attributes.kernel_h, attributes.kernel_w), (attributes.stride_h, attributes.stride_w)
        return Window2D.resolve(Nhwc.of(input_at(inputs, 0)), kernel, stride, padding=attributes.padding)

    def keeps_channels(self, node: Node) -> bool:
        return True

    def ordered(self, node: Node, order: Order) -> OrderedLoop:
        loop = self.loop(node)
        if order in GROUPS:
            return ChannelGroups(loop, order)
        return HeldPixels(loop, writes=loop.out.depth) if order is Order.ACCUMULATE else loop

    def paper(self, node: Node, position: int) -> Fraction | None:
        """Equations (14) and (15)."""
        loop = self.loop(node)
        a = Fraction(loop.rows.stride * loop.image.width, loop.out.width)
        return loop.printed_overlap(a, loop.printed_pixels() * loop.image.depth + 1)

    def accumulator_bytes(self, node: Node) -> int | None:
        rows = self.loop(node).rows
        takes_all = node.op.kind == "AVERAGE_POOL_2D" and rows.pairs == rows.size_in > 1
        takes_all = takes_all and not rounds_to_even(node.output)
        return node.output.elems * SUM_BYTES if takes_all and rows.size_out == 1 == node.output.shape[0] else None

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        loop, image, activation = self.loop(node), inputs[0], node.attributes.activation
        is_real = node.input(0).dtype is DType.FLOAT32
        if node.op.kind == "AVERAGE_POOL_2D" and rounds_to_even(node.output):
            return (_average_to_even(node, loop, image),)
        low, high = real_range(activation) if is_real else integer_range(activation, node.output)
        if node.op.kind == "MAX_POOL_2D":
            return (np.where((largest := _largest(loop, image, low)) > high, high, largest).astype(image.dtype),)
        if node.op.kind == "L2_POOL_2D":
            pooled = np.sqrt(_average_f32(loop, image * image))
        else:
            pooled = (_average_f32 if is_real else _average_int)(loop, image)
        return ((clamped if is_real else np.clip)(pooled, low, high).astype(image.dtype),)

    def by_rows(self, node: Node, call: Callable[[Node], CCall]) -> CCall:
        takes_rows = self.accumulator_bytes(node) is not None
        return taking_call(call(node), node) if takes_rows else super().by_rows(node, call)

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        """16 bits hold the sum of 255 pixels. With vectors, what takes in its rows one by one is run in plain C."""
        loop, is_average = self.loop(node), node.op.kind == "AVERAGE_POOL_2D"
        is_small = not is_average or loop.rows.kernel * loop.cols.kernel <= MOST_SUMMED
        is_known = node.op.kind != "L2_POOL_2D" and node.input(0).dtype is DType.INT8
        if is_average and rounds_to_even(node.output):
            is_real = instructions is InstructionSet.MVE and is_known
            return (Variant(Order.FOURS, Order.FOURS, partial(_variant_call, name="to_even_fours")),) if is_real else ()
        if not is_known or not is_small:
            return ()
        if instructions is InstructionSet.DSP:
            return (Variant(Order.FOURS, Order.FOURS, partial(_variant_call, name="fours")),)
        order, call = Order.EIGHTS if is_average else Order.SIXTEENS, partial(_variant_call, name="mve")
        sums_rows = self.accumulator_bytes(node) is not None
        return (Variant(order, Order.REFERENCE, call, self.c_call) if sums_rows else Variant(order, order, call),)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Channels by whole groups."""
        grain = 1 if variant is None else GROUPS.get(variant.order, 1)
        depth = node.output.shape[-1]
        channels = (Cut(Along.CHANNELS, depth, grain),) if depth % grain == 0 else ()
        return pixel_cut(node), *channels

    def c_call(self, node: Node) -> CCall:
        require_types(node.input(0).dtype, (node.output,))
        if node.op.kind == "L2_POOL_2D":
            return by_type(node, {DType.FLOAT32: _call_f32})
        return by_type(node, {**dict.fromkeys(QUANTISED_OR_FLOAT, _call_int), DType.FLOAT32: _call_f32})


def _variant_call(node: Node, name: str) -> CCall:
    """The call of a kernel that takes the parameters of the one in plain C."""
    call = KIND.c_call(node)
    stem = f"{node.op.kind.lower()}_{name}_s8"
    return replace(kernel_call(stem, call.parameters.fields, call.arguments, call.limits), channels=call.channels)


def _average_int(loop: WindowedLoop, image: Array) -> Array:
    """The mean of each window, halves rounded away from zero."""
    total = sum(pixels.astype(np.int64) for _, _, pixels in tap_images(image, loop.rows, loop.cols, 0))
    count = tap_counts(loop.rows, loop.cols)[:, :, None]
    mean: Array = np.sign(total) * ((np.abs(total) + count // 2) // count)
    return mean


def _average_f32(loop: WindowedLoop, image: Array) -> Array:
    total = np.zeros(loop.out, np.float32)
    for _, _, pixels in tap_images(image, loop.rows, loop.cols, 0):
        total += pixels
    mean: Array = total / tap_counts(loop.rows, loop.cols)[:, :, None].astype(np.float32)
    return mean


def _average_to_even(node: Node, loop: WindowedLoop, image: Array) -> Array:
    """As onnxruntime: float32 sums, one element after the other; the zero point is added before rounding."""
    source, target = node.input(0), node.output
    real = np.float32(scale_of(source)) * (image.astype(np.int64) - zero_point_of(source)).astype(np.float32)
    lower = lowered_by(target)
    units = _average_f32(loop, real) / np.float32(scale_of(target)) + np.float32(zero_point_of(target) + lower)
    low, high = integer_range(node.attributes.activation, target)
    mean: Array = np.clip(np.rint(units) - lower, low, high).astype(image.dtype)
    return mean


def _largest(loop: WindowedLoop, image: Array, least: float) -> Array:
    """As the kernel has it: at the least what the activation leaves."""
    largest = np.full(loop.out, least, image.dtype)
    for _, _, pixels in tap_images(image, loop.rows, loop.cols, least):
        largest = larger(pixels, largest)
    return largest


def _call(node: Node, suffix: str, low: float, high: float) -> CCall:
    loop = KIND.loop(node)
    if not tap_counts(loop.rows, loop.cols).all():
        raise Unsupported("a window that lies wholly outside the image")
    fields = {"window": c_window(loop), "low": low, "high": high}
    stem = f"{node.op.kind.lower()}_{suffix}"
    call = kernel_call(stem, fields, (node.input(0), node.output), {MAX_ROWS: loop.rows.kernel})
    return replace(call, channels=_CHANNELS)


def _call_int(node: Node) -> CCall:
    source, target = node.input(0), node.output
    if node.op.kind == "AVERAGE_POOL_2D" and rounds_to_even(target):
        require_types(DType.INT8, (source, target))
        call = _call(node, "to_even_s8", *integer_range(node.attributes.activation, target))
        scales = {"in_scale": scale_of(source), "in_zero_point": zero_point_of(source)}
        scales |= {"scale": scale_of(target), "zero_point": zero_point_of(target), "lower": lowered_by(target)}
        fields = {**call.parameters.fields, **scales}
        to_even = kernel_call("average_pool_2d_to_even_s8", fields, call.arguments, call.limits)
        return replace(to_even, channels=call.channels)
    if abs(scale_of(source) - scale_of(target)) > 1e-6 or zero_point_of(source) != zero_point_of(target):
        raise Unsupported("input and output of different scale; TensorFlow Lite refuses it too")
    return _call(node, SUFFIXES[target.dtype], *integer_range(node.attributes.activation, target))


def _call_f32(node: Node) -> CCall:
    return _call(node, "f32", *real_range(node.attributes.activation))


KIND = Pool2DKind()
