"""Quantised networks with channels that do nothing: weights of 0, biases that saturate, channels that nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Graph, Padding, Quantisation, Shape
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce
from tests.networks import Net

UNIT = 0.05
"""The scale of every tensor in RAM."""


class IdleNet(Net):
    """A network whose layers have weights, drawn from a seed."""

    def __init__(self, seed: int, dtype: DType = DType.INT8) -> None:
        super().__init__(dtype)
        self.rng = np.random.default_rng(seed)

    def scaled(self, index: int, zero_point: int | None = None) -> int:
        """Gives a tensor in RAM a scale, and a zero point as after a RELU unless it is told."""
        if self.dtype is not DType.FLOAT32:
            zero = (
                (-128 if self.rng.random() < 0.6 else int(self.rng.integers(-20, 20)))
                if zero_point is None
                else zero_point
            )
            zero = 0 if self.dtype is DType.INT16 else zero + 128 if self.dtype is DType.UINT8 else zero
            self.tensors[index] = replace(self.tensors[index], quantisation=Quantisation((UNIT,), (zero,)))
        return index

    def image(self, *shape: int) -> int:
        return self.scaled(self.input(*shape))

    def weights(self, shape: Shape, axis: int, idle: float = 0.4) -> int:
        """Of each output channel's weights, all are 0 with a probability of `idle`; of each input channel's, too."""
        drawn = self.rng.integers(-127, 128, shape)
        drawn[(slice(None),) * axis + (self.rng.random(shape[axis]) < idle,)] = 0
        if axis == 0:
            drawn[..., self.rng.random(shape[-1]) < idle / 2] = 0
        if self.dtype is DType.FLOAT32:
            return self.tensor(shape, DType.FLOAT32, is_constant=True, data=(drawn / 64).astype(np.float32))
        terms = max(1, int(np.prod(shape)) // shape[axis])
        if self.dtype is DType.UINT8:
            found = Quantisation((float(1 / (64 * np.sqrt(terms))),), (131,))
            stored = np.clip(drawn + 131, 0, 255).astype(np.uint8)
            return self.tensor(shape, DType.UINT8, is_constant=True, data=stored, quantisation=found)
        scales = tuple(float(s) for s in self.rng.uniform(0.5, 1.5, shape[axis]) / (64 * np.sqrt(terms)))
        found = Quantisation(scales, (0,) * len(scales), axis)
        return self.tensor(shape, DType.INT8, is_constant=True, data=drawn.astype(np.int8), quantisation=found)

    def biases(self, count: int) -> int:
        """Some saturate whatever comes in; some are written as a column."""
        shape = (count, 1) if len(self.tensors) % 13 == 6 else (count,)
        if self.dtype is DType.FLOAT32:
            values: Any = self.rng.normal(0, 1, count).astype(np.float32)
            return self.tensor(shape, DType.FLOAT32, is_constant=True, data=values.reshape(shape))
        values = self.rng.integers(-20_000, 20_000, count)
        values = np.where(self.rng.random(count) < 0.1, 10**8 * self.rng.choice([-1, 1], count), values)
        wide = self.dtype is DType.INT16
        made = values.astype(np.int64 if wide else np.int32).reshape(shape)
        return self.tensor(shape, DType.INT64 if wide else DType.INT32, is_constant=True, data=made)

    def layer(self, kind: str, attributes: Any, x: int, weights: int, channels: int) -> int:
        inputs = [x, weights, *([self.biases(channels)] if self.rng.random() < 0.8 else [])]
        return self.scaled(self.op(kind, attributes, *inputs, dtype=self.dtype))

    def drawn_padding(self) -> Padding:
        return Padding.SAME if self.rng.random() < 0.7 else Padding.VALID

    def drawn_activation(self) -> Activation:
        return Activation.RELU if self.rng.random() < 0.5 else Activation.NONE

    def dense(self, x: int, channels: int, kernel: int | None = None) -> int:
        """A convolution."""
        size = int(self.rng.choice([1, 3])) if kernel is None else kernel
        weights = self.weights((channels, size, size, self.tensors[x].shape[-1]), 0)
        attributes = Conv2D(self.drawn_padding() if size > 1 else Padding.SAME, activation=self.drawn_activation())
        return self.layer("CONV_2D", attributes, x, weights, channels)

    def separate(self, x: int) -> int:
        """A depthwise convolution."""
        depth = self.tensors[x].shape[-1]
        multiplier = int(self.rng.choice([1, 1, 2]))
        weights = self.weights((1, 3, 3, depth * multiplier), 3, idle=0.2)
        attributes = DepthwiseConv2D(Padding.SAME, multiplier=multiplier, activation=self.drawn_activation())
        return self.layer("DEPTHWISE_CONV_2D", attributes, x, weights, depth * multiplier)

    def connected(self, x: int, outputs: int) -> int:
        size = self.tensors[x].elems
        return self.layer("FULLY_CONNECTED", FullyConnected(), x, self.weights((outputs, size), 0), outputs)

    def several(self, kind: str, attributes: Any, inputs: tuple[int, ...], count: int) -> list[int]:
        """The parts that an op makes of a tensor, which have its scale."""
        before = len(self.tensors)
        self.op(kind, attributes, *inputs, dtype=self.dtype)
        made = list(range(before, len(self.tensors)))
        assert len(made) == count
        source = next(t for t in inputs if not self.tensors[t].is_constant)
        for index in made:
            self.tensors[index] = replace(self.tensors[index], quantisation=self.tensors[source].quantisation)
        return made

    def alike(self, kind: str, attributes: Any, *inputs: int) -> int:
        """An op whose output has the scale of its first input."""
        made = self.op(kind, attributes, *inputs)
        self.tensors[made] = replace(self.tensors[made], quantisation=self.tensors[inputs[0]].quantisation)
        return made


def idle_net(seed: int) -> Graph:
    """Layers, joins and moves in any order; at the end a classifier, an image, or both."""
    chance = np.random.default_rng(seed)
    net = IdleNet(seed, (DType.INT8, DType.INT8, DType.INT8, DType.INT16, DType.FLOAT32)[seed % 5])
    x = net.image(1, 5, 5, int(chance.integers(1, 5)))
    for _ in range(int(chance.integers(2, 7))):
        x = _grown(net, x, chance)
    outputs = [net.connected(_flat(net, x, chance), 3)]
    if chance.random() < 0.2:
        outputs.append(net.dense(x, 4))
    return net.graph(*outputs)


def _grown(net: IdleNet, x: int, chance: np.random.Generator) -> int:
    moves = ("dense", "dense", "separate", "separate", "add", "concat", "relu", "pool", "average")
    match chance.choice(moves):
        case "dense":
            return net.dense(x, int(chance.integers(3, 12)))
        case "separate":
            return net.separate(x)
        case "add":
            depth = net.tensors[x].shape[-1]
            sides = [net.dense(x, depth, kernel=1) for _ in range(2)]
            return net.scaled(net.op("ADD", Binary(net.drawn_activation()), *sides))
        case "concat":
            first = net.dense(x, 4, kernel=1)
            second = net.alike("RELU", Unary(), net.alike("RELU", Unary(), first))
            return net.alike("CONCATENATION", Concatenation(axis=3), first, second)
        case "relu":
            return net.alike("RELU", Unary(), x)
        case "pool" | "average" as which:
            kind = "MAX_POOL_2D" if which == "pool" else "AVERAGE_POOL_2D"
            return net.alike(kind, Pool2D(Padding.SAME, 1, 1, 2, 2), x)
    raise AssertionError


def _flat(net: IdleNet, x: int, chance: np.random.Generator) -> int:
    """All pixels side by side, or their mean."""
    if chance.random() < 0.5:
        x = net.scaled(net.op("MEAN", Reduce(keep_dims=True), x, net.constant(2, values=[1, 2])))
    return net.alike("RESHAPE", Reshape(new_shape=(1, net.tensors[x].elems)), x)
