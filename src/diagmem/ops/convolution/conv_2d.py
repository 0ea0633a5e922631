"""CONV_2D: every output channel looks at the whole window."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, ExplicitPadding, Nhwc, Node, Padding, Window1D
from diagmem.model.schedule import Along, Cut
from diagmem.ops.c_call import (
    MAX_ROWS,
    CCall,
    CChannels,
    CName,
    CScratch,
    CStruct,
    CTable,
    Fields,
    kernel_call,
    values_of,
)
from diagmem.ops.convolution._convolution import ConvolutionKind
from diagmem.ops.kind import Array, Inputs, input_at
from diagmem.ops.loops.pixels import HeldPixels, pixel_cut
from diagmem.ops.loops.windowed import OrderedLoop, WindowedLoop, c_window, tap_images, window_limits
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import (
    VECTOR_BYTES,
    Channels,
    blocks_of_four,
    bytes_of,
    c_eights,
    c_packed,
    filled_up,
    fitted_blocks,
    is_8_bit,
    packed_channels,
    vectors_of,
)
from diagmem.ops.numerics.quantised import zero_point_of
from diagmem.ops.numerics.row_sums import RowSums, packed_row_sums_call, row_sums_call, vfp_row_sums_call
from diagmem.ops.numerics.weighted_sums import (
    BIAS_TYPE,
    BY_CHANNEL,
    CHANNELS_OF_A_BLOCK,
    block_start,
    c_padding,
    interleaved,
    kernel_suffix,
    window_call,
)
from diagmem.ops.options import Activation, Table
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import Signature, Weights


@dataclass(frozen=True, slots=True)
class Conv2D:
    """Inputs: image, filter (output channels, height, width, input channels of one group), bias (optional).
    `bias_type`: see `has_narrow_sums`."""

    padding: Padding | ExplicitPadding = Padding.SAME
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    activation: Activation = Activation.NONE
    bias_type: int = 0


class Conv2DKind(ConvolutionKind):
    names = clamps = takes_padding = ("CONV_2D",)
    orders = (
        *(Order.REFERENCE, Order.BLOCKS, Order.PAIRS, Order.ROW_PAIRS),
        *(Order.IM2COL, Order.QUADS, Order.ROWS),
    )
    axis = 0
    takes = Signature((2, 3), weights=Weights(axis=0))
    table = Table(
        Conv2D,
        ("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor", "FusedActivationFunction", BIAS_TYPE),
    )

    def default_order(self, node: Node) -> Order:
        """Grouped convolutions go channel by channel."""
        is_grouped = node.input(0).shape[-1] != node.input(1).shape[-1]
        return Order.REFERENCE if is_grouped else Order.BLOCKS

    def image_and_filter(self, attributes: Conv2D, inputs: Inputs) -> tuple[Nhwc, Nhwc]:
        image, filters = Nhwc.of(input_at(inputs, 0)), Nhwc.of(input_at(inputs, 1))
        if filters.depth < 1 or image.depth % filters.depth or filters.batch % (image.depth // filters.depth):
            raise ModelError(
                f"filter {list(filters)} does not divide the {image.depth} input channels into groups; the file is "
                "damaged"
            )
        return image, filters

    def groups(self, node: Node) -> int:
        image, filters = self.image_and_filter(node.attributes, node.inputs)
        return image.depth // filters.depth

    def ordered(self, node: Node, order: Order) -> OrderedLoop:
        loop = self.loop(node)
        held = {
            Order.BLOCKS: HeldPixels(loop, writes=block_start(loop.out.depth)),
            Order.IM2COL: HeldPixels(loop),
            Order.PAIRS: HeldPixels(_paired(loop), together=2),
            Order.ROW_PAIRS: HeldPixels(loop, together=2),
            Order.QUADS: HeldPixels(_in_one_row(loop), ahead=3, writes=loop.out.depth - 1),
            Order.ROWS: HeldPixels(loop, ahead=loop.out.width - 1, writes=loop.out.depth - 1),
        }
        return held.get(order, loop)

    def paper(self, node: Node, position: int) -> Fraction | None:
        """Equations (12) and (13)."""
        loop = self.loop(node)
        if position or loop.groups > 1:
            return None
        a = Fraction(loop.rows.stride * loop.image.width * loop.image.depth, loop.out.width * loop.out.depth)
        return loop.printed_overlap(a, loop.printed_pixels() * loop.image.depth + 1)

    def sums(self, loop: WindowedLoop, image: Array, filters: Array, zero_point: int | None) -> Array:
        return _sums_f32(loop, image, filters) if zero_point is None else _sums_int(loop, image, filters, zero_point)

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        loop = self.loop(node)
        if loop.groups > 1:
            return ()
        if {node.input(0).dtype, node.input(1).dtype} == {DType.FLOAT32}:
            variant = Variant(Order.BLOCKS, Order.BLOCKS, _vfp_call, block=CHANNELS_OF_A_BLOCK)
            return self.taking_rows(node, (variant,), vfp_row_sums_call)
        if not is_8_bit(node):
            return ()
        if instructions is InstructionSet.MVE:
            return self.taking_rows(node, MveConv2D(node, loop).variants())
        return self.taking_rows(node, DspConv2D(node, loop).variants(), packed_row_sums_call)

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Blocks of channels where weights are stored so."""
        are_paired = variant is not None and variant.order in (Order.PAIRS, Order.ROW_PAIRS)
        pixels = pixel_cut(node, grain=2 if are_paired else 1)
        has_blocks = kernel_suffix(node) != "s4" if variant is None else variant.block > 0
        if not has_blocks or self.groups(node) > 1:
            return (pixels,)
        # The channels of a single pixel are neighbours.
        return pixels, Cut(Along.CHANNELS, node.output.shape[-1], CHANNELS_OF_A_BLOCK, can_hold=pixels.units == 1)

    def row_sums(self, node: Node, sums: RowSums = row_sums_call) -> CCall:
        own = dict.fromkeys(("in_scale", "filter_scale"), 0.0) | {"out_scale": 1.0}
        is_unsigned = node.output.dtype is DType.UINT8
        return sums(node, self.axis, self.loop(node), values_of(node.input(1)), own if is_unsigned else {})

    def plain_call(self, node: Node) -> CCall:
        return _call(node)


