"""SOFTMAX on 8-bit integers as onnxruntime computes it: a table of exponentials, single precision, halves to even."""

from __future__ import annotations

import math

import numpy as np

from diagmem.model.graph import Node
from diagmem.ops.c_call import CTable, Fields, Unsupported
from diagmem.ops.kind import Array
from diagmem.ops.numerics.quantised import scale_of, zero_point_of

SPARE = 5.0
"""Of the logarithm of the largest single, so that sums stay below it."""


def _table(node: Node) -> Array:
    """exp of each difference to the largest element of a row, -255 to 0, scaled so that it uses singles well."""
    scale, size = float(np.float32(scale_of(node.input(0)))), node.output.shape[-1]
    if size < 2 or _steps(node) > 256:
        raise Unsupported("rows of one element, or an output scale below 1/256, of which the arithmetic overflows")
    room = max(0.0, math.log(float(np.finfo(np.float32).max) / size) - SPARE) / scale
    exponents = (np.arange(256, dtype=np.float64) - 255 + room) * scale
    if exponents[-1] > 88:
        raise Unsupported("an input scale too large for its arithmetic")
    return np.exp(exponents).astype(np.float32)


def _steps(node: Node) -> float:
    """How many units of the output there are in 1."""
    return float(np.floor(np.float32(1) / np.float32(scale_of(node.output))))


def softmax_to_even(node: Node, data: Array) -> Array:
    exponentials = _table(node)[data.astype(np.int64) - data.max(axis=-1, keepdims=True) + 255]
    total = np.zeros((*data.shape[:-1], 1), np.float32)
    for c in range(data.shape[-1]):
        total += exponentials[..., c : c + 1]
    units = exponentials * np.float32(_steps(node)) / total
    stored: Array = np.clip(np.rint(units).astype(np.int64) + zero_point_of(node.output), -128, 127).astype(np.int8)
    return stored


def softmax_to_even_fields(node: Node) -> Fields:
    table = CTable("exponentials", _table(node))
    return {"table": table, "steps": _steps(node), "zero_point": zero_point_of(node.output)}
