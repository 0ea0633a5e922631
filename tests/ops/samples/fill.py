"""How the tests draw the operations of `moving/fill.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.moving.fill import (
    _OF_SHAPES,
    BroadcastArgsKind,
    FillKind,
    Known,
    NumberRangeKind,
    OneHot,
    OneHotKind,
    ZerosLikeKind,
    _sizes,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant, constant_of, ints, node_of


class FillSamples(Samples, of=FillKind):
    needs = Fitting((DType.INT8, DType.INT16, DType.FLOAT32), data=1)

    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape; the value is computed or constant."""
        dtype = draw.dtype()
        shape = draw.shape(least_axes=1)
        place = draw.choice((activation, constant))
        return node_of(self.kind, name, None, [ints(list(shape)), place((), dtype)], (dtype,))


class NumberRangeSamples(Samples, of=NumberRangeKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Upwards and downwards, of whole numbers."""
        first, step, count = draw.integer(-9, 9), draw.choice((1, 2, -3)), draw.integer(1, 9)
        numbers = (np.array(value, np.int32) for value in (first, first + step * count, step))
        return node_of(self.kind, name, None, [constant_of(value) for value in numbers], (DType.INT32,))


class ZerosLikeSamples(Samples, of=ZerosLikeKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape and type."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        out_type = draw.choice((DType.INT32, DType.INT64))
        attributes = Known(out_type) if name == "SHAPE" else Known()
        made = {"SHAPE": out_type, "RANK": DType.INT32}.get(name, dtype)
        return node_of(self.kind, name, attributes, [activation(shape, dtype)], (made,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting((DType.INT8, DType.FLOAT32), draws_output_types=node.op.kind in _OF_SHAPES)


class OneHotSamples(Samples, of=OneHotKind):
    needs = Fitting(data=2)

    def sample(self, name: str, draw: Draw) -> Node:
        """The new axis anywhere; values constant, now and then computed."""
        shape = tuple(draw.many(0, 4, draw.small))
        axis = draw.integer(-1, len(shape) + 1)
        values = [draw.choice((constant, constant, activation))((), draw.dtype()) for _ in range(2)]
        inputs = [activation(shape, DType.INT32), ints(draw.size()), *values]
        return node_of(self.kind, name, OneHot(axis), inputs, (draw.dtype(),))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices, some of them just outside, where nothing is on."""
        return rng.integers(-1, _sizes(node)[1] + 1, tensor.shape) if position == 0 else None


class BroadcastArgsSamples(Samples, of=BroadcastArgsKind):
    needs = Fitting((DType.INT32,), scaled=())

    def sample(self, name: str, draw: Draw) -> Node:
        """Shapes of up to seven axes."""
        inputs = [activation((draw.size(),), DType.INT32) for _ in range(2)]
        return node_of(self.kind, name, None, inputs, (DType.INT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Sizes that suit each other: 1, or one for each axis."""
        sizes = np.arange(10, 10 + node.output.elems)[node.output.elems - tensor.elems :]
        return np.where(rng.integers(0, 2, tensor.shape), sizes, 1)
