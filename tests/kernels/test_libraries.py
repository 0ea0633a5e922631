"""The tables of kernel libraries: every order exists, and what they say of kernels that were read and measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diagmem.kernels import LIBRARIES, Library, library
from diagmem.kernels._tflm import PARTS
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Node, Padding, Quantisation, Shape, Tensor
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.orders import Order
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce
from tests.ops.cases import SMALL, activation, case_modules, constant, ints, node_of, windows
from tests.ops.drawing import sampled
from tests.profiles import examples

CASES = case_modules()


def conv(image: Shape, filters: Shape, attributes: Conv2D | None = None, dtype: DType = DType.INT8) -> Node:
    return node_of("CONV_2D", attributes or Conv2D(), [activation(image, dtype), constant(filters)], (dtype,))


def depthwise(image: Shape, filters: Shape, multiplier: int = 1) -> Node:
    attributes = DepthwiseConv2D(multiplier=multiplier)
    return node_of("DEPTHWISE_CONV_2D", attributes, [activation(image), constant(filters)])


POINTWISE = conv((1, 8, 8, 4), (6, 1, 1, 4))
STRIDED_1X1 = conv((1, 8, 8, 4), (6, 1, 1, 4), Conv2D(stride_h=2, stride_w=2))
ALONG_A_ROW = conv((1, 1, 20, 4), (6, 1, 5, 4))
STRIDED_ALONG_A_ROW = conv((1, 1, 20, 4), (6, 1, 5, 4), Conv2D(stride_w=2))
WINDOW_3X3 = conv((1, 8, 8, 4), (6, 3, 3, 4))
GROUPED = conv((1, 8, 8, 4), (6, 3, 3, 2))
MAX_POOL = node_of("MAX_POOL_2D", Pool2D(Padding.VALID, 2, 2, 2, 2), [activation((1, 8, 8, 4))])


def test_every_operation_in_a_table_has_a_kind() -> None:
    """A library speaks only of operations whose accesses are known."""
    for lib in LIBRARIES.values():
        assert set(lib.exceptions) <= set(kinds()), lib.name
        assert set(lib.scratch) <= set(kinds()), lib.name


@pytest.mark.parametrize("name", kinds())
def test_own_kernels_follow_their_kind(name: str) -> None:
    """The project's own library has no exceptions: what a kind has a kernel for may overlap as the kind says."""
    found = sampled(name, 10)
    without = name in kinds()[name].without_kernel
    assert all((library("diagmem").order(node) is None) == without for node in found)


@pytest.mark.parametrize("lib", LIBRARIES.values(), ids=lambda lib: lib.name)
def test_exceptions_differ_from_the_rule(lib: Library) -> None:
    """A library lists only operations for some of which its order is another than it would be anyway."""
    plain = replace(lib, exceptions={})
    for name in lib.exceptions:
        nodes = [changed for node in sampled(name, 60) for changed in (node, in_bytes(node), in_half_bytes(node))]
        assert any(lib.order(node) is not plain.order(node) for node in nodes), name


def test_an_order_that_a_kind_does_not_know_may_not_overlap() -> None:
    """It is never taken for another order."""
    node = node_of("RELU", Unary(), [activation((4,))])
    foreign = Library("foreign", "says what the kind has never heard of", {"RELU": Order.QUADS})
    assert (foreign.order(node), foreign.accesses(node), foreign.separation(node, 0, 0)) == (None, None, None)
    assert kinds()["RELU"].separation(node, 0, Order.QUADS) == node.output.size_bytes
    assert kinds()["RELU"].separation(node, 0, Order.REFERENCE) == 0


