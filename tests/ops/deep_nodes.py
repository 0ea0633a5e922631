"""Random nodes of 8-bit integers with more channels than the contract test draws, for kernels that take them in fours
and eights: some whose weights two channels can share, some whose numbers do not allow it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, ExplicitPadding, Node, Padding, Quantisation, Rounding, Tensor
from diagmem.ops import Activation, kinds
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.pooling.pool_2d import Pool2D
from tests.ops.cases import activation, constant, node_of
from tests.ops.drawing import is_supported
from tests.ops.fitting import fitted

Rng = np.random.Generator

REAL = "/f32"
"""Behind the name of a kind: on single precision."""

ONCE = "/once"
"""Behind it: with outputs that are rounded once, halves to even."""

KINDS = (
    *("CONV_2D/f32", "DEPTHWISE_CONV_2D/f32", "FULLY_CONNECTED/f32"),
    *("CONV_2D", "POINTWISE", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("AVERAGE_POOL_2D", "MAX_POOL_2D", "ADD", "MUL"),
    *("CONV_2D/once", "POINTWISE/once", "DEPTHWISE_CONV_2D/once", "FULLY_CONNECTED/once"),
    *("ADD/once", "MUL/once", "AVERAGE_POOL_2D/once"),
)
_MOST_TURNS = 60


def deep_nodes(kind: str, count: int) -> list[Node]:
    """So many nodes, the same every time."""
    name, _, how = kind.partition("/")
    dress = {REAL: _real, ONCE: _rounded_once}.get(f"/{how}", _dressed)
    return [dress(_drawn(name, np.random.default_rng(seed)), seed) for seed in range(count)]


TALL = tuple(f"TALL_{kind}" for kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"))
"""Windows as tall as their image: one row of them covers it."""


def tall_nodes(kind: str, count: int) -> list[Node]:
    """So many nodes of any types of data and weights that can be run row by row."""
    found = (fitted(_drawn(kind, np.random.default_rng(seed)), seed) for seed in itertools.count())
    runs = (node for node in found if kinds()[node.op.kind].accumulator_bytes(node) is not None and is_supported(node))
    return list(itertools.islice(runs, count))


def _tall(kind: str, pick: Callable[..., int]) -> Node:
    """Below a convolution there may be rows that it does not reach."""
    rows, apart, below = pick(1, 2, 3, 5), pick(1, 1, 2, 3), pick(0, 0, 1, 2)
    image = [1, max(2, (rows - 1) * apart + 1 + below), pick(1, 3, 4, 6), pick(1, 2, 4, 8, 12)]
    columns, padding, out = pick(1, 1, 2, 3), pick(0, 0, 1), pick(1, 3, 4, 8, 11, 16)
    if kind == "FULLY_CONNECTED":
        weights = constant((out, image[1] * image[2] * image[3]))
        return node_of(kind, FullyConnected(), [activation(image), weights, constant((out,))])
    width = min(columns, image[2])
    how = (
        ExplicitPadding(0, 0, padding, padding),
        image[1],
        pick(1, 2),
        apart,
        pick(1, 2) if 2 * width - 1 <= image[2] else 1,
    )
    if kind == "CONV_2D":
        inputs = [activation(image), constant((out, rows, width, image[3])), constant((out,))]
        return node_of(kind, Conv2D(*how), inputs)
    depth = image[3] * pick(1, 1, 2, 3)
    inputs = [activation(image), constant((1, rows, width, depth)), constant((depth,))]
    return node_of(kind, DepthwiseConv2D(*how, depth // image[3]), inputs)


def _drawn(kind: str, rng: Rng) -> Node:
    def pick(*choices: int) -> int:
        return int(rng.choice(choices))

    if kind.startswith("TALL_"):
        return _tall(kind.removeprefix("TALL_"), pick)
    image = [pick(1, 1, 2), pick(1, 3, 5, 6), pick(1, 2, 4, 5, 7), pick(1, 3, 4, 8, 10, 12, 16, 20)]
    kernel, stride = (pick(1, 2, 3), pick(1, 2, 3, 3)), (pick(1, 2), pick(1, 2))
    dilation = (pick(1, 1, 1, 2), pick(1, 1, 1, 2))
    out = pick(1, 3, 4, 6, 8, 11, 16)
    if kind == "POINTWISE":
        kernel, stride, dilation, kind = (1, 1), (1, 1), (1, 1), "CONV_2D"
    if kind == "CONV_2D":
        inputs = [activation(image), constant((out, *kernel, image[3])), constant((out,))]
        return node_of(kind, Conv2D(Padding.SAME, *stride, *dilation), inputs)
    if kind == "DEPTHWISE_CONV_2D":
        depth = image[3] * (2 if rng.integers(4) == 0 else 1)
        inputs = [activation(image), constant((1, *kernel, depth)), constant((depth,))]
        return node_of(kind, DepthwiseConv2D(Padding.SAME, *stride, *dilation, depth // image[3]), inputs)
    if kind == "FULLY_CONNECTED":
        size = pick(3, 4, 8, 12, 20, 37)
        return node_of(kind, FullyConnected(), [activation((pick(1, 2, 3), size)), constant((out, size)), None])
    if kind in ("ADD", "MUL"):
        second = image if rng.integers(3) else [1, 1, 1, image[3]]
        return node_of(kind, Binary(), [activation(image), activation(second)])
    return node_of(kind, Pool2D(Padding.SAME, *stride, *kernel), [activation(image)])


def _real(node: Node, seed: int) -> Node:
    """Single precision."""
    found = (fitted(node, 60 * seed + turn) for turn in range(_MOST_TURNS))
    return next(node for node in found if {node.input(0).dtype, node.input(1).dtype} == {DType.FLOAT32})


def _dressed(node: Node, seed: int) -> Node:
    """8-bit integers, with weights and scales for the kernel to pack or to refuse."""
    kind = node.op.kind
    found = next(n for turn in range(_MOST_TURNS) if _is_this(n := fitted(node, 60 * seed + turn), kind))
    rng = np.random.default_rng(seed)
    is_clamped, is_tame, is_positive = seed % 8 == 7, seed % 4 != 3, seed % 2 == 0
    found = _with_activation(found, Activation.RELU if is_clamped else Activation.NONE)
    if kind not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return found
    inputs = list(found.inputs)
    inputs[1] = _tamed(found.input(1)) if is_tame else _wild(found.input(1), rng)
    if len(inputs) > 2 and inputs[2] is not None and seed % 5 == 4:
        inputs[2] = _far_off(inputs[2], rng)
    outputs = [_after_relu(t) if is_positive else t for t in found.outputs]
    return replace(found, inputs=tuple(inputs), outputs=tuple(outputs))


def _rounded_once(node: Node, seed: int) -> Node:
    """Any zero point; now and then scales that are powers of two, so that there are many halves."""
    found = _dressed(node, seed)
    zero_point = int(np.random.default_rng(seed).integers(-128, 128))
    given = Quantisation((2.0**-4,), (zero_point,))
    if seed % 3 == 1:
        inputs = [None if t is None else t if t.is_constant else replace(t, quantisation=given) for t in found.inputs]
        if len(inputs) > 1 and found.input(1).is_constant:
            inputs[1] = replace(found.input(1), quantisation=Quantisation((2.0**-6,), (0,)))
        found = replace(found, inputs=tuple(inputs))
    made = found.output.quantisation
    assert made is not None
    scales = (2.0 ** (seed % 2 - 2),) if seed % 3 == 1 else made.scales
    zeros = made.zero_points if seed % 2 else (zero_point,)
    once = Quantisation(scales, zeros, rounding=Rounding.ONNX)
    return replace(found, outputs=(replace(found.output, quantisation=once),))


def _is_this(node: Node, kind: str) -> bool:
    weights = (node.input(1),) if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") else ()
    return node.op.kind == kind and all(t.dtype is DType.INT8 for t in (node.input(0), *weights, *node.outputs))


def _with_activation(node: Node, activation: Activation) -> Node:
    return replace(node, op=replace(node.op, attributes=replace(node.op.attributes, activation=activation)))


def _tamed(filters: Tensor) -> Tensor:
    assert filters.data is not None
    return replace(filters, data=np.maximum(filters.data, -127))


def _wild(filters: Tensor, rng: Rng) -> Tensor:
    """With weights that have no other one beside them in 16 bits."""
    assert filters.data is not None
    return replace(filters, data=np.where(rng.integers(4, size=filters.shape) == 0, -128, filters.data).astype(np.int8))


def _far_off(bias: Tensor, rng: Rng) -> Tensor:
    """Biases that leave 23 bits."""
    far = rng.integers(-(2**30), 2**30, bias.shape).astype(np.int32)
    return replace(bias, data=far)


def _after_relu(tensor: Tensor) -> Tensor:
    assert tensor.quantisation is not None
    return replace(tensor, quantisation=Quantisation(tensor.quantisation.scales, (-128,)))
