"""The paper's equations as printed against the exact value: where they agree, and where they are unsafe."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagmem.model.graph import DType, Node, Padding
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.orders import Order
from diagmem.ops.pooling.pool_2d import Pool2D
from tests.ops.cases import SIZES, SMALL, activation, constant, node_of
from tests.ops.simulation import survives
from tests.profiles import examples

Pair = tuple[int, int]


def conv(
    image: tuple[int, int, int], kernel: Pair, stride: Pair, channels: int, padding: Padding, dtype: DType
) -> Node:
    inputs = [activation((1, *image), dtype), constant((channels, *kernel, image[2]), dtype)]
    return node_of("CONV_2D", Conv2D(padding, *stride), inputs, (dtype,))


def depthwise(
    image: tuple[int, int, int], kernel: Pair, stride: Pair, multiplier: int, padding: Padding, dtype: DType
) -> Node:
    inputs = [activation((1, *image), dtype), constant((1, *kernel, image[2] * multiplier), dtype)]
    return node_of("DEPTHWISE_CONV_2D", DepthwiseConv2D(padding, *stride, multiplier=multiplier), inputs, (dtype,))


def pool(image: tuple[int, int, int], kernel: Pair, stride: Pair, _: int, padding: Padding, dtype: DType) -> Node:
    return node_of("MAX_POOL_2D", Pool2D(padding, *stride, *kernel), [activation((1, *image), dtype)], (dtype,))


def exact_overlap(node: Node) -> int:
    return max(0, node.output.size_bytes - kinds()[node.op.kind].separation(node, 0, Order.REFERENCE))


def paper_overlap(node: Node) -> Fraction:
    overlap = kinds()[node.op.kind].paper(node, 0)
    assert overlap is not None
    return overlap


def is_safe(node: Node, overlap: Fraction) -> bool:
    """By simulation, with the largest whole number of bytes that the figure allows."""
    accesses = kinds()[node.op.kind].accesses(node, Order.REFERENCE)
    size = node.output.dtype.size_bytes
    return survives(accesses, 0, 0, (size, size), node.output.size_bytes - int(overlap))


F32, SAME, VALID = DType.FLOAT32, Padding.SAME, Padding.VALID

PUBLISHED = {
    "MobileNet v2 1.0 224, depthwise": (depthwise((112, 112, 96), (3, 3), (2, 2), 1, SAME, F32), 1204224, 1193376),
    "Inception-ResNet v2": (conv((147, 147, 32), (3, 3), (1, 1), 64, SAME, F32), 2746884, 2746884),
    "MobileNet v1, pointwise": (conv((112, 112, 32), (1, 1), (1, 1), 64, SAME, F32), 1605508, 1605508),
    "ResNet50 v2, first": (conv((230, 230, 3), (7, 7), (2, 2), 64, VALID, F32), 615388, 618160),
}


@pytest.mark.parametrize(("node", "exact", "paper"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_figures(node: Node, exact: int, paper: int) -> None:
    """O_s in bytes of layers that the paper names, exact and as printed."""
    assert exact_overlap(node) == exact
    assert paper_overlap(node) == paper


UNSAFE_LAYERS = {
    "7x7 s2 VALID 230x230x3 -> 112x112x64": (conv((230, 230, 3), (7, 7), (2, 2), 64, VALID, F32), Fraction(693)),
    "1x1 s2 56x56x256 -> 28x28x512": (conv((56, 56, 256), (1, 1), (2, 2), 512, SAME, F32), Fraction(767, 2)),
    "3x3 s2 VALID 112x112x16 -> 55x55x96": (conv((112, 112, 16), (3, 3), (2, 2), 96, VALID, F32), Fraction(1808)),
}


@pytest.mark.parametrize(("node", "excess_elems"), UNSAFE_LAYERS.values(), ids=UNSAFE_LAYERS)
def test_real_layers_where_the_printed_padding_is_unsafe(node: Node, excess_elems: Fraction) -> None:
    """Padding that is not clamped makes the printed O_s too large; the corrected bound stays below the exact one."""
    exact = exact_overlap(node)
    assert (paper_overlap(node) - exact) / node.output.dtype.size_bytes == excess_elems
    analytical = kinds()[node.op.kind].analytical(node, 0)
    assert analytical is not None
    assert analytical <= exact


I8 = DType.INT8

SMALLEST_COUNTER_EXAMPLES = {
    "padding below zero, convolution": conv((2, 1, 1), (1, 1), (2, 2), 2, SAME, I8),
    "padding below zero, depthwise": depthwise((2, 1, 1), (1, 1), (2, 2), 2, SAME, I8),
    "unequal strides, convolution": conv((1, 4, 1), (1, 1), (1, 3), 2, SAME, I8),
    "unequal strides, depthwise": depthwise((1, 4, 1), (1, 1), (1, 3), 2, SAME, I8),
}


@pytest.mark.parametrize("node", SMALLEST_COUNTER_EXAMPLES.values(), ids=SMALLEST_COUNTER_EXAMPLES)
def test_smallest_counter_examples(node: Node) -> None:
    """The printed O_s destroys a value that is read later; the exact one does not, and is one element less."""
    exact, paper = exact_overlap(node), paper_overlap(node)
    assert paper == exact + 1
    assert is_safe(node, Fraction(exact))
    assert not is_safe(node, paper)


@pytest.mark.parametrize("make", [conv, depthwise, pool])
@examples(200)
@given(
    image=st.tuples(SIZES, SIZES, SMALL),
    kernel=st.tuples(SMALL, SMALL),
    stride=SMALL,
    channels=SMALL,
    padding=st.sampled_from(Padding),
)
def test_printed_equations_are_safe_for_equal_strides_and_padding_not_below_zero(
    make: Callable[..., Node], image: tuple[int, int, int], kernel: Pair, stride: int, channels: int, padding: Padding
) -> None:
    """Outside the two known slips the printed figure never exceeds the exact one."""
    assume(padding is SAME or (kernel[0] <= image[0] and kernel[1] <= image[1]))
    node = make(image, kernel, (stride, stride), channels, padding, I8)
    reached = [
        (out - 1) * stride + k >= size for out, k, size in zip(node.output.shape[1:3], kernel, image[:2], strict=True)
    ]
    assume(all(reached))
    assert paper_overlap(node) <= exact_overlap(node)
