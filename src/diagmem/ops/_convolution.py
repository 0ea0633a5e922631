"""What convolutions of both kinds have in common beside their loops: scales, biases, activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from diagmem.graph import DType, Node, Tensor
from diagmem.ops._base import Array
from diagmem.ops._c_call import CTable, CValue, Unsupported, values_of
from diagmem.ops._c_window import c_window
from diagmem.ops._quantised import (
    Requantisation,
    channel_scales,
    folded_bias,
    real_range,
    scale_of,
    zero_point_of,
)
from diagmem.ops._taps import tap_counts
from diagmem.ops._windowed import WindowedLoop


def bias_of(node: Node) -> Tensor | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def requantisation_of(node: Node, axis: int) -> Requantisation:
    """The output's, with a multiplier for each channel along the filter's `axis`."""
    unit, output = scale_of(node.input(0)), scale_of(node.output)
    scales = channel_scales(node.input(1), axis)
    return Requantisation.of([unit * scale / output for scale in scales], node.output, node.attributes.activation)


def finished_s8(node: Node, sums: Array, bias: Array | None, axis: int) -> Array:
    """The output of a quantised convolution from the sums of its products."""
    whole = sums.astype(np.int64) + (0 if bias is None else bias)
    return requantisation_of(node, axis).apply(whole).astype(np.int8)


def finished_f32(node: Node, sums: Array, bias: Array | None) -> Array:
    """The output of a convolution of real numbers from the sums of its products."""
    low, high = real_range(node.attributes.activation)
    whole: Array = np.clip(sums if bias is None else sums + bias, np.float32(low), np.float32(high))
    return whole


def fields_s8(node: Node, loop: WindowedLoop, weights: Array, axis: int) -> dict[str, CValue]:
    """Fields of a quantised kernel. `weights`: a row for each output channel, as the kernel wants them."""
    bias, zero_point = bias_of(node), zero_point_of(node.input(0))
    for tensor, dtype in ((node.input(1), DType.INT8), (bias, DType.INT32), (node.output, DType.INT8)):
        if tensor is not None and tensor.dtype is not dtype:
            raise Unsupported(f"'{tensor.label}' with {tensor.dtype.value} elements; supported: {dtype.value}")
    folded = folded_bias(None if bias is None else values_of(bias), weights, zero_point, 128)
    return {
        "window": c_window(loop),
        "filter": CTable("filter", weights),
        "bias": CTable("bias", folded),
        "padding": _padding(loop, np.int8, zero_point),
        "output": requantisation_of(node, axis).c_struct(),
    }


def fields_f32(node: Node, loop: WindowedLoop, weights: Array) -> dict[str, CValue]:
    """Fields of a kernel for real numbers."""
    bias, channels = bias_of(node), loop.out.depth
    low, high = real_range(node.attributes.activation)
    return {
        "window": c_window(loop),
        "filter": CTable("filter", weights),
        "bias": CTable("bias", np.zeros(channels, np.float32) if bias is None else values_of(bias)),
        "padding": _padding(loop, np.float32, 0),
        "low": low,
        "high": high,
    }


def _padding(loop: WindowedLoop, dtype: Any, value: int) -> CTable | None:
    """A pixel for taps outside the image; None where there are no such taps."""
    taps = loop.rows.kernel * loop.cols.kernel
    if tap_counts(loop.rows, loop.cols).min() == taps:
        return None
    return CTable("padding", np.full(loop.image.depth, value, dtype))
