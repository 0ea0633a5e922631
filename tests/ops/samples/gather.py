"""How the tests draw the operations of `moving/gather.py`."""

from __future__ import annotations

import math

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.moving.gather import (
    INDICES,
    DynamicUpdateSliceKind,
    EmbeddingLookupKind,
    Gather,
    GatherKind,
    GatherNd,
    GatherNdKind,
    _depth,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant, ints, node_of


class GatherSamples(Samples, of=GatherKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Indices of any rank, in any order, repeated, with and without batch axes; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        axis = draw.integer(0, len(shape))
        batch_dims = draw.integer(0, axis + 1)
        places = (*shape[:batch_dims], *draw.many(0, 3, draw.small))
        attributes = Gather(axis - len(shape) if draw.boolean() else axis, batch_dims)
        if draw.integer(0, 5) == 0:
            indices = activation(places, draw.choice(INDICES))
        else:
            values = [draw.integer(0, shape[axis]) for _ in range(math.prod(places))]
            indices = ints(np.array(values, np.int32).reshape(places))
        return node_of(self.kind, name, attributes, [activation(shape, dtype), indices], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices, some of them just outside, where the kernel takes the nearest."""
        size = node.input(0).shape[node.attributes.axis]
        return rng.integers(-1, size + 1, tensor.shape) if position == 1 else None


class GatherNdSamples(Samples, of=GatherNdKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Indices of any depth, in any order, repeated; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        depth = draw.integer(1, len(shape) + 1)
        places = (*draw.many(0, 3, draw.small), depth)
        if draw.integer(0, 5) == 0:
            indices = activation(places, draw.choice(INDICES))
        else:
            rows = [[draw.integer(0, size) for size in shape[:depth]] for _ in range(math.prod(places[:-1]))]
            indices = ints(np.array(rows, np.int32).reshape(places))
        return node_of(self.kind, name, GatherNd(), [activation(shape, dtype), indices], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices inside the data."""
        if position != 1:
            return None
        return rng.integers(0, np.array(node.input(0).shape[: _depth(node)]), tensor.shape)


class EmbeddingLookupSamples(Samples, of=EmbeddingLookupKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Tables in flash, now and then in RAM."""
        table = (draw.size(), *draw.many(1, 4, draw.small))
        place = draw.choice((constant, constant, activation))
        inputs = [activation((draw.size(),), DType.INT32), place(table, draw.dtype())]
        return node_of(self.kind, name, None, inputs, (draw.choice((DType.INT8, DType.FLOAT32)),))

    def fitting(self, node: Node) -> Fitting:
        """float32 from float32 or int8, int8 from int8."""
        types = (DType.INT8, DType.FLOAT32) if node.output.dtype is DType.FLOAT32 else (DType.INT8,)
        return Fitting(types, data=1, draws_output_types=True)

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices inside the table."""
        return rng.integers(0, node.input(1).shape[0], tensor.shape) if position == 0 else None


class DynamicUpdateSliceSamples(Samples, of=DynamicUpdateSliceKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Parts of any size, which begin anywhere, also outside; each input may be constant but the data."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        part = [draw.integer(1, size + 1) for size in shape]
        begin = ints([draw.integer(-1, size + 1) for size in shape])
        second = draw.choice((activation, constant))(part, dtype)
        third = begin if draw.boolean() else activation((len(shape),), DType.INT32)
        return node_of(self.kind, name, None, [activation(shape, dtype), second, third], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Where a part begins."""
        return rng.integers(-1, 5, tensor.shape) if position == 2 else None
