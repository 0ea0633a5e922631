"""Networks whose activations are quantised anew at each run: DynamicQuantizeLinear, ConvInteger, MatMulInteger.

The integers are held as real numbers, whose sums are exact up to 2^24; scale and zero point are tensors of one element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from diagmem.frontends.onnx.branches import Parts
from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.layout import Constant
from diagmem.frontends.onnx.proto import OnnxNode

LEVELS = 255.0


def dynamic_quantize(im: Importer, node: OnnxNode) -> None:
    """8 bits without a sign between the least and the largest element, 0 among them."""
    parts, x = Parts(im, node), node.inputs[0]
    every = np.arange(len(im.input(node).shape))
    low = parts("Min", parts("ReduceMin", x, every, keepdims=0), 0.0)
    high = parts("Max", parts("ReduceMax", x, every, keepdims=0), 0.0)
    scale = parts("Div", parts("Sub", high, low), LEVELS)
    # Where all elements are 0, any scale will do.
    scale = parts("Where", parts("Equal", scale, 0.0), 1.0, scale)
    zero = parts("Clip", parts("Round", parts("Neg", parts("Div", low, scale))), 0.0, LEVELS)
    steps = parts("Round", parts("Div", x, scale))
    names = [parts("Clip", parts("Add", steps, zero), 0.0, LEVELS), scale, zero]
    for name, made in zip(node.outputs, names, strict=False):
        if name:
            im.bind(name, im.values[made])


def _centred(im: Importer, parts: Parts, name: str, zero: str) -> str:
    """Integers less their zero point, as real numbers."""
    value, below = im.values[name], im.values[zero] if zero else None
    if isinstance(value, Constant) and (below is None or isinstance(below, Constant)):
        shift: Any = 0 if below is None else below.array.astype(np.float32)
        # Zero points of rows or columns stand along the last axis but one, or the first of a filter.
        if np.ndim(shift) == 1 and len(shift) > 1 and value.array.ndim > 2:
            shift = shift.reshape(-1, *[1] * (value.array.ndim - 1))
        return parts("Identity", (value.array.astype(np.float32) - shift).astype(np.float32))
    real = parts("Cast", name, to=1)
    return real if below is None else parts("Sub", real, parts("Cast", zero, to=1))


def _operands(im: Importer, node: OnnxNode, parts: Parts) -> tuple[str, str]:
    zeros = [*node.inputs[2:4], "", ""]
    first, second = (_centred(im, parts, node.inputs[place], zeros[place]) for place in (0, 1))
    return first, second


def matmul_integer(im: Importer, node: OnnxNode) -> None:
    parts = Parts(im, node)
    parts.end("MatMul", *_operands(im, node, parts))


def conv_integer(im: Importer, node: OnnxNode) -> None:
    parts = Parts(im, node)
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    given = {name: im.attribute(node, name) for name in names if name in node.attributes}
    parts.end("Conv", *_operands(im, node, parts), **given)


LOWERINGS: dict[str, Callable[[Importer, OnnxNode], None]] = {
    "DynamicQuantizeLinear": dynamic_quantize,
    "MatMulInteger": matmul_integer,
    "ConvInteger": conv_integer,
}
