"""TensorFlow Lite Micro's reference kernels, as they are without any optimised library.

They are the same C++ on every core. The orders hold for compilers that keep accesses through pointers of one type, or
through bytes, in order where they may touch the same address, as C demands; none of these kernels uses `restrict`.
"""

from __future__ import annotations

from diagmem.kernels._library import Library
from diagmem.model.graph import DType, Node
from diagmem.ops import kind_of
from diagmem.ops.convolution.transpose_conv import IMAGE
from diagmem.ops.orders import Order

ALIGN_BYTES = 16
"""What TFLM gives to everything that it places in its arena."""

_IN_ORDER = ("CONV_2D", "FULLY_CONNECTED", "L2_POOL_2D")
"""Operations that it does element by element, where we have another kernel or none."""

_COPIES = (
    *("CONCATENATION", "STRIDED_SLICE", "GATHER"),
    *("RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
)
"""Operations for which it calls memcpy."""

_ABSENT = ("GELU", "RELU_N1_TO_1", "RELU_0_TO_1")
"""Operations that it does not have."""


def aligned(*sizes_bytes: int) -> int:
    """What several scratch buffers take, each aligned."""
    return sum(-(-size // ALIGN_BYTES) * ALIGN_BYTES for size in sizes_bytes)


def _order_if_read(node: Node) -> Order | None:
    """That of our kernel, where somebody has compared the two."""
    kind = kind_of(node.op.kind)
    return kind.default_order(node) if kind is not None and kind.tflm_agrees else None


def _order_of_conversion(node: Node) -> Order | None:
    """Pointers to different types are taken never to meet, so their accesses may be reordered; bytes meet all."""
    types = {node.input(0).dtype, node.output.dtype}
    return Order.REFERENCE if len(types) == 1 or types & {DType.INT8, DType.UINT8} else None


def _order_of_transpose_conv(node: Node) -> Order | None:
    """Quantised kernels sum up in a scratch buffer; the one for floats in the output, which it first sets to zero."""
    return Order.BUFFERED if node.input(IMAGE).dtype in (DType.INT8, DType.INT16) else None


def _scratch_of_reduction(node: Node) -> int:
    """An index along each axis, the axes, and for quantised sums an accumulator for each output."""
    data, axes = node.input(0), node.input(1)
    sums = node.op.kind in ("MEAN", "SUM") and data.dtype in (DType.INT8, DType.INT16)
    return aligned(4 * len(data.shape), 4 * axes.elems, 4 * node.output.elems if sums else 0)


def _scratch_of_transpose_conv(node: Node) -> int:
    """An accumulator for each output, of 32 bits for 8-bit data, of 64 bits for 16-bit data."""
    return aligned({DType.INT8: 4, DType.INT16: 8}.get(node.input(IMAGE).dtype, 0) * node.output.elems)


def _scratch_of_filter(node: Node) -> int:
    """Weights of 4 bits are unpacked."""
    filters = node.input(1)
    return aligned(filters.elems) if filters.dtype is DType.INT4 else 0


def _scratch_of_mirror_pad(node: Node) -> int:
    """Room for the strides of input and output."""
    return 2 * aligned(4 * len(node.input(0).shape))


TFLM_REFERENCE = Library(
    "tflm-reference",
    "TensorFlow Lite Micro with its reference kernels, on any core",
    {
        **dict.fromkeys(_IN_ORDER, Order.REFERENCE),
        **dict.fromkeys(_COPIES, Order.MEMCPY),
        **dict.fromkeys(_ABSENT),
        **dict.fromkeys(("CAST", "QUANTIZE", "DEQUANTIZE", "ARG_MAX", "ARG_MIN"), _order_of_conversion),
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), Order.ZERO_FIRST),
        **dict.fromkeys(("PACK", "UNPACK"), Order.TENSOR_MAJOR),
        "SPACE_TO_DEPTH": Order.INPUT_MAJOR,
        "TRANSPOSE_CONV": _order_of_transpose_conv,
    },
    _order_if_read,
    {
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _scratch_of_reduction),
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _scratch_of_filter),
        "TRANSPOSE_CONV": _scratch_of_transpose_conv,
        "MIRROR_PAD": _scratch_of_mirror_pad,
    },
    ALIGN_BYTES,
    keeps_variables=True,
)
