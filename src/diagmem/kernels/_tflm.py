"""TensorFlow Lite Micro's reference kernels, as they are without any optimised library.

They are the same C++ on every core. The orders hold for compilers that keep accesses through pointers of one type, or
through bytes, in order where they may touch the same address, as C demands; none of these kernels uses `restrict`.
"""

from __future__ import annotations

import math

from diagmem.kernels._library import Library
from diagmem.model.graph import DType, Node
from diagmem.ops import kind_of
from diagmem.ops.convolution.transpose_conv import IMAGE
from diagmem.ops.orders import Order
from diagmem.ops.recurrent import lstm
from diagmem.ops.reductions import cumsum

ALIGN_BYTES = 16
"""What TFLM gives to everything that it places in its arena."""

_POINTER_BYTES = 8
"""On a host; on micro-controllers it is half of it."""

_IN_ORDER = ("CONV_2D", "FULLY_CONNECTED")
"""Operations that it does element by element, where we have another kernel."""

_COPIES = (
    *("CONCATENATION", "STRIDED_SLICE", "GATHER"),
    *("RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"),
)
"""Operations for which it calls memcpy."""

_ABSENT = ("GELU", "RELU_N1_TO_1", "RELU_0_TO_1", "POW")
"""Operations that it does not have."""

_TO_OTHER_TYPES = (
    *("CAST", "QUANTIZE", "DEQUANTIZE", "ARG_MAX", "ARG_MIN"),
    *("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
)
"""Operations that it does element by element, whose output is of another type as a rule."""


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


def _order_of_cumsum(node: Node) -> Order | None:
    """Its outer loop goes over the axes behind the one that is summed; from behind it goes through all in reverse;
    without the element itself it writes before it reads."""
    outer, _, inner = cumsum.walk_of(node)
    is_plain = not node.attributes.exclusive and not node.attributes.reverse
    return Order.REFERENCE if is_plain and 1 in (outer, inner) else None


def _order_of_select(node: Node) -> Order | None:
    """Element by element where nothing is repeated, of bytes as of those that `_order_of_conversion` knows; else rows
    are filled and copied."""
    shapes = {t.shape for t in (*node.inputs, node.output) if t is not None}
    return Order.REFERENCE if len(shapes) == 1 and node.output.dtype is DType.INT8 else None


def _order_of_reverse(node: Node) -> Order | None:
    """Where the last elements of all change places it goes through the output; else it goes through the input."""
    shape, axes = node.input(0).shape, node.input(1)
    if axes.data is None or not axes.ints:
        return None
    turned = sorted(axis % len(shape) for axis in axes.ints)
    are_neighbours = turned == list(range(turned[0], turned[-1] + 1))
    return Order.REFERENCE if are_neighbours and math.prod(shape[turned[-1] + 1 :]) == 1 else None


def _scratch_of_svdf(node: Node) -> int:
    """What each filter gives, and for integers a sum for each unit."""
    batches, filters = node.input(0).shape[0], node.input(1).shape[0]
    sums = 0 if node.input(0).dtype is DType.FLOAT32 else 4 * node.output.elems
    return aligned(4 * batches * filters, sums)


def _scratch_of_lstm(node: Node) -> int:
    """Four gates, each as large as the state of the cells."""
    _, cells = lstm.KIND.states(node)
    return 4 * aligned(node.input(cells).size_bytes)


def _scratch_of_real_fft(node: Node) -> int:
    """A row of samples."""
    return aligned(node.attributes.size * node.input(0).dtype.size_bytes)


def _scratch_of_detection(node: Node) -> int:
    """A flag, a decoded box, its scores, and numbers of 4 bytes for sorting and choosing."""
    a, (_, boxes, scores) = node.attributes, node.input(1).shape
    one, most = 4 * boxes, 4 * boxes * a.max_detections
    sorting = [one, one, most, most, one, most]
    chosen = [one * max(a.num_classes, a.max_detections), one * min(boxes, a.max_detections)]
    return aligned(boxes, 4 * one, one * scores, *sorting, *chosen)


def _scratch_of_add_n(node: Node) -> int:
    """A pointer to each input."""
    return aligned(_POINTER_BYTES * len(node.inputs))


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
        **dict.fromkeys(_TO_OTHER_TYPES, _order_of_conversion),
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), Order.ZERO_FIRST),
        **dict.fromkeys(("PACK", "UNPACK"), Order.TENSOR_MAJOR),
        "SPACE_TO_DEPTH": Order.INPUT_MAJOR,
        "TRANSPOSE_CONV": _order_of_transpose_conv,
        **dict.fromkeys(("CUSTOM:SignalRfft", "CUSTOM:SignalIrfft", "CUSTOM:SignalFilterBank"), Order.BUFFERED),
        "CUMSUM": _order_of_cumsum,
        "SELECT_V2": _order_of_select,
        "REVERSE_V2": _order_of_reverse,
    },
    _order_if_read,
    {
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL"), _scratch_of_reduction),
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _scratch_of_filter),
        "TRANSPOSE_CONV": _scratch_of_transpose_conv,
        "MIRROR_PAD": _scratch_of_mirror_pad,
        "SVDF": _scratch_of_svdf,
        "UNIDIRECTIONAL_SEQUENCE_LSTM": _scratch_of_lstm,
        "ADD_N": _scratch_of_add_n,
        "CUSTOM:SignalRfft": _scratch_of_real_fft,
        "CUSTOM:TFLite_Detection_PostProcess": _scratch_of_detection,
    },
    ALIGN_BYTES,
    keeps_variables=True,
)
