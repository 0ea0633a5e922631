"""Small networks of image operations with weights, made at random: what running row by row has to get right."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from diagmem.backends.c.program import Program
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import ABSENT, DType, Graph, Op, Padding, Quantisation, Shape, Tensor
from diagmem.model.schedule import Schedule, Step
from diagmem.ops import Activation
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.reductions.reduce import Reduce
from diagmem.planning.plan import Storage

GAP_BYTES = 64

UNOPTIMISED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Many small models are compiled faster than they run."""


class Images(Builder):
    """A builder of any convolution: strides, dilations, kernels that are no squares, channels that are multiplied."""

    def any_conv(self, x: Tensor, channels: int, attributes: Conv2D, kernel: tuple[int, int]) -> Tensor:
        weights = self._weights(filter=(channels, *kernel, x.shape[-1]), bias=(channels,))
        return self._op("CONV_2D", attributes, x, *weights)

    def any_depthwise(self, x: Tensor, attributes: DepthwiseConv2D, kernel: tuple[int, int]) -> Tensor:
        depth = x.shape[-1] * attributes.multiplier
        weights = self._weights(filter=(1, *kernel, depth), bias=(depth,))
        return self._op("DEPTHWISE_CONV_2D", attributes, x, *weights)

    def transposed(self, x: Tensor, shape: Shape, kernel: int, stride: int) -> Tensor:
        given = self._ints("shape", shape)
        (weights,) = self._weights(filter=(shape[3], kernel, kernel, x.shape[3]))
        return self._op("TRANSPOSE_CONV", TransposeConv(Padding.SAME, stride, stride), given, weights, x)

    def cropped(self, x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
        return self._op("SLICE", None, x, self._ints("begin", begin), self._ints("size", size))


def image_net(seed: int) -> Graph:
    """Strides, pads, dilations, residuals, pools, joins and tensors with several readers; the last op reads all that
    would else have no reader."""
    chance = random.Random(seed)
    b = Images(f"net{seed}", chance.choice([DType.INT8, DType.FLOAT32]))
    x = b.input(1, chance.randint(7, 13), chance.randint(3, 6), chance.randint(1, 3))
    made = [x]
    for _ in range(chance.randint(3, 8)):
        x = made[-1] if chance.random() < 0.75 else chance.choice(made[1:] or made)
        made.append(_grown(b, x, made, chance))
    x = made[-1]
    ends = [b.mean(t, keep_dims=True) for t in made[1:-1] if chance.random() < 0.25]
    if ends or chance.random() < 0.5:
        x = b.concat(*ends, b.average_pool(x, (x.shape[1], x.shape[2]), 1, Padding.VALID))
        x = b.softmax(b.fully_connected(b.flatten(x), 4))
    return with_values(b.graph(x), seed)


def joined_net(seed: int) -> Graph:
    """Branches that are joined along channels, some with what they came from, and channels that are cut apart."""
    chance = random.Random(seed)
    b = Images(f"joined{seed}", chance.choice([DType.INT8, DType.FLOAT32]))
    x = b.conv(b.input(1, chance.randint(7, 11), chance.randint(2, 5), 2), chance.randint(2, 4), (3, 3))
    for _ in range(chance.randint(2, 5)):
        height, width, depth = x.shape[1:]
        match chance.choice(["join", "join", "dense", "cut", "conv", "pool"]):
            case "join":
                kernels = [chance.choice([1, 3]) for _ in range(chance.randint(2, 3))]
                x = b.concat(*(b.conv(x, chance.randint(1, 3), (k, k)) for k in kernels))
            case "dense":
                x = b.concat(x, b.conv(x, 2, (3, 3)))
            case "cut" if depth > 1:
                at = chance.randint(1, depth - 1)
                left = b.cropped(x, (0, 0, 0, 0), (1, height, width, at))
                right = b.cropped(x, (0, 0, 0, at), (1, height, width, depth - at))
                x = b.concat(b.conv(left, 2, (3, 3)), b.relu(right))
            case "pool":
                x = b.max_pool(x, (2, 2), 2)
            case _:
                x = b.conv(x, chance.randint(2, 5), (3, 3))
    return with_values(b.graph(b.fully_connected(b.mean(x, True), 3)), seed)


def flat_net(seed: int) -> Graph:
    """Convolutions and pools; then windows as tall as the image, or not; at the end a dense layer over all pixels."""
    chance = random.Random(seed)
    b = Images(f"flat{seed}", chance.choice([DType.INT8, DType.FLOAT32]))
    x = b.input(1, chance.randint(9, 18), chance.randint(3, 8), chance.randint(1, 3))
    for _ in range(chance.randint(1, 4)):
        x = _window(b, x, chance.choice(["conv", "depthwise"]), chance)
        x = b.max_pool(x, 2, chance.randint(1, 2)) if chance.random() < 0.4 and min(x.shape[1:3]) > 1 else x
    height, width = x.shape[1], min(x.shape[2], chance.randint(1, 2))
    tall = chance.choice(["none", "none", "conv", "depthwise"])
    if tall == "conv":
        x = b.any_conv(x, chance.randint(1, 9), Conv2D(Padding.VALID), (height, width))
    elif tall == "depthwise":
        attributes = DepthwiseConv2D(Padding.VALID, multiplier=chance.randint(1, 2), activation=Activation.RELU)
        x = b.any_depthwise(x, attributes, (height, width))
    x = b.fully_connected(b.flatten_keras(x), chance.randint(1, 12), chance.choice([Activation.NONE, Activation.RELU]))
    return with_values(b.graph(b.fully_connected(x, 3)), seed)


def image_to_image(dtype: DType) -> Graph:
    """Down, up again, a part cut out, and what was before beside it."""
    b = Images("image to image", dtype)
    x = b.input(1, 24, 8, 3)
    wide = b.conv(x, 4, 3)
    small = b.conv(b.conv(wide, 6, 3, 2), 8, 3, 2)
    large = b.transposed(b.transposed(small, (1, 12, 4, 6), 3, 2), (1, 24, 8, 4), 4, 2)
    both = b.concat(b.cropped(large, (0, 2, 1, 0), (1, 20, 6, 4)), b.cropped(wide, (0, 2, 1, 1), (1, 20, 6, 2)))
    return with_values(b.graph(b.conv(both, 2, 3)), 1)


def digits(dtype: DType, units: int = 10) -> Graph:
    """A convolution, a pool, a dense layer: as a first tutorial classifies 28x28 digits."""
    b = Images("digits", dtype)
    x = b.conv(b.input(1, 28, 28, 1), 12, 3, 1, Padding.VALID, Activation.RELU)
    x = b.fully_connected(b.flatten_keras(b.max_pool(x, 2, 2)), units)
    return with_values(b.graph(b.softmax(x)), 1)


def eegnet(dtype: DType, electrodes: int = 16, samples: int = 64) -> Graph:
    """EEGNet: a convolution over time, a depthwise one over all electrodes, a separable one, a dense layer."""
    b = Images("eegnet", dtype)
    x = b.any_conv(b.input(1, electrodes, samples, 1), 8, Conv2D(Padding.SAME), (1, 16))
    x = b.any_depthwise(x, DepthwiseConv2D(Padding.VALID, multiplier=2, activation=Activation.RELU), (electrodes, 1))
    x = b.average_pool(x, (1, 4), (1, 4))
    x = b.conv(b.any_depthwise(x, DepthwiseConv2D(Padding.SAME), (1, 8)), 16, 1, activation=Activation.RELU)
    x = b.fully_connected(b.flatten_keras(b.average_pool(x, (1, 4), (1, 4))), 4)
    return with_values(b.graph(b.softmax(x)), 1)


class Lines(Images):
    """A builder of 1-D layers as converters write them: 2-D ones over a single row or column, reshapes around them."""

    def reshaped(self, x: Tensor, *shape: int) -> Tensor:
        return self._op("RESHAPE", Reshape(), x, self._ints("shape", shape))

    def conv_1d(self, x: Tensor, channels: int, kernel: int, stride: int, padding: Padding) -> Tensor:
        image = self.reshaped(x, 1, 1, *x.shape[1:])
        made = self.any_conv(image, channels, Conv2D(padding, 1, stride), (1, kernel))
        return self.reshaped(made, 1, *made.shape[2:])

    def pool_1d(self, x: Tensor, kernel: int, stride: int) -> Tensor:
        column = self.reshaped(x, 1, x.shape[1], 1, x.shape[2])
        made = self.max_pool(column, (kernel, 1), (stride, 1))
        return self.reshaped(made, 1, made.shape[1], made.shape[3])

    def mean_1d(self, x: Tensor) -> Tensor:
        return self._op("MEAN", Reduce(), x, self._ints("axes", [1]))

    def concat_1d(self, *parts: Tensor) -> Tensor:
        return self._op("CONCATENATION", Concatenation(axis=-1), *parts)


def line_net(seed: int) -> Graph:
    """Samples in time: convolutions, pools, residuals and joins; a verdict at the end, or a line again."""
    chance = random.Random(seed)
    b = Lines(f"line{seed}", chance.choice([DType.INT8, DType.FLOAT32]))
    x = b.input(1, chance.randint(12, 24), chance.randint(1, 3))
    x = b.conv_1d(x, 4, 3, 1, Padding.SAME)
    made = [x]
    for _ in range(chance.randint(2, 6)):
        alike = [t for t in made if t.shape == x.shape and t is not x]
        beside = [t for t in made if t.shape[1] == x.shape[1] and t is not x]
        ways = ["conv"] * 3 + ["pool", "relu"] + ["add"] * 2 * bool(alike) + ["concat"] * bool(beside)
        match chance.choice(ways):
            case "pool":
                x = b.pool_1d(x, chance.randint(1, 3), chance.randint(1, 2))
            case "relu":
                x = b.relu(x)
            case "add":
                x = b.add(x, chance.choice(alike))
            case "concat":
                x = b.concat_1d(x, chance.choice(beside))
            case _:
                kernel, stride = chance.randint(1, 4), chance.choice([1, 1, 2])
                padding = Padding.VALID if kernel < x.shape[1] and chance.random() < 0.5 else Padding.SAME
                x = b.conv_1d(x, chance.randint(1, 6), kernel, stride, padding)
        made.append(x)
    x = b.fully_connected(b.mean_1d(x), 3) if chance.random() < 0.7 else x
    return with_values(b.graph(x), seed)


def with_values(graph: Graph, seed: int) -> Graph:
    """Weights and, for integers, scales at which most results fit."""
    rng = np.random.default_rng(seed)
    scales = _scales(graph, rng) if graph.tensors[0].dtype is DType.INT8 else {}
    values = {t.index: _constant(t, graph, rng) for t in graph.tensors if t.is_constant and t.data is None}
    tensors = (replace(t, quantisation=scales.get(t.index)) for t in graph.tensors)
    return replace(graph, tensors=tuple(values.get(t.index, t) for t in tensors))


def _scales(graph: Graph, rng: np.random.Generator) -> dict[int, Quantisation]:
    """One for each group of tensors that operations want to be of the same scale."""
    leader = {t.index: t.index for t in graph.tensors if not t.is_constant}
    for op in graph.ops:
        if (
            op.kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "PAD", "CONCATENATION", "RESHAPE", "SLICE")
            or "_ND" in op.kind
        ):
            group = {leader[t] for t in (*op.inputs, *op.outputs) if t in leader}
            leader = {t: min(group) if of in group else of for t, of in leader.items()}
    found = {t: Quantisation((float(rng.uniform(0.02, 0.06)),), (int(rng.integers(-30, 30)),)) for t in leader}
    found |= {leader[op.outputs[0]]: Quantisation((1 / 256,), (-128,)) for op in graph.ops if op.kind == "SOFTMAX"}
    return {t: found[of] for t, of in leader.items()}