def _is_pointwise(loop: WindowedLoop) -> bool:
    """Each output pixel reads the input pixel at its own place, and no other."""
    return loop.image[:3] == loop.out[:3] and all(
        axis.kernel == axis.stride == 1 and axis.pad_before == 0 for axis in (loop.rows, loop.cols)
    )


def _paired(loop: WindowedLoop) -> WindowedLoop:
    """The loop as kernels in order PAIRS go through it."""
    dense = all(pitches is None for pitches in (loop.in_pitches, loop.out_pitches))
    return _in_one_row(loop) if dense else loop


def _in_one_row(loop: WindowedLoop) -> WindowedLoop:
    """A pointwise convolution with all its pixels in one row; any other one as it is."""
    if not _is_pointwise(loop):
        return loop
    pixels = loop.out.batch * loop.out.height * loop.out.width
    image, out = Nhwc(1, 1, pixels, loop.image.depth), Nhwc(1, 1, pixels, loop.out.depth)
    return replace(loop, image=image, out=out, rows=Window1D.resolve(1, 1, 1), cols=Window1D.resolve(pixels, 1, 1))


def _sums_int(loop: WindowedLoop, image: Array, filters: Array, zero_point: int) -> Array:
    """Sums of integer products. float64 holds them exactly, and numpy multiplies matrices of those fast."""
    sums = np.zeros(loop.out)
    for k_y, k_x, pixels in tap_images(image, loop.rows, loop.cols, zero_point):
        centred = pixels - np.float64(zero_point)
        for group in range(loop.groups):
            of_in, of_out = _channels(loop, group)
            sums[..., of_out] += centred[..., of_in] @ filters[of_out, k_y, k_x].T.astype(np.float64)
    return sums


def _sums_f32(loop: WindowedLoop, image: Array, filters: Array) -> Array:
    """Sums of float32 products, one product after the other."""
    sums = np.zeros(loop.out, np.float32)
    for k_y, k_x, pixels in tap_images(image, loop.rows, loop.cols, 0):
        for group, channel in itertools.product(range(loop.groups), range(loop.group_in)):
            of_in, of_out = _channels(loop, group)
            sums[..., of_out] += pixels[..., of_in.start + channel, None] * filters[of_out, k_y, k_x, channel]
    return sums