def test_an_unread_kernel_of_tflm_may_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind that nobody has compared with TensorFlow Lite Micro overlaps with our own kernels only."""
    node = node_of("RELU", Unary(), [activation((4,))])
    assert library("tflm-reference").order(node) is Order.REFERENCE
    monkeypatch.setattr(type(kinds()["RELU"]), "tflm_agrees", False)
    assert [library(name).order(node) for name in ("diagmem", "tflm-reference", "cmsis-nn", "tflm")] == [
        Order.REFERENCE,
        None,
        None,
        None,
    ]


def in_bytes(node: Node) -> Node:
    """The same node on 8-bit data: the type for which kernels differ most."""

    def changed(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.is_constant or tensor.dtype not in (DType.INT16, DType.FLOAT32):
            return tensor
        return replace(tensor, dtype=DType.INT8)

    outputs = tuple(replace(t, dtype=DType.INT8) for t in node.outputs)
    return replace(node, inputs=tuple(changed(t) for t in node.inputs), outputs=outputs)


def in_half_bytes(node: Node) -> Node:
    """The same node on 8-bit data with constants of 4 bits."""
    inputs = (replace(t, dtype=DType.INT4) if t is not None and t.is_constant else t for t in node.inputs)
    return in_bytes(replace(node, inputs=tuple(inputs)))


@st.composite
def ungrouped(draw: st.DrawFn) -> Node:
    """Convolutions of 8-bit data for which CMSIS-NN has kernels that may overlap."""
    window, depths = draw(windows()), st.integers(1, 6)
    depth_in, depth_out = draw(depths), draw(depths)
    height = draw(st.sampled_from((1, window.image[0])))
    kernel = (1 if height == 1 else window.kernel[0], window.kernel[1])
    attributes = Conv2D(window.padding, *window.stride, *draw(st.sampled_from((window.dilation, (1, 1)))))
    return conv((draw(SMALL), height, window.image[1], depth_in), (depth_out, *kernel, depth_in), attributes)


def tflm_is_the_safest(node: Node) -> None:
    """It asks for no less than any of the libraries that it stands for."""
    kind = kinds()[node.op.kind]
    safest, orders = library("tflm").order(node), [part.order(node) for part in PARTS]
    if safest is None:
        assert None in orders
        return
    for position, _ in node.activations():
        for output in range(len(node.outputs)):
            asked = kind.separation(node, position, safest, output)
            assert all(asked >= kind.separation(node, position, order, output) for order in orders if order)


@pytest.mark.parametrize("case", CASES)
@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_orders_exist_and_tflm_is_the_safest(case: str, data: st.DataObject) -> None:
    """Each library's order is one of the kind's, and `tflm` stands for all that may run under its name."""
    drawn = data.draw(CASES[case])
    for node in (drawn, in_bytes(drawn)):
        for lib in LIBRARIES.values():
            assert lib.order(node) in (None, *kinds()[node.op.kind].orders)
            assert lib.scratch_bytes(node) >= 0
        tflm_is_the_safest(node)


@examples(200)
@given(ungrouped())
def test_tflm_is_the_safest_for_convolutions(node: Node) -> None:
    """Also where the kernels keep several pixels, or a row of them, in hand."""
    tflm_is_the_safest(node)


@pytest.mark.parametrize(
    ("node", "orders"),
    [
        (POINTWISE, (Order.REFERENCE, None, Order.QUADS, None)),
        (STRIDED_1X1, (Order.REFERENCE, Order.ROWS, Order.QUADS, Order.ROWS)),
        (conv((1, 8, 8, 4), (2, 1, 1, 4)), (Order.REFERENCE, Order.QUADS, Order.QUADS, Order.QUADS)),
        (WINDOW_3X3, (Order.REFERENCE, Order.IM2COL, Order.IM2COL, Order.REFERENCE)),
        (ALONG_A_ROW, (Order.REFERENCE, Order.IM2COL, Order.QUADS, Order.QUADS)),
        (STRIDED_ALONG_A_ROW, (Order.REFERENCE, Order.IM2COL, None, None)),
        (GROUPED, (Order.REFERENCE, None, None, None)),
        (conv((1, 8, 8, 4), (6, 1, 1, 4), dtype=DType.INT16), (Order.REFERENCE,) * 4),
        (conv((1, 8, 8, 4), (6, 1, 1, 4), dtype=DType.FLOAT32), (Order.REFERENCE,) * 4),
        (
            depthwise((1, 8, 8, 130), (1, 3, 3, 130)),
            (Order.REFERENCE, Order.REFERENCE, Order.CHANNEL_BLOCKS, Order.CHANNEL_BLOCKS),
        ),
        (depthwise((1, 8, 8, 4), (1, 3, 3, 8), 2), (Order.REFERENCE,) * 4),
        (depthwise((1, 8, 8, 1), (1, 1, 3, 8), 8), (Order.REFERENCE, Order.REFERENCE, None, None)),
        (MAX_POOL, (Order.REFERENCE, Order.ACCUMULATE, Order.ACCUMULATE, Order.ACCUMULATE)),
    ],
)
def test_order_by_library(node: Node, orders: tuple[Order | None, ...]) -> None:
    """Which kernel is chosen depends on the parameters, the types and the core."""
    names = ("tflm-reference", "cmsis-nn", "cmsis-nn-mve", "tflm")
    assert tuple(library(name).order(node) for name in names) == orders


def test_weights_of_4_bits_overlap_only_with_reference_kernels() -> None:
    """CMSIS-NN has other kernels for them."""
    node = node_of("CONV_2D", Conv2D(), [activation((1, 8, 8, 4)), constant((6, 3, 3, 4), DType.INT4)])
    assert library("tflm-reference").order(node) == Order.REFERENCE
    assert library("cmsis-nn").order(node) is None
    assert library("tflm-reference").scratch_bytes(node) == 224


@pytest.mark.parametrize(
    ("source", "target", "order"),
    [
        (DType.FLOAT32, DType.INT8, Order.REFERENCE),
        (DType.INT8, DType.FLOAT32, Order.REFERENCE),
        (DType.INT16, DType.INT16, Order.REFERENCE),
        (DType.INT16, DType.INT32, None),
        (DType.INT16, DType.FLOAT32, None),
    ],
)
def test_pointers_to_different_types_may_be_reordered(source: DType, target: DType, order: Order | None) -> None:
    """Only bytes may lie over anything: compilers assume that other types never meet."""
    node = node_of("QUANTIZE", Unary(), [activation((10,), source)], (target,))
    assert library("tflm-reference").order(node) == order
    assert library("diagmem").order(node) == Order.REFERENCE


def test_pointwise_overlap_with_vectors() -> None:
    """Four pixels are in flight: the input lies three output pixels and one that lacks a byte above the output."""
    node = conv((1, 6, 6, 8), (8, 1, 1, 8))
    assert kinds()["CONV_2D"].separation(node, 0, Order.QUADS) == 3 * 8 + 7


def test_transposed_convolution_in_a_buffer() -> None:
    """Quantised reference kernels have read everything when they begin to write: any overlap is safe."""
    inputs = [ints([1, 8, 8, 3]), constant((3, 3, 3, 5)), activation((1, 4, 4, 5))]
    node = node_of("TRANSPOSE_CONV", TransposeConv(stride_h=2, stride_w=2), inputs)
    assert library("tflm-reference").order(node) == Order.BUFFERED
    assert kinds()["TRANSPOSE_CONV"].separation(node, 2, Order.BUFFERED) == -node.input(2).size_bytes
    assert library("tflm-reference").scratch_bytes(node) == 4 * 8 * 8 * 3
    assert library("cmsis-nn").order(node) is None


@pytest.mark.parametrize(
    ("node", "cmsis_nn", "mve"),
    [
        (POINTWISE, 0, 0),
        (WINDOW_3X3, 4 * 36, 4 * 48),
        (conv((1, 8, 8, 4), (6, 3, 3, 4), dtype=DType.INT16), 4 * 36, 8 * 40),
        (ALONG_A_ROW, 4 * 20, 32),
        (depthwise((1, 8, 8, 4), (1, 3, 3, 4)), 0, 4 * 124 * 9),
        (depthwise((1, 8, 8, 4), (1, 5, 5, 4)), 208, 4 * 124 * 25),
        (depthwise((1, 8, 8, 1), (1, 3, 3, 8), 8), 0, 4 * 16 + 80),
        (node_of("AVERAGE_POOL_2D", Pool2D(Padding.VALID, 1, 1, 8, 8), [activation((1, 8, 8, 4))]), 16, 0),
    ],
)
def test_scratch_of_cmsis_nn(node: Node, cmsis_nn: int, mve: int) -> None:
    """Bytes as the kernels' own functions give them, aligned to 16; all that TFLM may need is the larger."""
    assert library("cmsis-nn").scratch_bytes(node) == cmsis_nn
    assert library("cmsis-nn-mve").scratch_bytes(node) == mve
    assert library("tflm").scratch_bytes(node) == max(cmsis_nn, mve)
    assert library("diagmem").scratch_bytes(node) == 0


