"""The project's own kernels."""

from __future__ import annotations

from diagmem.graph import Node
from diagmem.kernels._library import Library
from diagmem.ops.numerics.weighted_sums import BLOCKS


def _conv_2d(node: Node) -> str:
    """Grouped convolutions go channel by channel."""
    is_grouped = node.input(0).shape[-1] != node.input(1).shape[-1]
    return "reference" if is_grouped else BLOCKS


DIAGMEM = Library(
    "diagmem",
    "the C kernels that `diagmem emit c` writes",
    {
        **dict.fromkeys(
            (
                *("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL"),
                *("AVERAGE_POOL_2D", "MAX_POOL_2D", "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"),
                *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"),
                *("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH", "GELU"),
                *("SQRT", "RSQRT", "SQUARE", "EXP", "ABS", "NEG", "CAST", "QUANTIZE", "DEQUANTIZE"),
                *("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"),
                *("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "ARG_MAX", "ARG_MIN"),
                *("PAD", "PADV2", "MIRROR_PAD", "CONCATENATION", "SPLIT", "SPLIT_V", "SLICE", "STRIDED_SLICE"),
                *("PACK", "UNPACK", "TRANSPOSE", "GATHER"),
                *("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
            ),
            "reference",
        ),
        "CONV_2D": _conv_2d,
        "FULLY_CONNECTED": BLOCKS,
        **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), "alias"),
    },
    addresses_views=True,
)
