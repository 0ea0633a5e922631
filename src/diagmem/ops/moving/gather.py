"""GATHER: slices of the input along an axis, picked by index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, Values, axis_of, constant_ints, input_at
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, activation, ints, node_of
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Gather:
    """Inputs: data, indices. The first `batch_dims` axes of both run together."""

    axis: int = 0
    batch_dims: int = 0


class GatherKind(RearrangeKind):
    names = ("GATHER",)
    orders = (Order.REFERENCE, Order.MEMCPY)
    takes = Signature((2, 2), numbers=(1,))
    table = Table(Gather, ("Axis", "BatchDims"))

    def output_shapes(self, name: str, attributes: Gather, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        axis, batch_dims = _axes(attributes, inputs)
        data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        return ((*data[:axis], *indices[batch_dims:], *data[axis + 1 :]),)

    def chunks(self, node: Node, order: Order) -> Chunks | None:
        axis, _ = _axes(node.attributes, node.inputs)
        shape, indices = node.input(0).shape, constant_ints(node.inputs, 1)
        if indices is None:
            return None
        if not all(0 <= index < shape[axis] for index in indices):
            raise ModelError(f"{node.label}: an index lies outside axis {axis} of {list(shape)}; the file is damaged")
        sizes = _sizes(node)
        row = np.arange(sizes.batches * sizes.rows, dtype=np.int64).reshape(sizes.batches, sizes.rows, 1)
        picked = np.array(indices, dtype=np.int64).reshape(sizes.batches, 1, -1)
        chunks = Chunks.of((row * sizes.size + picked) * sizes.run, sizes.run)
        return chunks.moved_at_once() if order is Order.MEMCPY else chunks

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        sizes, (data, indices) = _sizes(node), inputs
        rows = data.reshape(sizes.batches, sizes.rows, sizes.size, sizes.run)
        picks = np.clip(indices.astype(np.int64).reshape(sizes.batches, 1, sizes.picks, 1), 0, sizes.size - 1)
        return (np.take_along_axis(rows, picks, axis=2).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        require_types(DType.INT32, (node.input(1),))
        fields = {"element": node.output.dtype.size_bytes, **_sizes(node)._asdict()}
        return kernel_call("gather", fields, (node.input(0), node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Indices of any rank, in any order, repeated, with and without batch axes; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        axis = draw.integer(0, len(shape))
        batch_dims = draw.integer(0, axis + 1)
        picked = (*shape[:batch_dims], *draw.many(0, 3, draw.small))
        attributes = Gather(axis - len(shape) if draw.boolean() else axis, batch_dims)
        if draw.integer(0, 5) == 0:
            indices = activation(picked, DType.INT32)
        else:
            values = [draw.integer(0, shape[axis]) for _ in range(math.prod(picked))]
            indices = ints(np.array(values, np.int32).reshape(picked))
        return node_of(self, name, attributes, [activation(shape, dtype), indices], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices, some of them just outside, where the kernel takes the nearest."""
        size = node.input(0).shape[node.attributes.axis]
        return rng.integers(-1, size + 1, tensor.shape) if position == 1 else None


class _Sizes(NamedTuple):
    """Of the loops, the outermost first: axes that indices and data share, data axes between those and the gathered
    one; then the gathered axis, the indices of each batch, the elements of a slice."""

    batches: int
    rows: int
    size: int
    picks: int
    run: int


def _sizes(node: Node) -> _Sizes:
    axis, batch_dims = _axes(node.attributes, node.inputs)
    data, indices = node.input(0).shape, node.input(1).shape
    return _Sizes(
        math.prod(data[:batch_dims]),
        math.prod(data[batch_dims:axis]),
        data[axis],
        math.prod(indices[batch_dims:]),
        math.prod(data[axis + 1 :]),
    )


def _axes(attributes: Gather, inputs: Sequence[Tensor | None]) -> tuple[int, int]:
    """Axis and number of batch axes, both counted from the front."""
    data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
    axis = axis_of(attributes.axis, len(data))
    batch_dims = attributes.batch_dims + (len(indices) if attributes.batch_dims < 0 else 0)
    if not 0 <= batch_dims <= min(axis, len(indices)) or data[:batch_dims] != indices[:batch_dims]:
        raise ModelError(
            f"indices {list(indices)} do not suit {list(data)} with {attributes.batch_dims} batch axes and axis "
            f"{attributes.axis}; the file is damaged"
        )
    return axis, batch_dims


KIND = GatherKind()