def test_scratch_of_reductions() -> None:
    """Four indices, two axes, and an accumulator for each output where there is something to sum up exactly."""
    inputs = [activation((1, 4, 4, 10)), ints([1, 2])]
    assert library("tflm-reference").scratch_bytes(node_of("MEAN", Reduce(), inputs)) == 16 + 16 + 48
    assert library("tflm-reference").scratch_bytes(node_of("REDUCE_MAX", Reduce(), inputs)) == 16 + 16


def test_fully_connected_with_many_axes_runs_as_a_convolution() -> None:
    """Then it may not overlap, and wants the multipliers that a convolution has for each channel."""
    weights = constant((6, 8))
    plain = node_of("FULLY_CONNECTED", FullyConnected(), [activation((3, 8)), weights])
    wide = node_of("FULLY_CONNECTED", FullyConnected(keep_num_dims=True), [activation((1, 3, 8)), weights])
    assert library("cmsis-nn").order(plain) == Order.REFERENCE
    assert library("cmsis-nn").order(wide) is None
    assert [library("cmsis-nn").scratch_bytes(n) for n in (plain, wide)] == [0, 48]
    per_channel = replace(weights, quantisation=Quantisation((0.5,) * 6, (0,) * 6))
    given = node_of("FULLY_CONNECTED", FullyConnected(keep_num_dims=True), [activation((1, 3, 8)), per_channel])
    assert library("cmsis-nn").scratch_bytes(given) == 0


def test_unknown_library() -> None:
    """The message names the libraries there are."""
    with pytest.raises(PlanError, match="tflm-reference, cmsis-nn, cmsis-nn-mve"):
        library("cmsis")
