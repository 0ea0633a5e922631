"""DEPTHWISE_CONV_2D: every input channel makes `multiplier` output channels of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, ExplicitPadding, Nhwc, Node, Padding
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, CChannels, CName, CTable, kernel_call, values_of
from diagmem.ops.convolution._convolution import ConvolutionKind
from diagmem.ops.kind import Array, Inputs, input_at
from diagmem.ops.loops.pixels import GROUPS, ChannelBlocks, ChannelGroups, pixel_cut
from diagmem.ops.loops.windowed import OrderedLoop, WindowedLoop, c_window, tap_images, window_limits
from diagmem.ops.numerics.fitted import Fitted
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import (
    Channels,
    Packed,
    Words,
    c_eights,
    is_8_bit,
    multipliers_in_fours,
    stream,
    taps_of,
    words,
    words_of,
)
from diagmem.ops.numerics.row_sums import RowSums, depthwise_row_sums_call, row_sums_call
from diagmem.ops.numerics.weighted_sums import BY_CHANNEL, c_padding, halves, interleaved, kernel_suffix, window_call
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import Signature, Weights

CHANNELS_OF_A_BLOCK = 124
"""Input channels that a kernel in order CHANNEL_BLOCKS does for the whole image; as in CMSIS-NN for cores with MVE."""


@dataclass(frozen=True, slots=True)
class DepthwiseConv2D:
    """Inputs: image, filter (1, height, width, input channels * multiplier), bias (optional)."""

    padding: Padding | ExplicitPadding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    multiplier: int = 1
    activation: Activation = Activation.NONE


class DepthwiseConv2DKind(ConvolutionKind):
    names = clamps = takes_padding = ("DEPTHWISE_CONV_2D",)
    orders = (Order.REFERENCE, Order.FOURS, Order.EIGHTS, Order.CHANNEL_BLOCKS)
    tflm_agrees = True
    axis = 3
    takes = Signature((2, 3), weights=Weights(axis=3))
    table = Table(
        DepthwiseConv2D,
        (
            "Padding",
            "StrideH",
            "StrideW",
            "DilationHFactor",
            "DilationWFactor",
            "DepthMultiplier",
            "FusedActivationFunction",
        ),
    )

    def image_and_filter(self, attributes: DepthwiseConv2D, inputs: Inputs) -> tuple[Nhwc, Nhwc]:
        image, filters = Nhwc.of(input_at(inputs, 0)), Nhwc.of(input_at(inputs, 1))
        if filters.batch != 1 or filters.depth != image.depth * attributes.multiplier:
            raise ModelError(
                f"filter {list(filters)} does not fit {image.depth} input channels with multiplier "
                f"{attributes.multiplier}; the file is damaged"
            )
        return image, filters

    def ordered(self, node: Node, order: Order) -> OrderedLoop:
        loop = self.loop(node)
        if order in GROUPS and loop.group_out == 1:
            return ChannelGroups(loop, order)
        return ChannelBlocks(loop, CHANNELS_OF_A_BLOCK) if order is Order.CHANNEL_BLOCKS else loop

    def accesses(self, node: Node, order: Order) -> Accesses:
        found, loop = super().accesses(node, order), self.ordered(node, order)
        return replace(found, writes=(loop.writes(),)) if isinstance(loop, ChannelBlocks) else found

    def paper(self, node: Node, position: int) -> Fraction | None:
        """Equations (7) and (8)."""
        loop = self.loop(node)
        a = Fraction(loop.rows.stride * loop.image.width, loop.out.width * loop.group_out)
        return None if position else loop.printed_overlap(a, (loop.printed_pixels() + 1) * loop.image.depth)

    def sums(self, loop: WindowedLoop, image: Array, filters: Array, zero_point: int | None) -> Array:
        zero = np.float32(0) if zero_point is None else np.int64(zero_point)
        sums = np.zeros(loop.out, zero.dtype)
        for k_y, k_x, pixels in tap_images(image, loop.rows, loop.cols, zero):
            sums += np.repeat(pixels - zero, loop.group_out, axis=-1) * filters[0, k_y, k_x]
        return sums

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        loop = self.loop(node)
        if loop.group_out == 1 and all(node.input(p).dtype is DType.FLOAT32 for p in (0, 1)):
            return self.taking_rows(node, (Variant(Order.EIGHTS, Order.EIGHTS, _vfp_call),))
        if loop.group_out > 1 or not is_8_bit(node):
            return ()
        is_mve = instructions is InstructionSet.MVE
        order, call = (Order.EIGHTS, _mve_call) if is_mve else (Order.FOURS, _fours_call)
        return self.taking_rows(node, (Variant(order, order, call),))

    def row_sums(self, node: Node, sums: RowSums = row_sums_call) -> CCall:
        filters = values_of(node.input(1))
        return depthwise_row_sums_call(node, self.loop(node), filters[0], by_channel(filters))

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Channels by whole groups, where each is made of one of the input."""
        depth, order = node.output.shape[-1], Order.REFERENCE if variant is None else variant.order
        grain = {Order.REFERENCE: 1, Order.FOURS: TOGETHER}.get(order, 0)
        if not grain or depth % grain or depth > node.input(0).shape[-1]:
            return (pixel_cut(node),)
        return pixel_cut(node), Cut(Along.CHANNELS, depth, grain)

    def plain_call(self, node: Node) -> CCall:
        return _call(node)


