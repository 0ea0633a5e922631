"""Shape inference refuses what cannot be, with an error that a user can read."""

from __future__ import annotations

from typing import Any

import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Padding, Tensor
from diagmem.ops import kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.matrix.products import BatchMatMul, FullyConnected
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce
from diagmem.ops.resizing.resize import Resize
from tests.ops.cases import activation, constant, ints
from tests.ops.sampling import node_of, samples_of

IMAGE = activation((1, 4, 4, 6))

REFUSED = {
    "input missing": ("CONV_2D", Conv2D(), [IMAGE]),
    "image without channels axis": ("CONV_2D", Conv2D(), [activation((4, 4, 6)), constant((2, 3, 3, 6))]),
    "channels that groups do not divide": ("CONV_2D", Conv2D(), [IMAGE, constant((2, 3, 3, 4))]),
    "window larger than the image": ("CONV_2D", Conv2D(Padding.VALID), [IMAGE, constant((2, 5, 5, 6))]),
    "stride 0": ("CONV_2D", Conv2D(stride_h=0), [IMAGE, constant((2, 3, 3, 6))]),
    "multiplier that contradicts the filter": (
        "DEPTHWISE_CONV_2D",
        DepthwiseConv2D(multiplier=2),
        [IMAGE, constant((1, 3, 3, 6))],
    ),
    "pooling window 0": ("MAX_POOL_2D", Pool2D(kernel_h=0), [IMAGE]),
    "rows that weights do not divide": ("FULLY_CONNECTED", FullyConnected(), [IMAGE, constant((3, 7))]),
    "rows kept, but of another length": (
        "FULLY_CONNECTED",
        FullyConnected(keep_num_dims=True),
        [IMAGE, constant((3, 8))],
    ),
    "no axis to normalise": ("SOFTMAX", None, [activation(())]),
    "axis out of range": ("MEAN", Reduce(), [IMAGE, ints([4])]),
    "axes unknown": ("MEAN", Reduce(), [IMAGE, activation((1,))]),
    "two axes for one": ("ARG_MAX", None, [IMAGE, ints([1, 2])]),
    "matrices that do not fit": ("BATCH_MATMUL", BatchMatMul(), [activation((2, 3)), activation((2, 3))]),
    "batches that do not fit": ("BATCH_MATMUL", BatchMatMul(), [activation((2, 3, 3)), activation((4, 3, 3))]),
    "size of three": ("RESIZE_BILINEAR", Resize(), [IMAGE, ints([2, 2, 2])]),
    "output that the image does not make": (
        "TRANSPOSE_CONV",
        TransposeConv(stride_h=2, stride_w=2),
        [ints([1, 4, 4, 2]), constant((2, 3, 3, 6)), IMAGE],
    ),
}


@pytest.mark.parametrize(("name", "attributes", "inputs"), REFUSED.values(), ids=REFUSED)
def test_inconsistent_shapes_are_refused(name: str, attributes: Any, inputs: list[Tensor | None]) -> None:
    """One line that says what is wrong; no other exception."""
    with pytest.raises(ModelError) as caught:
        kinds()[name].output_shapes(name, attributes, inputs)
    assert "\n" not in str(caught.value)


def test_grouped_convolution() -> None:
    """A filter of fewer channels than the image has stands for groups."""
    inputs = [IMAGE, constant((4, 3, 3, 3))]
    assert kinds()["CONV_2D"].output_shapes("CONV_2D", Conv2D(), inputs) == ((1, 4, 4, 4),)


@pytest.mark.parametrize("name", ["MEAN", "SUM"])
def test_means_of_nothing_have_a_shape_and_no_more(name: str) -> None:
    """What it would take to draw one is asked before anyone sees that it holds no elements."""
    node = node_of(kinds()[name], name, Reduce(), [activation((2, 0, 3)), ints([0])], (DType.INT8,))
    assert node.output.elems == 0
    samples_of(name).fitting(node)
