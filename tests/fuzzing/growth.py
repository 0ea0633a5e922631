"""Random graphs of operations of every kind, grown one node at a time out of what is there already.

A node is drawn as its own kind draws it, but with the shape, type and scale of a tensor that another node has made. Its
other operands become constants, tensors that fit, or further inputs of the graph; so there are branches, residuals,
joins, several inputs and several outputs, of all types and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, DType, Graph, Node, Op, Padding, Shape, Tensor, Window1D
from diagmem.ops import Unsupported, kinds
from diagmem.ops.c_call import TYPES
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.matrix.products import FullyConnected
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.ops.numerics.quantised import stored_zero
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.resizing.resize import Resize
from tests.ops.fitting import SeededDraw, fitted, input_values
from tests.ops.sampling import Sliding, activation, constant, ints, node_of, samples_of
from tests.tflite_files import own_states_last

Array = npt.NDArray[Any]
T = TypeVar("T")

RUNS = 2
"""Sets of inputs that come with a graph."""

MOST_ELEMS = 600
MOST_OPS = 6
MOST_TRIES = 4

IDLE_SHARE = 4
"""In one graph of so many some channels of layers have no weights, so that there are some to remove."""

_OF_SOME_NUMBERS_ONLY = frozenset({"SQRT", "RSQRT", "LOG", "POW", "FLOOR_DIV", "FLOOR_MOD", "DIV", "CAST", "EXP"})
"""Kinds that are not given what others have made: not every number has a root, not every real one is a whole one."""

_JOINS = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
LAYERS = {"CONV_2D": 0, "FULLY_CONNECTED": 0, "DEPTHWISE_CONV_2D": 3}
"""Kinds with weights -> the axis of their output channels."""

_WINDOWED = ("AVERAGE_POOL_2D", "MAX_POOL_2D")


@dataclass(frozen=True)
class Case:
    """A graph with what its inputs hold, for each run."""

    graph: Graph
    inputs: tuple[tuple[Array, ...], ...]


class SteeredDraw(SeededDraw):
    """Draws the shape and type of a tensor that is there."""

    def __init__(self, seed: int | str, like: Tensor) -> None:
        super().__init__(seed)
        self.like = like

    def shape(self, least_axes: int = 0) -> Shape:
        return self.like.shape if least_axes <= len(self.like.shape) <= 6 else super().shape(least_axes)

    def image(self) -> Shape:
        return self.like.shape if len(self.like.shape) == 4 else super().image()

    def many(self, least: int, end: int, one: Callable[[], T]) -> list[T]:
        # Kinds that draw a shape axis by axis draw one of these.
        is_shape = one in (self.size, self.small) and least <= len(self.like.shape) < end
        return list(self.like.shape) if is_shape else super().many(least, end, one)  # type: ignore[arg-type]

    def dtype(self) -> DType:
        return self.like.dtype if self.like.dtype in TYPES else super().dtype()

    def fitting_window(self, image: tuple[int, int], dilated: bool) -> Sliding:
        """Any kernel, stride and dilation on this image."""
        kernel, stride = (self.small(), self.small()), (self.choice((1, 1, 2, 3)), self.choice((1, 1, 2, 3)))
        dilation = (self.small(), self.small()) if dilated and self.boolean() else (1, 1)
        reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
        fits = all(size > beyond for size, beyond in zip(image, reach, strict=True))
        return Sliding(self.choice(tuple(Padding) if fits else (Padding.SAME,)), kernel, stride, dilation, image)


def _with_idle_channels(graph: Graph, seed: int) -> Graph:
    rng, tensors = np.random.default_rng(seed), list(graph.tensors)
    for node in graph.nodes:
        filters = node.input(1) if node.op.kind in LAYERS else None
        if filters is None or filters.data is None or not filters.data.size:
            continue
        idle = rng.random(filters.shape[LAYERS[node.op.kind]]) < 0.4
        values = np.moveaxis(filters.data.copy(), LAYERS[node.op.kind], 0)
        values[idle] = stored_zero(filters) if filters.dtype is DType.UINT8 else 0
        tensors[filters.index] = replace(filters, data=np.moveaxis(values, 0, LAYERS[node.op.kind]))
    return replace(graph, tensors=tuple(tensors))


def grown(seed: int) -> Case:
    """The graph of that seed."""
    return _Growth(seed).case()


@dataclass
class _Growth:
    """A graph under construction. `given`: input of the graph -> its values, for each run."""

    seed: int
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    given: dict[int, list[Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = SeededDraw(f"growth {self.seed}")
        self.rng = np.random.default_rng(self.seed)

    def case(self) -> Case:
        draw = self.draw
        self.begin()
        for _ in range(draw.integer(1, MOST_OPS + 1)):
            self.grow()
        read = {t for op in self.ops for t in op.inputs}
        made = [t for op in self.ops for t in op.outputs]
        outputs = [t for t in made if t not in read or draw.integer(0, 8) == 0]
        graph = Graph(f"grown{self.seed}", tuple(self.tensors), tuple(self.ops), tuple(self.given), tuple(outputs))
        graph = own_states_last(_with_idle_channels(graph, self.seed) if self.seed % IDLE_SHARE == 0 else graph)
        return Case(graph, tuple(tuple(values[run] for values in self.given.values()) for run in range(RUNS)))

    def begin(self) -> None:
        """A first input of the graph."""
        draw = self.draw
        image = (draw.choice((1, 1, 1, 2)), draw.integer(1, 10), draw.integer(1, 7), draw.integer(1, 9))
        like = activation(image if draw.integer(0, 4) else draw.shape())
        seed = draw.integer(0, 1 << 20)
        node = fitted(samples_of("RELU").sample("RELU", SteeredDraw(seed, like)), seed)
        self.operand(node, 0)

    def grow(self) -> None:
        """One more node, if there is one that fits after a few tries."""
        made = [t for t in self.tensors if not t.is_constant and not t.is_variable]
        for _ in range(MOST_TRIES):
            like = made[-1] if self.draw.integer(0, 3) else self.draw.choice(made)
            draw = SteeredDraw(self.draw.integer(0, 1 << 30), like)
            try:
                node, bound = self.drawn(draw, like)
                if node is not None and _is_complete(node) and _is_of_some_size(node):
                    kinds()[node.op.kind].c_call(node)
                    self.add(node, bound)
                    return
            except (Unsupported, ModelError, NotImplementedError):
                continue

    def drawn(self, draw: SteeredDraw, like: Tensor) -> tuple[Node | None, dict[int, int]]:
        """A node, and which of its inputs are tensors that are there; no node where none fits."""
        known = [t for t in self.tensors if not t.is_constant and not t.is_variable]
        is_image = len(like.shape) == 4 and draw.integer(0, 3) > 0
        bare = image_node(draw, known) if is_image else full_node(draw) if draw.integer(0, 8) == 0 else any_node(draw)
        kind = kinds()[bare.op.kind]
        wants = samples_of(kind).fitting(bare)
        if wants.is_drawn_whole:
            return bare, {}
        data = bare.input(wants.data)
        is_taken = data.shape == like.shape and not data.is_constant and bare.op.kind not in _OF_SOME_NUMBERS_ONLY
        types = (data.dtype,) if wants.types is None else wants.types
        if not is_taken or like.dtype not in types:
            return (fitted(bare, draw.integer(0, 1 << 20)), {}) if draw.integer(0, 3) == 0 else (None, {})
        node, bound = fitted(bare, draw.integer(0, 1 << 20), like), {wants.data: like.index}
        for position, tensor in node.activations():
            if position != wants.data and samples_of(kind).sample_values(node, position, tensor, self.rng) is None:
                scale = None if wants.gain is not None and wants.weights_axis is None else tensor.quantisation
                alike = [t for t in known if (t.shape, t.dtype) == (tensor.shape, tensor.dtype)]
                alike = [t for t in alike if t.quantisation == scale or scale is None]
                if alike and draw.integer(0, 4):
                    bound[position] = draw.choice(alike).index
        inputs = tuple(self.tensors[bound[p]] if p in bound else t for p, t in enumerate(node.inputs))
        return replace(node, inputs=inputs), bound

    def add(self, node: Node, bound: dict[int, int]) -> None:
        """The node with its inputs, but for those that are there."""
        positions = range(len(node.inputs))
        inputs = tuple(bound[p] if p in bound else self.operand(node, p) for p in positions)
        outputs = tuple(self.tensor(t) for t in node.outputs)
        self.ops.append(Op(len(self.ops), node.op.kind, inputs, outputs, node.op.attributes))

    def operand(self, node: Node, position: int) -> int:
        """One of the node's inputs, as a constant or an input of the graph."""
        tensor = node.inputs[position]
        if tensor is None:
            return ABSENT
        index = self.tensor(tensor)
        if not tensor.is_constant and not tensor.is_variable:
            # What is no number is drawn for comparisons; what others make of it is nobody's promise.
            drawn = [np.asarray(input_values(node, self.rng)[position]) for _ in range(RUNS)]
            self.given[index] = [np.nan_to_num(v) if v.dtype.kind == "f" else v for v in drawn]
        return index

    def tensor(self, tensor: Tensor) -> int:
        index = len(self.tensors)
        self.tensors.append(replace(tensor, index=index, name=f"t{index}"))
        return index


