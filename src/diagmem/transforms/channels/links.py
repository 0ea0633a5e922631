"""Operations whose output channels are input channels: as they are, changed each by itself, laid side by side, or taken
apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import axis_of
from diagmem.transforms.channels.parts import PARTS, parts_of
from diagmem.transforms.channels.sums import Array, Sums

SAME = frozenset(
    (
        *("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "LOGISTIC", "TANH", "GELU", "ABS", "NEG"),
        *("EXP", "SQUARE", "SQRT", "RSQRT", "LOG", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "QUANTIZE", "DEQUANTIZE"),
        *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"),
    )
)
"""Kinds whose output channel c is made of channel c of each input."""

OF_IMAGES = ("MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
"""The same, but of the first input only; a second one says how large the image becomes."""

REDUCTIONS = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
PADS = ("PAD", "PADV2", "MIRROR_PAD")
RESHAPES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


class Link(NamedTuple):
    """Channels `inputs` of an input are channels `outputs` of the output `made`, one by one: neither goes without the
    other."""

    tensor: Tensor
    inputs: Array
    outputs: Array
    made: Tensor


def links_of(node: Node) -> tuple[Link, ...] | None:
    """What ties the channels of an operation's outputs to those of its inputs, weights of a depthwise layer
    included; None where nothing is known of that. An input without a link keeps all of its channels."""
    if node.op.kind in PARTS:
        return _parts(node)
    if len(node.outputs) != 1 or not node.output.shape or not node.inputs or node.inputs[0] is None:
        return None
    return None if not node.input(0).shape else _found(node)


def _found(node: Node) -> tuple[Link, ...] | None:
    kind, data, output = node.op.kind, node.input(0), node.output
    if kind == "DEPTHWISE_CONV_2D":
        return _depthwise(node)
    if kind == "CONCATENATION":
        return tuple(_joined(node))
    if kind in RESHAPES:
        return _reshaped(node)
    if kind in REDUCTIONS + PADS:
        return (_same(data, output),) if _spares_channels(node) else None
    if kind in OF_IMAGES:
        return (_same(data, output),) if len(data.shape) == 4 else None
    if kind not in SAME:
        return None
    return tuple(_same(t, output) for t in node.inputs if t is not None and _is_alike(t, output))


def _parts(node: Node) -> tuple[Link, ...] | None:
    parts = parts_of(node)
    if parts is None or not all(t is None or t is parts.source or t.data is not None for t in node.inputs):
        return None
    cut = zip(node.outputs, parts.channels, strict=True)
    return tuple(Link(parts.source, channels, np.arange(len(channels)), output) for output, channels in cut)


def _is_alike(tensor: Tensor, output: Tensor) -> bool:
    return len(tensor.shape) > 0 and tensor.shape[-1] == output.shape[-1]


def _same(tensor: Tensor, output: Tensor) -> Link:
    channels = np.arange(output.shape[-1])
    return Link(tensor, channels, channels, output)


def _spares_channels(node: Node) -> bool:
    """Whether the last axis is neither reduced nor padded."""
    numbers, rank = node.input(1), len(node.input(0).shape)
    if numbers.data is None:
        return False
    if node.op.kind in PADS:
        return not numbers.data.reshape(-1, 2)[-1].any()
    return all(axis_of(axis, rank) != rank - 1 for axis in numbers.ints)


def _depthwise(node: Node) -> tuple[Link, ...] | None:
    """Weights must be known, for they are cut too, along their last axis; so is the bias, but not one that is written
    as a column."""
    filters, sums = node.input(1), Sums.of(node)
    if sums is None or sums.sources is None or filters.dtype not in (DType.INT8, DType.UINT8, DType.FLOAT32):
        return None
    others = [tensor for tensor in node.inputs[1:] if tensor is not None]
    if not all(_is_alike(tensor, node.output) for tensor in others):
        return None
    of_data = Link(node.input(0), sums.sources, np.arange(len(sums.sources)), node.output)
    return (of_data, *(_same(tensor, node.output) for tensor in others))


def _joined(node: Node) -> Iterator[Link]:
    is_last = axis_of(node.attributes.axis, len(node.output.shape)) == len(node.output.shape) - 1
    first = 0
    for tensor in node.inputs:
        if tensor is not None:
            channels = np.arange(tensor.shape[-1])
            yield Link(tensor, channels, channels + first, node.output)
            first += len(channels) if is_last else 0


def _reshaped(node: Node) -> tuple[Link, ...] | None:
    """Channels stay, or pixels are laid side by side as channels."""
    before, after = node.input(0).shape[-1], node.output.shape[-1]
    shape = node.inputs[1] if len(node.inputs) > 1 else None
    if after % before or (shape is not None and shape.data is None):
        return None
    return (Link(node.input(0), np.arange(after) % before, np.arange(after), node.output),)
