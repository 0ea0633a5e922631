"""What CMSIS-NN's kernels ask TFLM for in the arena while they run, to the byte.

As on cores with the DSP extension where there is no MVE; without it some kernels take less. TFLM is built for speed,
its default: what may be computed once lies in the arena's persistent part.
"""

from __future__ import annotations

import math

from diagmem.kernels._tflm import TFLM_REFERENCE, aligned
from diagmem.model.graph import DType, Nhwc, Node, Window1D, Window2D
from diagmem.ops.convolution import conv_2d, depthwise_conv_2d
from diagmem.ops.convolution.depthwise_conv_2d import CHANNELS_OF_A_BLOCK
from diagmem.ops.convolution.transpose_conv import FILTER, IMAGE


def is_1x1(window: Window2D) -> bool:
    return all(axis.kernel == axis.dilation == 1 for axis in (window.rows, window.cols))


def is_1xn(window: Window2D, depth: int) -> bool:
    """A convolution along one row, whose windows begin at multiples of 4 bytes."""
    one_row = window.rows.kernel == window.rows.size_in == window.cols.dilation == 1
    return one_row and window.cols.stride * depth % 4 == 0


def is_plain_depthwise(node: Node) -> bool:
    """One output channel for each input channel, one image, no dilation."""
    image, window = Nhwc.of(node.input(0)), depthwise_conv_2d.window_of(node)
    undilated = window.rows.dilation == window.cols.dilation == 1
    return image.depth == Nhwc.of(node.output).depth and image.batch == 1 and undilated


def of_conv(node: Node, mve: bool) -> int:
    window, depth = conv_2d.window_of(node), Nhwc.of(node.input(0)).depth
    dtype = node.input(0).dtype
    if dtype is DType.INT8:
        return aligned(_of_8_bit_conv(window, depth, mve))
    columns = window.rows.kernel * window.cols.kernel * depth
    return aligned((8 * _up(columns, 8) if mve else 4 * columns) if dtype is DType.INT16 else 0)


def of_depthwise_conv(node: Node, mve: bool) -> int:
    if node.input(0).dtype is not DType.INT8:
        return 0
    window, depth = depthwise_conv_2d.window_of(node), Nhwc.of(node.input(0)).depth
    taps = window.rows.kernel * window.cols.kernel
    if mve and depth == 1 and node.output.shape[-1] > 1:
        return aligned(_of_8_bit_conv(window, depth, mve) + node.input(1).elems)
    if not is_plain_depthwise(node):
        return 0
    if mve:
        return aligned(4 * CHANNELS_OF_A_BLOCK * taps)
    is_3x3 = window.rows.kernel == window.cols.kernel == 3
    return 0 if is_3x3 and max(window.rows.pad_before, window.cols.pad_before) <= 1 else aligned(2 * depth * taps)


def of_average_pool(node: Node, mve: bool) -> int:
    """Room for an accumulator for each channel."""
    summed = not mve and node.input(0).dtype in (DType.INT8, DType.INT16)
    return aligned(4 * Nhwc.of(node.input(0)).depth) if summed else 0


def of_fully_connected(node: Node, mve: bool) -> int:
    """Where it runs as a convolution, which wants a multiplier and a shift for each output, these are filled in."""
    filters = node.input(1)
    as_convolution = node.input(0).dtype is DType.INT8 and len(node.output.shape) > 2 and filters.shape[-1] % 4 == 0
    given = filters.quantisation is not None and filters.quantisation.per_channel
    return aligned(8 * filters.shape[0]) if as_convolution and not given else 0


def of_transpose_conv(node: Node, mve: bool) -> int:
    """8-bit kernels reverse the filter and run a convolution, or sum up the rows that are not finished yet."""
    image, filters = Nhwc.of(node.input(IMAGE)), Nhwc.of(node.input(FILTER))
    if node.input(IMAGE).dtype is not DType.INT8:
        return TFLM_REFERENCE.scratch_bytes(node)
    stride_h, stride_w = node.attributes.stride_h, node.attributes.stride_w
    if max(stride_h, stride_w) <= 2 and image.depth > 16:
        return aligned(_of_im2col(math.prod(filters[1:]), mve), math.prod(filters))
    width = (image.width - 1) * stride_w + max(filters.width, stride_h)
    return aligned(4 * width * max(filters.height, stride_h) * filters.batch)


def _of_8_bit_conv(window: Window2D, depth: int, mve: bool) -> int:
    if is_1x1(window):
        return 0
    if mve and is_1xn(window, depth):
        return _of_1xn(window.cols, depth)
    return _of_im2col(window.rows.kernel * window.cols.kernel * depth, mve)


def _of_im2col(column: int, mve: bool) -> int:
    """Room for four columns of bytes, or two of 16-bit values."""
    return 4 * _up(column, 16 if mve else 4)


def _of_1xn(cols: Window1D, depth: int) -> int:
    """The first windows with what they have of padding on the left, or the last ones on the right."""
    total = (cols.size_out - 1) * cols.stride + cols.kernel - cols.size_in
    odd = int(math.fmod(total, 2))
    left, right = _windows_reached(cols.pad_before, cols.stride), _windows_reached(cols.pad_before + odd, cols.stride)
    if left + right > cols.size_out:
        return _of_im2col(cols.kernel * depth, mve=True)
    return depth * max(cols.kernel + cols.pad_before, cols.kernel - 1 + (right if odd else cols.pad_before))


def _windows_reached(padding: int, stride: int) -> int:
    return max(1, -(-padding // stride)) if padding else 0


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