def _call(node: Node) -> CCall:
    loop, filters = KIND.loop(node), by_channel(values_of(node.input(1)))
    stored = halves(filters.reshape(len(filters), -1)) if kernel_suffix(node) == "s4" else filters
    call = window_call("depthwise_conv_2d", node, loop, {"multiplier": loop.group_out}, 3, filters, stored)
    return replace(call, channels=OWN_CHANNELS)


def _vfp_call(node: Node) -> CCall:
    """For floating-point units that multiply and add in one instruction: weights of eight channels tap by tap."""
    call, filters = _call(node), by_channel(values_of(node.input(1)))
    fields = {name: value for name, value in call.parameters.fields.items() if name != "multiplier"}
    stored = {**fields, "filter": CTable("filter", interleaved(node, filters))}
    return kernel_call("depthwise_conv_2d_vfp_f32", stored, call.arguments, call.limits, call.passes)


TOGETHER = GROUPS[Order.FOURS]

OWN_CHANNELS = CChannels(("window.in_depth", "window.out_depth"), BY_CHANNEL | {"padding", "blocks"}, are_of_input=True)
"""Each output channel is made of the input channel of its number."""


def _fours_call(node: Node) -> CCall:
    """For the DSP extension, with an output channel for each input channel."""
    loop, channels = KIND.loop(node), Channels.of(node, 3, by_channel(values_of(node.input(1))))
    fields = {"window": c_window(loop), "padding": c_padding(node, loop)}
    arguments, limits, passes = (node.input(0), node.output), window_limits(loop), loop.output_pixels
    packed = channels.packed()
    if packed is None:
        own = {"filter": CTable("filter", channels.weights.astype(np.int8)), "output": channels.c_output()}
        wide = kernel_call("depthwise_conv_2d_wide_fours_s8", {**fields, **own}, arguments, limits, passes)
        return replace(wide, channels=OWN_CHANNELS)
    whole = len(channels.bias) // TOGETHER * TOGETHER
    short = channels.fitted()
    how = short.kernels if short else "positive" if channels.output.ignores_signs else "any"
    name = f"diagmem_{how}_fours_s8"
    is_3x3 = loop.rows.kernel == loop.cols.kernel == 3 and whole == len(channels.bias)
    own = {
        "is_positive": int(channels.output.ignores_signs),
        **channels.output.c_rounding(),
        "inside": CName(f"{name}_inside") if is_3x3 else None,
        "taps": CName(f"{name}_taps") if whole else None,
        "blocks": _blocks(channels.weights, short or packed, whole) if whole else None,
        "ones": CName("diagmem_fours_rest_s8") if whole < len(channels.bias) else None,
        "rest": _rest(channels.weights, packed, whole) if whole < len(channels.bias) else None,
    }
    call = kernel_call("depthwise_conv_2d_fours_s8", {**fields, **own}, arguments, limits, passes)
    return replace(call, channels=OWN_CHANNELS)


def by_channel(filters: Array) -> Array:
    """The weights of each output channel side by side."""
    return np.ascontiguousarray(filters[0].reshape(-1, filters.shape[3]).T)


def _blocks(weights: Ints, found: Packed | Fitted, whole: int) -> CTable:
    """Of the first `whole` channels, in fours."""
    if isinstance(found, Fitted):
        starts, constants, weights = found.starts, multipliers_in_fours(found).reshape(-1), 256 * weights
    else:
        starts, constants = found.bias, found.constants
    parts: list[Words] = []
    for first in range(0, whole, TOGETHER):
        four = slice(first, first + TOGETHER)
        parts += [words(starts[four]), *_taps(weights[four]), constants[four]]
    return stream(parts)


def _taps(weights: Ints) -> list[Words]:
    """For each two taps a word for each of four channels; of a last tap the channels 0 and 2, then 1 and 3."""
    pairs = weights.shape[1] // 2
    found = [words_of(weights[:, 2 * t : 2 * t + 2]) for t in range(pairs)]
    last = weights[:, 2 * pairs :]
    return [*found, words_of(last.reshape(2, 2).T)] if last.size else found


def _rest(weights: Ints, packed: Packed, whole: int) -> CTable:
    """Bias, weights and constants of the channels from `whole` on."""
    rows = [words(packed.bias)[:, None], words(weights), packed.constants]
    return CTable("rest", np.concatenate(rows, axis=1)[whole:].astype(np.int32))


def _mve_call(node: Node) -> CCall:
    """For vectors of bytes, with an output channel for each input channel."""
    loop, channels = KIND.loop(node), Channels.of(node, 3, by_channel(values_of(node.input(1))))
    fields = {
        "window": c_window(loop),
        "padding": c_padding(node, loop),
        "filter": CTable("filter", taps_of(channels.weights)),
        "output": c_eights(channels),
    }
    arguments, limits = (node.input(0), node.output), window_limits(loop)
    return kernel_call("depthwise_conv_2d_mve_s8", fields, arguments, limits, loop.output_pixels)


KIND = DepthwiseConv2DKind()
