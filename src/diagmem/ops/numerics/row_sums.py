"""Convolutions and fully connected layers that one row of windows covers: a run row by row takes rows of the image into
sums as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Window1D
from diagmem.ops.c_call import CCall, Fields, kernel_call, taking_call
from diagmem.ops.kind import SUM_BYTES, Array
from diagmem.ops.loops.windowed import WindowedLoop, c_window, window_limits
from diagmem.ops.numerics.packed import Channels, packed_rows
from diagmem.ops.numerics.weighted_sums import c_padding, filter_fields, interleaved, kernel_suffix

RowSums = Callable[[Node, int, WindowedLoop, Array, Fields], CCall]
"""Makes the call for a node: the axis of the output channels in its filter, its loops, the weights as [output channel,
row, …], and fields that the kernel has for some kinds only."""

_SUFFIXES = ("f32", "s16", "s8", "u8")
"""Of the kernels that there are, by the types of data and weights."""


def row_sum_bytes(node: Node, rows: Window1D) -> int | None:
    """Bytes of the sums where one row of windows, `rows`, covers several rows of the image and nothing above or below
    it; None elsewhere. Sums of 16-bit numbers have 64 bits."""
    covers = rows.size_in > 1 == rows.size_out and len(rows.taps()[1]) == rows.kernel
    is_known = kernel_suffix(node) in _SUFFIXES and all(t is None or t.is_constant for t in node.inputs[1:])
    size = 2 * SUM_BYTES if node.input(0).dtype is DType.INT16 else SUM_BYTES
    return node.output.elems * size if covers and is_known and node.output.shape[0] == 1 else None


def row_sums_call(node: Node, axis: int, loop: WindowedLoop, weights: Array, own: Fields) -> CCall:
    """Of the kernel in plain C."""
    return _call(f"row_sums_{kernel_suffix(node)}", node, axis, loop, weights, _blocks(node, weights), own)


def vfp_row_sums_call(node: Node, axis: int, loop: WindowedLoop, weights: Array, own: Fields) -> CCall:
    """For floating-point units that multiply and add in one instruction."""
    return _call("row_sums_vfp_f32", node, axis, loop, weights, _blocks(node, weights), own)


def depthwise_row_sums_call(node: Node, loop: WindowedLoop, filters: Array, by_channel: Array) -> CCall:
    """`by_channel`: the weights of each output channel side by side."""
    own = {"multiplier": loop.group_out}
    return _call(f"depthwise_row_sums_{kernel_suffix(node)}", node, 3, loop, by_channel, filters, own)


def packed_row_sums_call(node: Node, axis: int, loop: WindowedLoop, weights: Array, own: Fields) -> CCall:
    """For the DSP extension, if inputs come in fours and the numbers allow it."""
    one = _over_a_row(loop)
    is_solid = c_padding(node, one) is None and loop.cols.dilation == 1
    unit = loop.image.depth * (loop.cols.kernel if is_solid else 1)
    found = packed_rows(Channels.of(node), weights.shape[1]) if unit % 4 == 0 else None
    if found is None:
        return row_sums_call(node, axis, loop, weights, own)
    fields = {**_window(node, loop), **found}
    return _taking(kernel_call("row_sums_packed_s8", fields, (node.input(0), node.output)), node, loop)


def _call(stem: str, node: Node, axis: int, loop: WindowedLoop, weights: Array, stored: Array, own: Fields) -> CCall:
    fields = {**_window(node, loop), **filter_fields(node, axis, weights, stored), **own}
    return _taking(kernel_call(stem, fields, (node.input(0), node.output)), node, loop)


def _taking(call: CCall, node: Node, loop: WindowedLoop) -> CCall:
    return replace(taking_call(call, node), limits=window_limits(_over_a_row(loop)), passes=loop.output_pixels)


def _window(node: Node, loop: WindowedLoop) -> Fields:
    one = _over_a_row(loop)
    taps = {"taps": loop.rows.kernel, "apart": loop.rows.dilation}
    return {"window": c_window(one), **taps, "padding": c_padding(node, one)}


def _over_a_row(loop: WindowedLoop) -> WindowedLoop:
    return replace(loop, image=loop.image._replace(height=1), rows=Window1D.resolve(1, 1, 1))


def _blocks(node: Node, weights: Array) -> Array:
    """For each row what a kernel for that row alone has."""
    return np.concatenate([interleaved(node, np.ascontiguousarray(weights[:, y])) for y in range(weights.shape[1])])
