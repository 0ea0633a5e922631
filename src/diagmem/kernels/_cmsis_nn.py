"""TensorFlow Lite Micro with CMSIS-NN: 8-bit and 16-bit kernels by Arm, the reference kernels for all the rest.

Read from CMSIS-NN at commit 4ab83cc, which TFLM builds, as GCC compiles it and without `OPTIONAL_RESTRICT_KEYWORD`.
Where a kernel reads earlier than a plain order says, that order stands for it: a read that comes earlier is never less
safe. Two builds differ: with the vector extension of Armv8.1-M (MVE, also called Helium), and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from diagmem.kernels import _cmsis_nn_scratch as scratch
from diagmem.kernels._library import Library, OrderRule, ScratchRule
from diagmem.kernels._tflm import ALIGN_BYTES, TFLM_REFERENCE
from diagmem.model.graph import DType, Nhwc, Node
from diagmem.ops.convolution import conv_2d
from diagmem.ops.orders import Order


def _order_of_conv(node: Node, mve: bool) -> Order | None:
    if _is_not_8_bit(node):
        return Order.REFERENCE
    image, filters = Nhwc.of(node.input(0)), Nhwc.of(node.input(1))
    if not _has_8_bit_kernel(node) or image.depth != filters.depth:
        return None
    window = conv_2d.window_of(node)
    if mve and scratch.is_1xn(window, image.depth):
        # Where a stride meets padding on the right, the kernel looks at bytes behind its input.
        return Order.QUADS if window.cols.stride == 1 or window.cols.pad_after == 0 else None
    if not scratch.is_1x1(window):
        return Order.IM2COL
    if mve:
        return Order.QUADS
    if window.rows.stride > 1 or window.cols.stride > 1:
        return Order.ROWS
    # Pairs of channels are the outermost loop, around pairs of pixels: with more than one such pair nothing is gained.
    return Order.QUADS if filters.batch <= 2 else None


def _order_of_depthwise_conv(node: Node, mve: bool) -> Order | None:
    if _is_not_8_bit(node):
        return Order.REFERENCE
    if not _has_8_bit_kernel(node):
        return None
    if mve and Nhwc.of(node.input(0)).depth == 1 and Nhwc.of(node.input(1)).height == 1:
        # It becomes a convolution, and may be one that does not copy its windows first.
        return None
    return Order.CHANNEL_BLOCKS if mve and scratch.is_plain_depthwise(node) else Order.REFERENCE


def _order_of_fully_connected(node: Node) -> Order | None:
    """8-bit data of more than two axes goes to the kernel for 1x1 convolutions."""
    if _is_not_8_bit(node):
        return Order.REFERENCE
    as_convolution = len(node.output.shape) > 2 and node.input(1).shape[-1] % 4 == 0
    return Order.REFERENCE if _has_8_bit_kernel(node) and not as_convolution else None


def _order_of_max_pool(node: Node) -> Order | None:
    return Order.ACCUMULATE if node.input(0).dtype in (DType.INT8, DType.INT16) else Order.REFERENCE


def _order_of_pad(node: Node) -> Order | None:
    return Order.MEMCPY if node.input(0).dtype is DType.INT8 else Order.REFERENCE


def _is_not_8_bit(node: Node) -> bool:
    """The kernel is the reference (floats), or reads no later than it (16 bits)."""
    return node.input(0).dtype in (DType.FLOAT32, DType.INT16)


def _has_8_bit_kernel(node: Node) -> bool:
    """Weights of 4 bits have kernels of their own, which are not known here."""
    return node.input(0).dtype is DType.INT8 and node.input(1).dtype is DType.INT8


def _unless(*unknown: DType) -> Callable[[Node], Order | None]:
    """As the reference kernel, but for data of types that have kernels of their own, not known here."""

    def rule(node: Node) -> Order | None:
        return None if {t.dtype for _, t in node.activations()} & set(unknown) else TFLM_REFERENCE.order(node)

    return rule


def _exceptions(mve: bool) -> Mapping[str, OrderRule]:
    """Where the orders differ from those of the reference kernels. Not listed: ADD, MUL, MAXIMUM, MINIMUM,
    AVERAGE_POOL_2D, SOFTMAX, which read no later than the reference."""
    return {
        "CONV_2D": partial(_order_of_conv, mve=mve),
        "DEPTHWISE_CONV_2D": partial(_order_of_depthwise_conv, mve=mve),
        "FULLY_CONNECTED": _order_of_fully_connected,
        "MAX_POOL_2D": _order_of_max_pool,
        **dict.fromkeys(("PAD", "PADV2"), _order_of_pad),
        **dict.fromkeys(("TRANSPOSE", "TRANSPOSE_CONV"), _unless(DType.INT8)),
        **dict.fromkeys(("BATCH_MATMUL", "UNIDIRECTIONAL_SEQUENCE_LSTM", "SVDF"), _unless(DType.INT8, DType.INT16)),
    }


def _scratch(mve: bool) -> Mapping[str, ScratchRule]:
    return {
        **TFLM_REFERENCE.scratch,
        "CONV_2D": partial(scratch.of_conv, mve=mve),
        "DEPTHWISE_CONV_2D": partial(scratch.of_depthwise_conv, mve=mve),
        "AVERAGE_POOL_2D": partial(scratch.of_average_pool, mve=mve),
        "FULLY_CONNECTED": partial(scratch.of_fully_connected, mve=mve),
        "TRANSPOSE_CONV": partial(scratch.of_transpose_conv, mve=mve),
    }


CMSIS_NN = Library(
    "cmsis-nn",
    "TensorFlow Lite Micro with CMSIS-NN, built by GCC for cores without MVE: Cortex-M0 to M7, M23, M33, M35P",
    _exceptions(mve=False),
    TFLM_REFERENCE.order,
    _scratch(mve=False),
    ALIGN_BYTES,
    keeps_variables=True,
)

CMSIS_NN_MVE = Library(
    "cmsis-nn-mve",
    "TensorFlow Lite Micro with CMSIS-NN, built by GCC for cores with MVE: Cortex-M52, M55, M85",
    _exceptions(mve=True),
    TFLM_REFERENCE.order,
    _scratch(mve=True),
    ALIGN_BYTES,
    keeps_variables=True,
)
