"""TensorFlow Lite Micro's reference kernels, as they are without any optimised library.

They are the same C++ on every core. The orders hold for compilers that keep accesses through pointers of one type, or
through bytes, in order where they may touch the same address, as C demands; none of these kernels uses `restrict`.
"""

from __future__ import annotations

from diagmem.graph import DType, Node
from diagmem.kernels._library import Library
from diagmem.ops.convolution.transpose_conv import IMAGE

ALIGN_BYTES = 16
"""What TFLM gives to everything that it places in its arena."""

_IN_ORDER = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"),
    *("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D", "RESIZE_BILINEAR"),
    *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"),
    *("RELU", "RELU6", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH"),
    *("SQRT", "RSQRT", "SQUARE", "EXP", "LOG", "SIN", "COS", "ABS", "NEG", "FLOOR", "CEIL", "ROUND", "LOGICAL_NOT"),
    *("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"),
    *("PAD", "PADV2", "MIRROR_PAD", "SPLIT", "SPLIT_V", "SLICE", "TRANSPOSE", "DEPTH_TO_SPACE"),
)

_COPIES = (
    *("CONCATENATION", "STRIDED_SLICE", "GATHER"),
    *("RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
)


def aligned(*sizes_bytes: int) -> int:
    """What several scratch buffers take, each aligned."""
    return sum(-(-size // ALIGN_BYTES) * ALIGN_BYTES for size in sizes_bytes)


def _order_of_conversion(node: Node) -> str | None:
    """Pointers to different types are taken never to meet, so their accesses may be reordered; bytes meet all."""
    types = {node.input(0).dtype, node.output.dtype}
    return "reference" if len(types) == 1 or types & {DType.INT8, DType.UINT8} else None


def _order_of_transpose_conv(node: Node) -> str | None:
    """Quantised kernels sum up in a scratch buffer; the one for floats in the output, which it first sets to zero."""
    return "buffered" if node.input(IMAGE).dtype in (DType.INT8, DType.INT16) else None


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
    """Strides of input and output."""
    return 2 * aligned(4 * len(node.input(0).shape))


TFLM_REFERENCE = Library(
    "tflm-reference",
    "TensorFlow Lite Micro with its reference kernels, on any core",
    {
        **dict.fromkeys(_IN_ORDER, "reference"),
        **dict.fromkeys(_COPIES, "memcpy"),
        **dict.fromkeys(("CAST", "QUANTIZE", "DEQUANTIZE", "ARG_MAX", "ARG_MIN"), _order_of_conversion),
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), "zero_first"),
        **dict.fromkeys(("PACK", "UNPACK"), "tensor_major"),
        **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), "alias"),
        "SPACE_TO_DEPTH": "input_major",
        "TRANSPOSE_CONV": _order_of_transpose_conv,
    },
    {
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), _scratch_of_reduction),
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _scratch_of_filter),
        "TRANSPOSE_CONV": _scratch_of_transpose_conv,
        "MIRROR_PAD": _scratch_of_mirror_pad,
    },
    ALIGN_BYTES,
    keeps_variables=True,
)