def _is_complete(node: Node) -> bool:
    return all(t is None or not t.is_constant or t.data is not None for t in node.inputs)


def _is_of_some_size(node: Node) -> bool:
    """What holds nothing is refused where graphs come in."""
    made, varying = [t.elems for t in node.outputs], [t.elems for _, t in node.activations()]
    return max(made) <= MOST_ELEMS and min(made + varying) > 0


def any_node(draw: SteeredDraw) -> Node:
    """A node of any kind, as its kind draws it."""
    name = draw.choice(_ALL_NAMES)
    return samples_of(name).sample(name, draw)


_ALL_NAMES = tuple(sorted(kinds()))


def full_node(draw: SteeredDraw) -> Node:
    """A matrix for the last axis."""
    size, outputs = (draw.like.shape or (1,))[-1], draw.integer(1, 12)
    inputs = [activation(draw.like.shape), constant((outputs, size)), _bias(draw, outputs)]
    options = FullyConnected(draw.fused(), keep_num_dims=draw.boolean())
    return node_of(kinds()["FULLY_CONNECTED"], "FULLY_CONNECTED", options, inputs)


def image_node(draw: SteeredDraw, known: Sequence[Tensor]) -> Node:
    """A node on an image: windows, joins, and what is pointwise."""
    batch, height, width, depth = draw.like.shape
    data = activation(draw.like.shape, draw.like.dtype)
    way = draw.choice(("conv", "conv", "depthwise", "depthwise", "pool", "transposed", "join", "concat", "resize"))
    if way == "join":
        name = draw.choice(_JOINS)
        attributes = Binary(draw.fused()) if name in ("ADD", "SUB", "MUL") else Binary()
        return node_of(kinds()[name], name, attributes, [data, data])
    if way == "concat":
        beside = [t.shape[3] for t in known if len(t.shape) == 4 and t.shape[:3] == (batch, height, width)]
        parts = [data, *(activation((batch, height, width, draw.choice(beside))) for _ in range(draw.small()))]
        return node_of(kinds()["CONCATENATION"], "CONCATENATION", Concatenation(axis=3), parts)
    if way == "resize":
        name = draw.choice(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
        rule = draw.choice((Resize(), Resize(align_corners=True), Resize(half_pixel_centers=True)))
        return node_of(kinds()[name], name, rule, [data, ints([draw.integer(1, 10), draw.integer(1, 8)])])
    window = draw.fitting_window((height, width), dilated=way in ("conv", "depthwise"))
    if way == "pool":
        name = draw.choice(_WINDOWED)
        return node_of(
            kinds()[name], name, Pool2D(window.padding, *window.stride, *window.kernel, draw.fused()), [data]
        )
    if way == "depthwise":
        multiplier = draw.choice((1, 1, 2, 3))
        weights = [constant((1, *window.kernel, depth * multiplier)), _bias(draw, depth * multiplier)]
        depthwise = DepthwiseConv2D(window.padding, *window.stride, *window.dilation, multiplier, draw.fused())
        return node_of(kinds()["DEPTHWISE_CONV_2D"], "DEPTHWISE_CONV_2D", depthwise, [data, *weights])
    if way == "transposed":
        return _transposed(draw, data, window)
    groups = draw.choice([g for g in (1, 1, 1, 2, 3, depth) if depth % g == 0])
    channels = groups * draw.choice((1, 2, 3, 4, 7, 8, 9, 12) if groups == 1 else (1, 2, 3))
    weights = [constant((channels, *window.kernel, depth // groups)), _bias(draw, channels)]
    options = Conv2D(window.padding, *window.stride, *window.dilation, draw.fused())
    return node_of(kinds()["CONV_2D"], "CONV_2D", options, [data, *weights])


def _bias(draw: SteeredDraw, channels: int) -> Tensor | None:
    return draw.choice((None, constant((channels,)), constant((channels,))))


def _transposed(draw: SteeredDraw, data: Tensor, window: Sliding) -> Node:
    """One whose output has an image of this size, where there is one."""
    batch, height, width, depth = data.shape
    sizes = zip((height, width), window.kernel, window.stride, strict=True)
    made = [_size_before(size, kernel, stride, window.padding) for size, kernel, stride in sizes]
    channels = draw.small()
    inputs = [ints([batch, *made, channels]), constant((channels, *window.kernel, depth)), data, _bias(draw, channels)]
    options = TransposeConv(window.padding, *window.stride, draw.fused())
    return node_of(kinds()["TRANSPOSE_CONV"], "TRANSPOSE_CONV", options, inputs)


def _size_before(size: int, kernel: int, stride: int, padding: Padding) -> int:
    for tried in range(max(1, (size - 1) * stride), size * stride + kernel + 1):
        if _slid(tried, kernel, stride, padding) == size:
            return tried
    raise ModelError("no output has such an image")


def _slid(size: int, kernel: int, stride: int, padding: Padding) -> int:
    if padding is Padding.VALID and kernel > size:
        return 0
    return Window1D.resolve(size, kernel, stride, 1, padding).size_out