def _constant(tensor: Tensor, graph: Graph, rng: np.random.Generator) -> Tensor:
    if tensor.dtype is DType.FLOAT32:
        return replace(tensor, data=rng.normal(0, 0.5, tensor.shape).astype(np.float32))
    if tensor.dtype is DType.INT32:
        return replace(tensor, data=rng.integers(-500, 500, tensor.shape).astype(np.int32))
    is_depthwise = graph.ops[graph.consumers[tensor.index][0]].kind == "DEPTHWISE_CONV_2D"
    terms = math.prod(tensor.shape[1:3] if is_depthwise else tensor.shape[1:])
    axis = 3 if is_depthwise else 0
    spread = rng.uniform(0.5, 1.5, tensor.shape[axis]) / (64 * math.sqrt(terms))
    scale = Quantisation(tuple(map(float, spread.astype(np.float32))), (0,) * len(spread), axis)
    return replace(tensor, data=rng.integers(-127, 128, tensor.shape).astype(np.int8), quantisation=scale)


def _grown(b: Images, x: Tensor, made: Sequence[Tensor], chance: random.Random) -> Tensor:
    """One more operation behind x."""
    alike = [t for t in made if t.shape == x.shape and t is not x]
    beside = [t for t in made if t.shape[:3] == x.shape[:3] and t is not x]
    ways = ["conv", "conv", "depthwise", "max", "average", "relu", "pad", "softmax"]
    ways += ["add"] * 3 * bool(alike) + ["concat"] * bool(beside)
    match chance.choice(ways):
        case "add":
            return b.add(x, chance.choice(alike), chance.choice([Activation.NONE, Activation.RELU]))
        case "concat":
            return b.concat(x, chance.choice(beside))
        case "relu":
            return b.relu(x)
        case "softmax":
            return b.softmax(x)
        case "pad":
            return b.pad(x, chance.randint(0, 2), chance.randint(0, 1))
        case "max":
            return b.max_pool(x, chance.randint(1, 3), chance.randint(1, 2))
        case "average":
            return b.average_pool(x, chance.randint(1, 3), chance.randint(1, 2))
        case way:
            return _window(b, x, way, chance)


