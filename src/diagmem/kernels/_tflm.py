"""TensorFlow Lite Micro: its reference kernels, and those of CMSIS-NN by Arm for 8 and 16 bits.

The reference kernels are the same C++ on every core. Their orders hold for compilers that keep accesses through
pointers of one type, or through bytes, in order where they may touch the same address, as C demands; none of these
kernels uses `restrict`.

CMSIS-NN was read at commit 4ab83cc, which TFLM builds, as GCC compiles it and without `OPTIONAL_RESTRICT_KEYWORD`.
Where a kernel reads earlier than a plain order says, that order stands for it: a read that comes earlier is never less
safe. Two builds differ: with the vector extension of Armv8.1-M (MVE, also called Helium), and without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from diagmem.kernels._library import Library, OrderRule, ScratchRule
from diagmem.model.graph import DType, Nhwc, Node, Window1D, Window2D
from diagmem.ops import kind_of
from diagmem.ops.convolution import conv_2d, depthwise_conv_2d
from diagmem.ops.convolution.depthwise_conv_2d import CHANNELS_OF_A_BLOCK
from diagmem.ops.convolution.transpose_conv import FILTER, IMAGE
from diagmem.ops.orders import Order
from diagmem.ops.recurrent import lstm
from diagmem.ops.reductions.reduce import walk_of

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
    outer, _, inner = walk_of(node)
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


def _scratch_of_reference_transpose_conv(node: Node) -> int:
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
        "TRANSPOSE_CONV": _scratch_of_reference_transpose_conv,
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


def _is_1x1(window: Window2D) -> bool:
    return all(axis.kernel == axis.dilation == 1 for axis in (window.rows, window.cols))


def _is_1xn(window: Window2D, depth: int) -> bool:
    """A convolution along one row, whose windows begin at multiples of 4 bytes."""
    one_row = window.rows.kernel == window.rows.size_in == window.cols.dilation == 1
    return one_row and window.cols.stride * depth % 4 == 0


def _is_plain_depthwise(node: Node) -> bool:
    """One output channel for each input channel, one image, no dilation."""
    image, window = Nhwc.of(node.input(0)), depthwise_conv_2d.KIND.window(node)
    undilated = window.rows.dilation == window.cols.dilation == 1
    return image.depth == Nhwc.of(node.output).depth and image.batch == 1 and undilated


def _scratch_of_conv(node: Node, mve: bool) -> int:
    window, depth = conv_2d.KIND.window(node), Nhwc.of(node.input(0)).depth
    dtype = node.input(0).dtype
    if dtype is DType.INT8:
        return aligned(_scratch_of_8_bit_conv(window, depth, mve))
    columns = window.rows.kernel * window.cols.kernel * depth
    return aligned((8 * _up(columns, 8) if mve else 4 * columns) if dtype is DType.INT16 else 0)


def _scratch_of_depthwise_conv(node: Node, mve: bool) -> int:
    if node.input(0).dtype is not DType.INT8:
        return 0
    window, depth = depthwise_conv_2d.KIND.window(node), Nhwc.of(node.input(0)).depth
    taps = window.rows.kernel * window.cols.kernel
    if mve and depth == 1 and node.output.shape[-1] > 1:
        return aligned(_scratch_of_8_bit_conv(window, depth, mve) + node.input(1).elems)
    if not _is_plain_depthwise(node):
        return 0
    if mve:
        return aligned(4 * CHANNELS_OF_A_BLOCK * taps)
    is_3x3 = window.rows.kernel == window.cols.kernel == 3
    return 0 if is_3x3 and max(window.rows.pad_before, window.cols.pad_before) <= 1 else aligned(2 * depth * taps)


def _scratch_of_average_pool(node: Node, mve: bool) -> int:
    """Room for an accumulator for each channel."""
    summed = not mve and node.input(0).dtype in (DType.INT8, DType.INT16)
    return aligned(4 * Nhwc.of(node.input(0)).depth) if summed else 0


def _scratch_of_fully_connected(node: Node, mve: bool) -> int:
    """Where it runs as a convolution, which wants a multiplier and a shift for each output, these are filled in."""
    filters = node.input(1)
    as_convolution = node.input(0).dtype is DType.INT8 and len(node.output.shape) > 2 and filters.shape[-1] % 4 == 0
    given = filters.quantisation is not None and filters.quantisation.per_channel
    return aligned(8 * filters.shape[0]) if as_convolution and not given else 0


def _scratch_of_transpose_conv(node: Node, mve: bool) -> int:
    """8-bit kernels reverse the filter and run a convolution, or sum up the rows that are not finished yet."""
    image, filters = Nhwc.of(node.input(IMAGE)), Nhwc.of(node.input(FILTER))
    if node.input(IMAGE).dtype is not DType.INT8:
        return TFLM_REFERENCE.scratch_bytes(node)
    stride_h, stride_w = node.attributes.stride_h, node.attributes.stride_w
    if max(stride_h, stride_w) <= 2 and image.depth > 16:
        return aligned(_scratch_of_im2col(math.prod(filters[1:]), mve), math.prod(filters))
    width = (image.width - 1) * stride_w + max(filters.width, stride_h)
    return aligned(4 * width * max(filters.height, stride_h) * filters.batch)


def _scratch_of_8_bit_conv(window: Window2D, depth: int, mve: bool) -> int:
    if _is_1x1(window):
        return 0
    if mve and _is_1xn(window, depth):
        return _scratch_of_1xn(window.cols, depth)
    return _scratch_of_im2col(window.rows.kernel * window.cols.kernel * depth, mve)


def _scratch_of_im2col(column: int, mve: bool) -> int:
    """Room for four columns of bytes, or two of 16-bit values."""
    return 4 * _up(column, 16 if mve else 4)


def _scratch_of_1xn(cols: Window1D, depth: int) -> int:
    """The first windows with what they have of padding on the left, or the last ones on the right."""
    total = (cols.size_out - 1) * cols.stride + cols.kernel - cols.size_in
    odd = int(math.fmod(total, 2))
    left, right = _windows_reached(cols.pad_before, cols.stride), _windows_reached(cols.pad_before + odd, cols.stride)
    if left + right > cols.size_out:
        return _scratch_of_im2col(cols.kernel * depth, mve=True)
    return depth * max(cols.kernel + cols.pad_before, cols.kernel - 1 + (right if odd else cols.pad_before))


def _windows_reached(padding: int, stride: int) -> int:
    return max(1, -(-padding // stride)) if padding else 0


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _order_of_conv(node: Node, mve: bool) -> Order | None:
    if _is_not_8_bit(node):
        return Order.REFERENCE
    image, filters = Nhwc.of(node.input(0)), Nhwc.of(node.input(1))
    if not _has_8_bit_kernel(node) or image.depth != filters.depth:
        return None
    window = conv_2d.KIND.window(node)
    if mve and _is_1xn(window, image.depth):
        # Where a stride meets padding on the right, the kernel looks at bytes behind its input.
        return Order.QUADS if window.cols.stride == 1 or window.cols.pad_after == 0 else None
    if not _is_1x1(window):
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
    return Order.CHANNEL_BLOCKS if mve and _is_plain_depthwise(node) else Order.REFERENCE


def _order_of_fully_connected(node: Node) -> Order | None:
    """8-bit data of more than two axes goes to the kernel for 1x1 convolutions."""
    if _is_not_8_bit(node):
        return Order.REFERENCE
    as_convolution = len(node.output.shape) > 2 and node.input(1).shape[-1] % 4 == 0
    return Order.REFERENCE if _has_8_bit_kernel(node) and not as_convolution else None


def _for(order: Order, *types: DType) -> Callable[[Node], Order | None]:
    """This order for data of these types; else that of the reference kernel."""
    return lambda node: order if node.input(0).dtype in types else Order.REFERENCE


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


def _cmsis_nn(name: str, cores: str, mve: bool) -> Library:
    """CMSIS-NN where it differs from the reference kernels. Not listed among the orders: ADD, MUL, MAXIMUM, MINIMUM,
    AVERAGE_POOL_2D, SOFTMAX, which read no later than the reference."""
    orders: Mapping[str, OrderRule] = {
        "CONV_2D": partial(_order_of_conv, mve=mve),
        "DEPTHWISE_CONV_2D": partial(_order_of_depthwise_conv, mve=mve),
        "FULLY_CONNECTED": _order_of_fully_connected,
        "MAX_POOL_2D": _for(Order.ACCUMULATE, DType.INT8, DType.INT16),
        **dict.fromkeys(("PAD", "PADV2"), _for(Order.MEMCPY, DType.INT8)),
        **dict.fromkeys(("TRANSPOSE", "TRANSPOSE_CONV"), _unless(DType.INT8)),
        **dict.fromkeys(("BATCH_MATMUL", "UNIDIRECTIONAL_SEQUENCE_LSTM", "SVDF"), _unless(DType.INT8, DType.INT16)),
    }
    scratch: Mapping[str, ScratchRule] = {
        "CONV_2D": partial(_scratch_of_conv, mve=mve),
        "DEPTHWISE_CONV_2D": partial(_scratch_of_depthwise_conv, mve=mve),
        "AVERAGE_POOL_2D": partial(_scratch_of_average_pool, mve=mve),
        "FULLY_CONNECTED": partial(_scratch_of_fully_connected, mve=mve),
        "TRANSPOSE_CONV": partial(_scratch_of_transpose_conv, mve=mve),
    }
    summary = f"TensorFlow Lite Micro with CMSIS-NN, built by GCC for cores {cores}"
    both = {**TFLM_REFERENCE.scratch, **scratch}
    return Library(name, summary, orders, TFLM_REFERENCE.order, both, ALIGN_BYTES, keeps_variables=True)


CMSIS_NN = _cmsis_nn("cmsis-nn", "without MVE: Cortex-M0 to M7, M23, M33, M35P", mve=False)
CMSIS_NN_MVE = _cmsis_nn("cmsis-nn-mve", "with MVE: Cortex-M52, M55, M85", mve=True)

PARTS = (TFLM_REFERENCE, CMSIS_NN, CMSIS_NN_MVE)
"""What TensorFlow Lite Micro may be built with, where that is not known."""

_SAFEST_LAST = (
    Order.IM2COL,
    Order.REFERENCE,
    Order.QUADS,
    Order.ROWS,
    Order.CHANNEL_BLOCKS,
    Order.ACCUMULATE,
    Order.MEMCPY,
)
"""Orders that kernels of one operation differ in: each asks for at least the separation of those before it."""

_KNOWN = frozenset(_SAFEST_LAST)


def _safest_order(node: Node) -> Order | None:
    """None unless all of its parts may overlap, and it is known which of them asks for most."""
    found = {part.order(node) for part in PARTS}
    if len(found) == 1:
        return found.pop()
    return next((order for order in reversed(_SAFEST_LAST) if order in found), None) if found <= _KNOWN else None


TFLM = Library(
    "tflm",
    "TensorFlow Lite Micro with reference or CMSIS-NN kernels, on any core: safe for each of these",
    {},
    _safest_order,
    dict.fromkeys(
        {kind for part in PARTS for kind in part.scratch}, lambda node: max(p.scratch_bytes(node) for p in PARTS)
    ),
    ALIGN_BYTES,
    keeps_variables=True,
)