def _channels(loop: WindowedLoop, group: int) -> tuple[slice, slice]:
    """The input and output channels of a group."""
    return (
        slice(group * loop.group_in, (group + 1) * loop.group_in),
        slice(group * loop.group_out, (group + 1) * loop.group_out),
    )


def _stored(loop: WindowedLoop, node: Node, filters: Array) -> Array:
    """Weights as the kernels want them: channel by channel where they go so themselves."""
    return interleaved(node, filters, *([] if loop.groups == 1 else [1]))


def _call(node: Node) -> CCall:
    loop, filters = KIND.loop(node), values_of(node.input(1))
    call = window_call("conv_2d", node, loop, {"groups": loop.groups}, 0, filters, _stored(loop, node, filters))
    return replace(call, channels=CChannels(("window.out_depth",), BY_CHANNEL))


def _vfp_call(node: Node) -> CCall:
    """The same weights for floating-point units that multiply and add in one instruction."""
    call = _call(node)
    fields = {name: value for name, value in call.parameters.fields.items() if name != "groups"}
    fitted = kernel_call("conv_2d_vfp_f32", fields, call.arguments, call.limits, call.passes)
    return replace(fitted, channels=call.channels)


COLUMNS = 8
"""The buffer holds a multiple of so many inputs of a window."""

TOGETHER = 4
"""Channels of a pixel are widened in so many at once."""

LEAST_DEPTH = 4
"""From so many output channels on it is worth widening a window first."""

LEAST_SINGLES = 8
"""From so many pixels without a neighbour on it is worth having code for sixteen of their inputs at once."""


