"""Graphs built layer by layer. Shapes come from the op kinds; weights have a shape and a type, but no values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Graph, Op, Padding, Shape, Tensor
from diagmem.ops import Activation, kind_of
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.pad import Pad
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce

SAME, VALID = Padding.SAME, Padding.VALID
NONE, RELU = Activation.NONE, Activation.RELU

Size = int | tuple[int, int]
"""Height and width; one number stands for both."""


class Builder:
    """Each method appends one operation (or two, where it says so) and returns its output.

    `dtype` is FLOAT32 or INT8, for activations and weights alike; the biases of INT8 are INT32, as TFLite has them.
    """

    def __init__(self, name: str, dtype: DType = DType.FLOAT32) -> None:
        self._name = name
        self._dtype = dtype
        self._tensors: list[Tensor] = []
        self._ops: list[Op] = []
        self._inputs: list[int] = []

    def input(self, *shape: int) -> Tensor:
        tensor = self._tensor("input", shape, self._dtype)
        self._inputs.append(tensor.index)
        return tensor

    def conv(
        self,
        x: Tensor,
        channels: int,
        kernel: Size,
        stride: int = 1,
        padding: Padding = SAME,
        activation: Activation = NONE,
    ) -> Tensor:
        weights = self._weights(filter=(channels, *_pair(kernel), x.shape[-1]), bias=(channels,))
        return self._op("CONV_2D", Conv2D(padding, stride, stride, activation=activation), x, *weights)

    def depthwise(self, x: Tensor, kernel: Size, stride: int = 1, activation: Activation = NONE) -> Tensor:
        depth = x.shape[-1]
        weights = self._weights(filter=(1, *_pair(kernel), depth), bias=(depth,))
        return self._op("DEPTHWISE_CONV_2D", DepthwiseConv2D(SAME, stride, stride, activation=activation), x, *weights)

    def fully_connected(self, x: Tensor, units: int, activation: Activation = NONE) -> Tensor:
        weights = self._weights(weights=(units, x.shape[-1]), bias=(units,))
        return self._op("FULLY_CONNECTED", FullyConnected(activation), x, *weights)

    def max_pool(self, x: Tensor, kernel: Size, stride: Size = 1, padding: Padding = SAME) -> Tensor:
        return self._op("MAX_POOL_2D", Pool2D(padding, *_pair(stride), *_pair(kernel)), x)

    def average_pool(self, x: Tensor, kernel: Size, stride: Size = 1, padding: Padding = SAME) -> Tensor:
        return self._op("AVERAGE_POOL_2D", Pool2D(padding, *_pair(stride), *_pair(kernel)), x)

    def mean(self, x: Tensor, keep_dims: bool) -> Tensor:
        """The mean over height and width."""
        return self._op("MEAN", Reduce(keep_dims), x, self._ints("axes", [1, 2]))

    def add(self, x: Tensor, y: Tensor, activation: Activation = NONE) -> Tensor:
        return self._op("ADD", Binary(activation), x, y)

    def scale_and_shift(self, x: Tensor) -> Tensor:
        """A MUL and an ADD by channel: batch normalisation that no convolution could take in."""
        scaled = self._op("MUL", Binary(), x, *self._weights(scale=(x.shape[-1],)))
        return self._op("ADD", Binary(), scaled, self._constant("shift", (x.shape[-1],), self._dtype))

    def relu(self, x: Tensor) -> Tensor:
        return self._op("RELU", Unary(), x)

    def concat(self, *parts: Tensor) -> Tensor:
        """Along the channels."""
        return self._op("CONCATENATION", Concatenation(axis=3), *parts)

    def pad(self, x: Tensor, before: int, after: int) -> Tensor:
        """Zeros around height and width."""
        sides = [before, after]
        return self._op("PAD", Pad(), x, self._ints("paddings", [[0, 0], sides, sides, [0, 0]]))

    def crop_first(self, x: Tensor) -> Tensor:
        """All but the first row and the first column."""
        bounds = self._ints("begin", [0, 1, 1, 0]), self._ints("end", x.shape), self._ints("strides", [1] * 4)
        return self._op("STRIDED_SLICE", StridedSlice(), x, *bounds)

    def flatten(self, x: Tensor) -> Tensor:
        """(1, 1, 1, n) -> (1, n), the new shape in an input and in the attributes, as TF-Slim's exporter has it."""
        shape = (1, x.elems)
        return self._op("RESHAPE", Reshape(new_shape=shape), x, self._ints("shape", shape))

    def flatten_keras(self, x: Tensor) -> Tensor:
        """(1, 1, 1, n) -> (1, n), the batch left open (-1) and the attributes empty, as Keras' converter has it."""
        return self._op("RESHAPE", Reshape(), x, self._ints("shape", [-1, x.elems]))

    def softmax(self, x: Tensor) -> Tensor:
        return self._op("SOFTMAX", Softmax(), x)

    def graph(self, output: Tensor) -> Graph:
        """The finished graph. Activations are numbered first, in the order of creation, then the constants."""
        ordered = sorted(self._tensors, key=lambda t: t.is_constant)
        number = {t.index: i for i, t in enumerate(ordered)}
        return Graph(
            self._name,
            tuple(replace(t, index=i) for i, t in enumerate(ordered)),
            tuple(
                replace(op, inputs=tuple(number[i] for i in op.inputs), outputs=tuple(number[i] for i in op.outputs))
                for op in self._ops
            ),
            inputs=tuple(number[i] for i in self._inputs),
            outputs=(number[output.index],),
        )

    def _op(self, kind: str, attributes: Any, *inputs: Tensor) -> Tensor:
        known = kind_of(kind)
        shapes = known.output_shapes(kind, attributes, inputs) if known else None
        if shapes is None:
            raise RuntimeError(f"{kind}: its shape cannot be inferred")
        output = self._tensor(f"{kind.lower()}_{len(self._ops)}", shapes[0], self._dtype)
        self._ops.append(Op(len(self._ops), kind, tuple(t.index for t in inputs), (output.index,), attributes))
        return output

    def _tensor(self, name: str, shape: Shape, dtype: DType, **constant: Any) -> Tensor:
        tensor = Tensor(len(self._tensors), name, shape, dtype, **constant)
        self._tensors.append(tensor)
        return tensor

    def _weights(self, **shapes: Shape) -> tuple[Tensor, ...]:
        bias_dtype = DType.INT32 if self._dtype is DType.INT8 else self._dtype
        return tuple(
            self._constant(role, shape, bias_dtype if role == "bias" else self._dtype) for role, shape in shapes.items()
        )

    def _ints(self, role: str, values: Sequence[Any]) -> Tensor:
        """A small constant that shapes depend on: the one sort that carries its values."""
        data = np.array(values, dtype=np.int32)
        return self._constant(role, data.shape, DType.INT32, data)

    def _constant(self, role: str, shape: Shape, dtype: DType, data: Any = None) -> Tensor:
        """A constant of the operation that comes next, and named after it."""
        return self._tensor(f"op_{len(self._ops)}/{role}", shape, dtype, is_constant=True, data=data)


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
