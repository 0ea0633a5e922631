"""Nodes of the contract test given what C code needs: types that kernels exist for, quantisation, constants' values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.tracing.model import has_kernel

ACTIVATIONS = Quantisation((0.05,), (3,))
OUTPUTS = (ACTIVATIONS, Quantisation((1 / 256,), (-128,)), Quantisation((1 / 128,), (0,)))
"""What kernels ask of their output: most take any, softmax and its like prescribe one."""
WEIGHTS = Quantisation((0.02,), (0,))
BIAS = Quantisation((0.05 * 0.02,), (0,))
TYPES = (DType.INT8, DType.FLOAT32)
CONVERSIONS = ("CAST", "QUANTIZE", "DEQUANTIZE")
INTEGERS = (DType.INT32, DType.INT64)
"""Indices and shapes."""
BIAS_AT = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
"""Kinds with weights, which C code must find in flash, and the position of their bias."""


def runnable(node: Node, seed: int) -> Iterator[Node]:
    """The node in each type, or pair of types of input and output, that has a C kernel.

    Left out are nodes with an index or a shape in RAM: what they touch depends on its value.
    """
    if any(tensor.dtype in INTEGERS for _, tensor in node.activations()):
        return
    for source, target in itertools.product(TYPES, repeat=2):
        if source is not target and node.op.kind not in CONVERSIONS:
            continue
        for output in OUTPUTS if target is DType.INT8 else OUTPUTS[:1]:
            found = _dressed(node, source, target, output, np.random.default_rng(seed))
            if has_kernel(found):
                yield found
                break
        if node.output.dtype in INTEGERS:
            return


def _dressed(node: Node, source: DType, target: DType, output: Quantisation, random: np.random.Generator) -> Node:
    bias = BIAS_AT.get(node.op.kind)

    def given(position: int, tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        is_weight = bias is not None and 0 < bias - position < bias
        found = replace(tensor, is_constant=tensor.is_constant or is_weight or bias == position)
        return _input(found, source, bias == position, random)

    inputs = tuple(given(position, tensor) for position, tensor in enumerate(node.inputs))
    outputs = tuple(t if t.dtype in INTEGERS else _typed(t, target, output) for t in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs)


def _input(tensor: Tensor, dtype: DType, is_bias: bool, random: np.random.Generator) -> Tensor:
    if not tensor.is_constant:
        return _typed(tensor, dtype, ACTIVATIONS)
    if tensor.data is not None:
        return tensor
    if is_bias and dtype is DType.INT8:
        values = random.integers(-999, 999, tensor.shape, dtype=np.int32)
        return replace(tensor, dtype=DType.INT32, quantisation=BIAS, data=values)
    data = random.integers(-127, 127, tensor.shape) if dtype is DType.INT8 else random.uniform(-1, 1, tensor.shape)
    return replace(_typed(tensor, dtype, WEIGHTS), data=data.astype(dtype.numpy))


def _typed(tensor: Tensor, dtype: DType, quantisation: Quantisation) -> Tensor:
    return replace(tensor, dtype=dtype, quantisation=quantisation if dtype is DType.INT8 else None)
