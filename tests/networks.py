"""Small graphs, made by hand or at random, for tests of the planner."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from diagmem.model.graph import DType, Graph, Op, Padding, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.moving.concatenation import Concatenation, Split
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.reduce import Reduce


@dataclass
class Net:
    """A graph under construction. Tensors are named by their index."""

    dtype: DType = DType.INT8
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)

    def tensor(self, shape: Shape, dtype: DType | None = None, **flags: Any) -> int:
        index = len(self.tensors)
        self.tensors.append(Tensor(index, f"t{index}", shape, dtype or self.dtype, **flags))
        return index

    def input(self, *shape: int, dtype: DType | None = None) -> int:
        self.inputs.append(self.tensor(shape, dtype))
        return self.inputs[-1]

    def variable(self, *shape: int) -> int:
        return self.tensor(shape, is_variable=True)

    def constant(self, *shape: int, values: Sequence[int] | None = None) -> int:
        data = None if values is None else np.array(values, dtype=np.int32)
        return self.tensor(shape, DType.INT32 if values is not None else None, is_constant=True, data=data)

    def filters(self, x: int, *shape: int) -> int:
        """Weights of the same type as what they are multiplied with."""
        return self.tensor(shape, self.tensors[x].dtype, is_constant=True)

    def op(
        self,
        kind: str,
        attributes: Any,
        *inputs: int,
        shapes: Sequence[Shape] | None = None,
        dtype: DType | None = None,
    ) -> int:
        """Adds an op and returns its first output; the others follow it."""
        known = kind_of(kind)
        given = [self.tensors[i] for i in inputs]
        found = shapes if shapes is not None else known.output_shapes(kind, attributes, given) if known else None
        assert found is not None
        outputs = tuple(self.tensor(tuple(shape), dtype or given[0].dtype) for shape in found)
        self.ops.append(Op(len(self.ops), kind, tuple(inputs), outputs, attributes))
        return outputs[0] if outputs else -1

    def conv(self, x: int, channels: int, kernel: int = 3, stride: int = 1) -> int:
        weights = self.filters(x, channels, kernel, kernel, self.tensors[x].shape[-1])
        return self.op("CONV_2D", Conv2D(Padding.SAME, stride, stride), x, weights)

    def depthwise(self, x: int, kernel: int = 3, stride: int = 1) -> int:
        weights = self.filters(x, 1, kernel, kernel, self.tensors[x].shape[-1])
        return self.op("DEPTHWISE_CONV_2D", DepthwiseConv2D(Padding.SAME, stride, stride), x, weights)

    def pool(self, x: int, kernel: int = 2, stride: int = 1) -> int:
        return self.op("MAX_POOL_2D", Pool2D(Padding.SAME, stride, stride, kernel, kernel), x)

    def relu(self, x: int) -> int:
        return self.op("RELU", Unary(), x)

    def add(self, x: int, y: int) -> int:
        return self.op("ADD", Binary(), x, y)

    def concat(self, *parts: int) -> int:
        return self.op("CONCATENATION", Concatenation(axis=3), *parts)

    def split(self, x: int, pieces: int) -> list[int]:
        first = self.op("SPLIT", Split(pieces), self.constant(1, values=[3]), x, dtype=self.tensors[x].dtype)
        return [first + i for i in range(pieces)]

    def reshape(self, x: int, *shape: int) -> int:
        return self.op("RESHAPE", Reshape(new_shape=shape), x)

    def mean(self, x: int) -> int:
        return self.op("MEAN", Reduce(keep_dims=True), x, self.constant(2, values=[1, 2]))

    def opaque(self, *inputs: int, shape: Shape | None = None) -> int:
        return self.op("CUSTOM:any", None, *inputs, shapes=[shape or self.tensors[inputs[0]].shape])

    def cast(self, x: int, dtype: DType) -> int:
        return self.op("CAST", Unary(), x, dtype=dtype)

    def graph(self, *outputs: int) -> Graph:
        return Graph("net", tuple(self.tensors), tuple(self.ops), tuple(self.inputs), tuple(outputs))


def chain(*channels: int, size: int = 6, dtype: DType = DType.INT8) -> Graph:
    """3x3 convolutions one behind another, with so many channels after each."""
    net = Net(dtype)
    x = net.input(1, size, size, 3)
    for count in channels:
        x = net.conv(x, count)
    return net.graph(x)


def diamond() -> Graph:
    """Two branches of different size that are joined again."""
    net = Net()
    x = net.input(1, 6, 6, 4)
    wide = net.conv(net.conv(x, 16), 4)
    thin = net.relu(net.conv(x, 4, kernel=1))
    return net.graph(net.add(wide, thin))


def random_net(seed: int, most_ops: int = 9, one_output_each: bool = False) -> Graph:
    """A network with branches, joins, repeated uses, reshapes, dead ends, several inputs and outputs."""
    chance = random.Random(seed)
    net = Net(chance.choice([DType.INT8, DType.INT8, DType.FLOAT32, DType.INT16]))
    size = chance.randint(2, 4)
    open_ends = [net.input(1, size, size, chance.randint(1, 4)) for _ in range(chance.choice([1, 1, 2]))]
    for _ in range(chance.randint(1, most_ops)):
        # Mostly the latest tensors, so that chains and short skips are frequent.
        picked = open_ends[-chance.randint(1, 3) :]
        open_ends.extend(chance.choice(_MOVES[: -1 if one_output_each else None])(net, picked, chance))
    unread = [t.index for t in net.tensors if not t.is_constant and all(t.index not in op.inputs for op in net.ops)]
    made = {t for op in net.ops for t in op.outputs}
    outputs = [t for t in unread if t in made and chance.random() < 0.8] or [net.ops[-1].outputs[0]]
    if chance.random() < 0.2:
        outputs.append(chance.choice([t for t in sorted(made) if t not in outputs] or outputs))
    return net.graph(*dict.fromkeys(outputs))


_Move = Callable[[Net, list[int], random.Random], list[int]]


def _image(net: Net, picked: list[int]) -> int:
    return next((t for t in reversed(picked) if len(net.tensors[t].shape) == 4), 0)


def _same_shape(net: Net, picked: list[int]) -> list[int]:
    last = net.tensors[picked[-1]]
    alike = [t for t in picked if (net.tensors[t].shape, net.tensors[t].dtype) == (last.shape, last.dtype)]
    return alike if len(alike) > 1 else [picked[-1], picked[-1]]


def _joined(net: Net, picked: list[int]) -> list[int]:
    image = net.tensors[_image(net, picked)]
    fitting = [t for t in picked if net.tensors[t].shape[:3] == image.shape[:3]]
    fitting = [t for t in fitting if len(net.tensors[t].shape) == 4 and net.tensors[t].dtype == image.dtype]
    return [net.concat(*(fitting if len(fitting) > 1 else [image.index, image.index]))]


def _split_or_relu(net: Net, picked: list[int], chance: random.Random) -> list[int]:
    image = _image(net, picked)
    return net.split(image, 2) if net.tensors[image].shape[3] % 2 == 0 else [net.relu(image)]


_MOVES: list[_Move] = [
    lambda net, picked, chance: [net.conv(_image(net, picked), chance.randint(1, 5), chance.choice([1, 3]))],
    lambda net, picked, chance: [net.conv(_image(net, picked), chance.randint(1, 8), 3, chance.choice([1, 2]))],
    lambda net, picked, chance: [net.depthwise(_image(net, picked), chance.choice([2, 3]), chance.choice([1, 2]))],
    lambda net, picked, chance: [net.pool(_image(net, picked), 2, chance.choice([1, 2]))],
    lambda net, picked, chance: [net.relu(picked[-1])],
    lambda net, picked, chance: [net.relu(picked[0])],
    lambda net, picked, chance: [net.add(*_same_shape(net, picked)[-2:])],
    lambda net, picked, chance: _joined(net, picked),
    lambda net, picked, chance: [net.reshape(picked[-1], net.tensors[picked[-1]].elems)],
    lambda net, picked, chance: [net.opaque(*picked[-2:])],
    lambda net, picked, chance: [net.cast(picked[-1], chance.choice([DType.INT8, DType.FLOAT32]))],
    lambda net, picked, chance: [net.mean(_image(net, picked))],
    _split_or_relu,
]


def nets(most_ops: int = 9, one_output_each: bool = False) -> st.SearchStrategy[Graph]:
    """Random networks. They shrink to a seed, not to a shape: the graph of a failure is printed by its ops."""
    return st.integers(0, 2**32).map(lambda seed: random_net(seed, most_ops, one_output_each))