@dataclass(frozen=True, slots=True)
class DspConv2D:
    """The kernels for a node with the DSP extension. `loop`: its loops, row by row."""

    node: Node
    loop: WindowedLoop

    def variants(self) -> tuple[Variant, ...]:
        """The fastest first."""
        out, is_even = self.loop.out, self.loop.image.depth % TOGETHER == 0
        pairs = _pairs_variant(self._pairs, self.loop, self._buffer_bytes)
        direct = Variant(Order.BLOCKS, Order.BLOCKS, self._direct, block=CHANNELS_OF_A_BLOCK)
        has_pairs = out.height * out.width > 1 and out.depth >= LEAST_DEPTH
        return (*((pairs,) if has_pairs else ()), *((direct,) if is_even else ()))

    @property
    def _buffered(self) -> int:
        """Inputs of a window in the buffer, with what fills them up."""
        size = self.loop.rows.kernel * 2 * len(_words(self._in_row))
        return -(-size // COLUMNS) * COLUMNS

    @property
    def _in_row(self) -> int:
        """Inputs in a row of the window."""
        return self.loop.cols.kernel * self.loop.image.depth

    @property
    def _buffer_bytes(self) -> int:
        """16 bits for each input of two pixels; and room to collect two rows of windows where channels do not come in
        fours."""
        return 4 * self._buffered + (2 * self._in_row if self.loop.image.depth % TOGETHER else 0)

    def _in_buffer(self, weights: Ints) -> Ints:
        """The weights of each channel as they meet the words of the buffer, two each."""
        rows = weights.reshape(len(weights), -1, self._in_row)
        met = np.pad(rows, ((0, 0), (0, 0), (0, 1)))[:, :, _words(self._in_row)].reshape(len(rows), -1, 2)
        return np.pad(met, ((0, 0), (0, self._buffered // 2 - met.shape[1]), (0, 0)))

    def _pairs(self, loop: WindowedLoop) -> CCall:
        size, channels, limits = self._buffered, Channels.of(self.node), {MAX_ROWS: loop.rows.kernel}
        weights = self._in_buffer(channels.weights)
        fields = {
            "window": c_window(loop),
            "paired": CStruct("diagmem_paired", {"size": size, "padding": c_padding(self.node, self.loop)}),
        }
        arguments = self.node.input(0), self.node.output, CScratch()
        made = _blocks(channels, weights)
        if made is None:
            own = {"filter": CTable("filter", bytes_of(weights)), "output": channels.c_output()}
            return kernel_call("conv_2d_wide_pairs_s8", {**fields, **own}, arguments, limits, loop.output_pixels)
        (how, blocks), inputs = made, 8 if size % 16 else 16
        singles = loop.out.height * (loop.out.width % 2)
        two = CName(f"diagmem_two_{how}_{inputs}_s8")
        one = CName(f"diagmem_one_{how}_{inputs if singles >= LEAST_SINGLES else 8}_s8")
        own = {"two": two, "one": one, "blocks": blocks}
        return kernel_call("conv_2d_pairs_s8", {**fields, **own}, arguments, limits, loop.output_pairs)

    def _direct(self, node: Node) -> CCall:
        """Weights that cannot be packed go to the kernel in plain C."""
        output = c_packed(Channels.of(node))
        if output is None:
            return _call(node)
        fields = {"window": c_window(self.loop), "padding": c_padding(node, self.loop), "output": output}
        arguments, limits = (node.input(0), node.output), window_limits(self.loop)
        call = kernel_call("conv_2d_direct_s8", fields, arguments, limits, self.loop.output_pixels)
        return replace(call, channels=packed_channels(self.loop.rows.kernel * self._in_row, "window.out_depth"))


def _pairs_variant(call: Callable[[WindowedLoop], CCall], loop: WindowedLoop, scratch_bytes: int) -> Variant:
    """The kernel for two pixels at a time, which knows no rows of a pointwise convolution that is run whole."""
    whole = _paired(loop)
    return Variant(Order.PAIRS, Order.ROW_PAIRS, lambda _: call(whole), lambda _: call(loop), scratch_bytes)


def _blocks(channels: Channels, weights: Ints) -> tuple[str, CTable] | None:
    """Weights and constants for the kernels of this name; None where the numbers do not allow any."""
    short = channels.fitted()
    if short is not None:
        blocks = fitted_blocks(short, weights)
        return None if blocks is None else (short.kernels, blocks)
    blocks = blocks_of_four(channels, weights)
    return None if blocks is None else ("positive" if channels.output.ignores_signs else "any", blocks)


def _words(count: int) -> list[tuple[int, int]]:
    """The numbers of the inputs of a row of the window that share words of the buffer; `count` stands for none."""
    fours, last = count // 4 * 4, count - 1
    found = [pair for first in range(0, fours, 4) for pair in ((first, first + 2), (first + 1, first + 3))]
    if count % 4 >= 2:
        found.append((fours, fours + 1))
    return [*found, (last, count)] if count % 2 else found


@dataclass(frozen=True, slots=True)
class MveConv2D:
    """The kernels for a node with vectors of bytes. `loop`: its loops, row by row."""

    node: Node
    loop: WindowedLoop

    def variants(self) -> tuple[Variant, ...]:
        """The fastest first. A window of one pixel is in one piece where it lies, so that it needs no buffer."""
        axes, out = (self.loop.rows, self.loop.cols), self.loop.out
        pairs = _pairs_variant(self._pairs, self.loop, 2 * self._buffered)
        point = Variant(Order.BLOCKS, Order.BLOCKS, self._point)
        is_point = all(axis.kernel == 1 and axis.pairs == axis.size_out for axis in axes)
        is_single = out.height * out.width == 1
        return (*(() if is_point and is_single else (pairs,)), *((point,) if is_point else ()))

    @property
    def _buffered(self) -> int:
        """Inputs of a window in the buffer, with what fills them up."""
        return filled_up(self.loop.rows.kernel * self.loop.cols.kernel * self.loop.image.depth, VECTOR_BYTES)

    def _pairs(self, loop: WindowedLoop) -> CCall:
        fields = {
            "window": c_window(loop),
            "zero": zero_point_of(self.node.input(0)),
            "size": self._buffered,
            **self._weights(),
        }
        arguments = self.node.input(0), self.node.output, CScratch()
        return kernel_call("conv_2d_mve_s8", fields, arguments, {MAX_ROWS: loop.rows.kernel}, loop.output_pairs)

    def _point(self, node: Node) -> CCall:
        fields = {"window": c_window(self.loop), **self._weights()}
        arguments = node.input(0), node.output
        return kernel_call("conv_2d_point_mve_s8", fields, arguments, passes=self.loop.output_pixels)

    def _weights(self) -> Fields:
        channels = Channels.of(self.node)
        return {"filter": vectors_of(channels.weights), "output": c_eights(channels)}


KIND = Conv2DKind()