def _window(b: Images, x: Tensor, way: str, chance: random.Random) -> Tensor:
    height, width = chance.randint(1, 4), chance.randint(1, 3)
    stride = (chance.choice([1, 1, 2]), chance.choice([1, 1, 2]))
    dilation = (chance.choice([1, 2]), chance.choice([1, 2])) if stride == (1, 1) else (1, 1)
    fits = (height - 1) * dilation[0] < x.shape[1] and (width - 1) * dilation[1] < x.shape[2]
    padding = chance.choice([Padding.SAME, Padding.VALID]) if fits else Padding.SAME
    activation = chance.choice([Activation.NONE, Activation.RELU, Activation.RELU6])
    if way == "conv":
        options = Conv2D(padding, *stride, *dilation, activation)
        return b.any_conv(x, chance.randint(1, 10), options, (height, width))
    multiplier = chance.choice([1, 1, 2]) if x.shape[3] < 8 else 1
    return b.any_depthwise(x, DepthwiseConv2D(padding, *stride, *dilation, multiplier, activation), (height, width))


def side_by_side(programs: Sequence[Program]) -> Program:
    """One program that runs each of these in turn, in a stretch of the arena of its own."""
    tensors: list[Tensor] = []
    ops: list[Op] = []
    inputs: list[int] = []
    outputs: list[int] = []
    steps: list[Step] = []
    storage: dict[int, Storage] = {}
    scratch: dict[int, int] = {}
    base = 0
    for program in programs:
        first, op = len(tensors), len(ops)
        graph = program.graph
        tensors += (replace(t, index=t.index + first, name=f"{graph.name}/{t.name}") for t in graph.tensors)
        ops += (_moved(o, op, first) for o in graph.ops)
        inputs += (t + first for t in graph.inputs)
        outputs += (t + first for t in graph.outputs)
        steps += (Step(step.op + op, step.turn) for step in program.steps)
        storage |= {t + first: _lifted(how, base) for t, how in program.storage.items()}
        scratch |= {o + op: offset + base for o, offset in program.scratch.items()}
        base += -(-(program.arena_bytes + GAP_BYTES) // 8) * 8
    graph = Graph("side_by_side", tuple(tensors), tuple(ops), tuple(inputs), tuple(outputs))
    kernels = next((program.kernels for program in programs), "diagmem")
    return Program(graph, Schedule(tuple(steps)), storage, scratch, base, kernels=kernels)


def _lifted(storage: Storage, by: int) -> Storage:
    """All rows so many bytes higher."""
    table = None if storage.table is None else tuple(offset + by for offset in storage.table)
    return replace(storage, base=storage.base + by, table=table)


def _moved(op: Op, first_op: int, first_tensor: int) -> Op:
    def at(tensor: int) -> int:
        return tensor if tensor == ABSENT else tensor + first_tensor

    inputs, outputs = tuple(map(at, op.inputs)), tuple(map(at, op.outputs))
    return replace(op, index=op.index + first_op, inputs=inputs, outputs=outputs, origin=None)


def has_image_input(graph: Graph) -> bool:
    return graph.tensors[graph.inputs[0]].rows > 1
