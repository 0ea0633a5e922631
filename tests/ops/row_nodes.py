"""Random nodes on images, of all kinds that have row kernels, made fit to run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from diagmem.model.graph import Node, Padding, Tensor, Window1D
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.elementwise.binary import KIND as BINARY
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import KIND as UNARY
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.pad import Pad
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.normalisation.l2_normalization import KIND as L2
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce
from diagmem.ops.resizing.resize import Resize
from tests.ops.cases import activation, constant, ints, node_of
from tests.ops.drawing import WITHOUT_KERNEL, is_supported
from tests.ops.runnable import runnable

Pair = tuple[int, int]
Image = tuple[int, int, int, int]


def row_nodes(case: str, count: int) -> list[Node]:
    """Nodes of the kinds in one file of `ops/`, always the same."""
    chance = random.Random(case)
    made = (runnable(MAKERS[case](chance), seed) for seed in range(count))
    return [node for node in made if is_supported(node)]


def _image(chance: random.Random) -> Image:
    return (1, chance.randint(2, 7), chance.randint(1, 5), chance.randint(1, 6))


def _window(chance: random.Random, dilates: bool) -> tuple[Image, Padding, Pair, Pair, Pair]:
    """An image, and padding, kernel, stride and dilation of a window that fits into it."""
    kernel = chance.randint(1, 3), chance.randint(1, 3)
    stride = chance.randint(1, 2), chance.randint(1, 2)
    dilation = (chance.randint(1, 2), chance.randint(1, 2)) if dilates else (1, 1)
    height, width = (chance.randint(1, 6) + (k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    return (1, height, width, chance.randint(1, 9)), chance.choice(list(Padding)), kernel, stride, dilation


def _conv(chance: random.Random) -> Node:
    image, padding, kernel, stride, dilation = _window(chance, dilates=True)
    groups = chance.choice([1, 1, image[3]])
    channels = groups * chance.randint(1, 3) if groups > 1 else chance.randint(1, 10)
    inputs = [activation(image), constant((channels, *kernel, image[3] // groups)), constant((channels,))]
    return node_of("CONV_2D", Conv2D(padding, *stride, *dilation), inputs)


def _depthwise(chance: random.Random) -> Node:
    image, padding, kernel, stride, dilation = _window(chance, dilates=True)
    multiplier = chance.choice([1, 1, 2])
    inputs = [activation(image), constant((1, *kernel, image[3] * multiplier)), constant((image[3] * multiplier,))]
    return node_of("DEPTHWISE_CONV_2D", DepthwiseConv2D(padding, *stride, *dilation, multiplier), inputs)


def _pool(chance: random.Random) -> Node:
    image, padding, kernel, stride, _ = _window(chance, dilates=False)
    if chance.random() < 0.3:
        padding, kernel = Padding.VALID, (image[1], chance.choice([kernel[1], image[2]]))
    kind = chance.choice(["AVERAGE_POOL_2D", "MAX_POOL_2D"])
    return node_of(kind, Pool2D(padding, *stride, *kernel), [activation(image)])


def _unary(chance: random.Random) -> Node:
    kind = chance.choice([name for name in UNARY.names if name not in WITHOUT_KERNEL])
    return node_of(kind, Unary(alpha=0.2), [activation(_image(chance))])


def _binary(chance: random.Random) -> Node:
    """The second operand is repeated along some axes, or it is constant."""
    image = _image(chance)
    other = tuple(size if chance.random() < 0.7 else 1 for size in image)
    other = chance.choice([image, other, other[2:], other[3:]])
    second = constant(other) if len(other) < 4 and chance.random() < 0.5 else activation(other)
    pair = [activation(image), second]
    return node_of(chance.choice(BINARY.names), Binary(), pair if chance.random() < 0.7 else pair[::-1])


def _prelu(chance: random.Random) -> Node:
    image = _image(chance)
    return node_of("PRELU", None, [activation(image), constant((1, chance.choice([1, image[2]]), image[3]))])


def _softmax(chance: random.Random) -> Node:
    return node_of(chance.choice(["SOFTMAX", "LOG_SOFTMAX"]), Softmax(), [activation(_image(chance))])


def _norm(chance: random.Random) -> Node:
    return node_of("L2_NORMALIZATION", L2.decode("L2_NORMALIZATION", None), [activation(_image(chance))])


def _concat(chance: random.Random) -> Node:
    axis, image = chance.choice([2, 3, -1]), _image(chance)
    parts = [image, *(tuple(s if a != axis % 4 else chance.randint(1, 4) for a, s in enumerate(image)) for _ in "ab")]
    return node_of("CONCATENATION", Concatenation(axis), [activation(shape) for shape in parts])


def _pad(chance: random.Random) -> Node:
    pads = [[0, 0], *([chance.randint(0, 2), chance.randint(0, 2)] for _ in range(3))]
    return node_of("PAD", Pad(), [activation(_image(chance)), ints(pads)])


def _resize(chance: random.Random) -> Node:
    corners = chance.choice([Resize(), Resize(align_corners=True), Resize(half_pixel_centers=True)])
    size = ints([chance.randint(2, 9), chance.randint(1, 7)])
    kind = chance.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
    return node_of(kind, corners, [activation(_image(chance)), size])


def _reduce(chance: random.Random) -> Node:
    axes = [1, *(axis for axis in (2, 3, 0) if chance.random() < 0.5)]
    inputs: Sequence[Tensor] = [activation(_image(chance)), ints(axes)]
    return node_of(chance.choice(["MEAN", "SUM"]), Reduce(chance.random() < 0.5), inputs)


def _transposed(chance: random.Random) -> Node:
    out, padding, kernel, stride, _ = _window(chance, dilates=False)
    sizes = zip(out[1:3], kernel, stride, strict=True)
    image = [Window1D.resolve(size, k, step, 1, padding).size_out for size, k, step in sizes]
    depth = chance.randint(1, 4)
    filters = constant((out[3], *kernel, depth))
    inputs = [ints(out), filters, activation((1, *image, depth)), constant((out[3],))]
    return node_of("TRANSPOSE_CONV", TransposeConv(padding, *stride), inputs)


def _slice(chance: random.Random) -> Node:
    """Of rows in steps forward, of columns and channels in any."""
    image = (1, *(chance.randint(3, 7) for _ in range(3)))
    begin = [0, *(chance.randint(0, 1) for _ in range(3))]
    if chance.random() < 0.4:
        size = [1, *(chance.choice([-1, chance.randint(2, s - 1)]) for s in image[1:])]
        return node_of("SLICE", None, [activation(image), ints(begin), ints(size)])
    strides = [1, *(chance.randint(1, 2) for _ in range(3))]
    attributes = StridedSlice()
    if chance.random() < 0.3:
        begin[2], strides[2], attributes = image[2] - 1, -1, StridedSlice(end_mask=0b100)
    return node_of("STRIDED_SLICE", attributes, [activation(image), ints(begin), ints(image), ints(strides)])


MAKERS: dict[str, Callable[[random.Random], Node]] = {
    "conv_2d": _conv,
    "depthwise_conv_2d": _depthwise,
    "pool_2d": _pool,
    "unary": _unary,
    "binary": _binary,
    "prelu": _prelu,
    "softmax": _softmax,
    "l2_normalization": _norm,
    "concatenation": _concat,
    "pad": _pad,
    "resize": _resize,
    "reduce": _reduce,
    "transpose_conv": _transposed,
    "strided_slice": _slice,
}
