"""Small networks full of operations that need not exist."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from diagmem.model.graph import DType, Graph, Padding
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.moving.concatenation import Concatenation, Pack
from diagmem.ops.moving.fill import Known
from diagmem.ops.moving.pad import Pad
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.pooling.pool_2d import Pool2D
from tests.execution import with_values
from tests.networks import Net


class Tangle(Net):
    """A network under construction, in float32."""

    def __init__(self) -> None:
        super().__init__(DType.FLOAT32)

    def joined(self, axis: int, *parts: int) -> int:
        return self.op("CONCATENATION", Concatenation(axis), *parts)

    def pad(self, x: int, *pads: int) -> int:
        return self.op("PAD", Pad(), x, self.ints(4, 2, values=[0, 0, *pads, 0, 0]))

    def ints(self, *shape: int, values: list[int]) -> int:
        return self.tensor(shape, DType.INT32, is_constant=True, data=np.array(values, np.int32).reshape(shape))

    def cut(self, x: int, begin: list[int], size: list[int]) -> int:
        return self.op("SLICE", None, x, self.ints(4, values=begin), self.ints(4, values=size))

    def every_other(self, x: int) -> int:
        """Every other row and column."""
        ends = list(self.tensors[x].shape)
        bounds = [self.ints(4, values=v) for v in ([0] * 4, ends, [1, 2, 2, 1])]
        return self.op("STRIDED_SLICE", StridedSlice(), x, *bounds)

    def average(self, x: int, stride: int = 1) -> int:
        return self.op("AVERAGE_POOL_2D", Pool2D(stride_h=stride, stride_w=stride, kernel_h=2, kernel_w=2), x)

    def stack(self, *parts: int) -> int:
        return self.op("PACK", Pack(0, len(parts)), *parts)

    def turned(self, x: int) -> int:
        return self.op("TRANSPOSE", None, x, self.ints(4, values=[0, 2, 1, 3]))


Move = Callable[[Tangle, random.Random, list[int]], list[int]]


def tangle(seed: int, most_ops: int = 10) -> Graph:
    """Concatenations of concatenations and of parts, on any axis, several readers for each tensor, and outputs that are
    concatenated too."""
    chance, net = random.Random(seed), Tangle()
    size = chance.randint(2, 4)
    images = [net.input(1, size, size, chance.randint(1, 3)) for _ in range(chance.choice([1, 1, 2]))]
    for _ in range(chance.randint(2, most_ops)):
        images += chance.choice(_MOVES)(net, chance, images)
    read = {t for op in net.ops for t in op.inputs}
    made = [t for op in net.ops for t in op.outputs]
    outputs = [t for t in made if t not in read and chance.random() < 0.9] or [made[-1]]
    outputs += [t for t in made if t in read and chance.random() < 0.1]
    return with_values(net.graph(*dict.fromkeys(outputs)), seed)


def tangles(most_ops: int = 10) -> st.SearchStrategy[Graph]:
    return st.integers(0, 2**32).map(lambda seed: tangle(seed, most_ops))


def _recent(chance: random.Random, images: list[int]) -> int:
    return chance.choice(images[-4:])


def _join(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    axis, first = chance.choice([1, 2, 3, 3, 3]), _recent(chance, images)
    shape = net.tensors[first].shape

    def fits(t: int) -> bool:
        other = net.tensors[t].shape
        return all(a == b for i, (a, b) in enumerate(zip(shape, other, strict=True)) if i != axis)

    others = [t for t in images[-6:] if fits(t) and (t != first or chance.random() < 0.2)]
    parts = [first, *chance.sample(others, min(len(others), chance.randint(1, 3)))]
    return [net.joined(axis, *chance.sample(parts, len(parts)))]


def _grow(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    """As in DenseNet: a tensor, and what is made of it, side by side."""
    x = _recent(chance, images)
    return [net.joined(3, x, net.conv(net.relu(x), 2, 1))]


def _cut(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    x = _recent(chance, images)
    shape = net.tensors[x].shape
    begin = [chance.randrange(size) for size in shape]
    return [net.cut(x, begin, [chance.randint(1, n - b) for n, b in zip(shape, begin, strict=True)])]


def _split(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    x = _recent(chance, images)
    return net.split(x, 2) if net.tensors[x].shape[3] % 2 == 0 else [net.relu(x)]


def _reshaped(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    x = _recent(chance, images)
    n, height, width, depth = net.tensors[x].shape
    return [net.reshape(x, *chance.choice([(n, width, height, depth), (n, 1, height * width, depth)]))]


def _padded(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    x = _recent(chance, images)
    source = chance.choice([net.relu(x), x])
    padded = net.pad(source, *(chance.randint(0, 2) for _ in range(4)))
    readers: list[Callable[[int], int]] = [net.pool, net.depthwise, net.average, lambda t: net.conv(t, 2)]
    return [read(padded) for read in chance.sample(readers, chance.choice([1, 1, 2]))]


def _known(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    """The sum with a constant that is computed; the image under a shape that is computed too."""
    x = _recent(chance, images)
    shape = net.tensors[x].shape
    offset = net.relu(net.relu(net.tensor(shape[3:], is_constant=True)))
    sizes = net.op("SHAPE", Known(), x, dtype=DType.INT32)
    return [net.op("RESHAPE", Reshape(), net.add(x, offset), sizes, shapes=[shape])]


def _twins(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    x = _recent(chance, images)
    return [net.relu(x), net.relu(x)]


def _active(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    return [net.relu(net.conv(_recent(chance, images), 2))]


def _flattened(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    """A dense layer over all pixels."""
    x = _recent(chance, images)
    size = math.prod(net.tensors[x].shape)
    flat = net.reshape(x, 1, size) if chance.random() < 0.7 else net.reshape(net.reshape(x, 1, 1, size), 1, size)
    made = net.op("FULLY_CONNECTED", FullyConnected(), flat, net.filters(x, chance.randint(1, 3), size))
    return [net.reshape(made, 1, 1, 1, net.tensors[made].shape[1])]


def _in_blocks(net: Tangle, chance: random.Random, images: list[int]) -> list[int]:
    """A dilated convolution as converters write it."""
    x = _recent(chance, images)
    pads = [[1, 1 + size % 2] for size in net.tensors[x].shape[1:3]]
    block = net.ints(2, values=[2, 2])
    apart = net.op("SPACE_TO_BATCH_ND", None, x, block, net.ints(2, 2, values=[*pads[0], *pads[1]]))
    filters = net.filters(x, 2, 2, 2, net.tensors[x].shape[3])
    made = net.op("CONV_2D", Conv2D(Padding.VALID), apart, filters)
    crops = net.ints(2, 2, values=[0, pads[0][1] - 1, chance.randint(0, 1), 0])
    return [net.op("BATCH_TO_SPACE_ND", None, made, block, crops)]


_MOVES: list[Move] = [
    *(
        _join,
        _join,
        _join,
        _grow,
        _grow,
        _cut,
        _split,
        _reshaped,
        _padded,
        _padded,
        _twins,
        _active,
        _known,
        _flattened,
        _in_blocks,
    ),
    lambda net, chance, images: [net.conv(_recent(chance, images), chance.randint(1, 3), chance.choice([1, 3]))],
    lambda net, chance, images: [net.depthwise(_recent(chance, images))],
    lambda net, chance, images: [net.pool(_recent(chance, images), 2, chance.choice([1, 2]))],
    lambda net, chance, images: [net.add(*[_recent(chance, images)] * 2)],
    lambda net, chance, images: [net.every_other(_recent(chance, images))],
    lambda net, chance, images: [net.turned(_recent(chance, images))],
    lambda net, chance, images: [net.mean(_recent(chance, images))],
]
