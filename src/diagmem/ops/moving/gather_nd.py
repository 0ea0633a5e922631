"""GATHER_ND: slices of the input, each picked by an index along its first axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor, row_major_strides
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, Values, constant_ints, input_at
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, activation, ints, node_of
from diagmem.ops.signature import Signature


class GatherNdKind(RearrangeKind):
    """Inputs: data, indices, whose last axis holds one number for each of the data's first axes."""

    names = ("GATHER_ND",)
    takes = Signature((2, 2), numbers=(1,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        data, indices = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if not indices or indices[-1] > len(data):
            raise ModelError(f"indices {list(indices)} do not suit {list(data)}; the file is damaged")
        return ((*indices[:-1], *data[indices[-1] :]),)

    def chunks(self, node: Node, order: Order) -> Chunks | None:
        indices = constant_ints(node.inputs, 1)
        if indices is None:
            return None
        rows, sizes = np.array(indices, np.int64).reshape(-1, _depth(node)), node.input(0).shape[: _depth(node)]
        if ((rows < 0) | (rows >= np.array(sizes, np.int64))).any():
            raise ModelError(f"{node.label}: an index lies outside {list(sizes)}; the file is damaged")
        return Chunks.of(rows @ np.array(_steps(node), np.int64), _run(node))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, indices = inputs
        limits = np.array(node.input(0).shape[: _depth(node)], np.int64) - 1
        rows = np.clip(indices.reshape(-1, _depth(node)).astype(np.int64), 0, limits)
        starts = rows @ np.array(_steps(node), np.int64)
        return (data.reshape(-1)[starts[:, None] + np.arange(_run(node))].reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        require_types(DType.INT32, (node.input(1),))
        if not _depth(node):
            raise Unsupported("indices without numbers")
        element = node.output.dtype.size_bytes
        fields = {
            "element": element,
            "run": _run(node),
            "slices": math.prod(node.input(1).shape[:-1]),
            "depth": _depth(node),
            "size": CTable("size", np.array(node.input(0).shape[: _depth(node)], np.int32)),
            "step": CTable("step", np.array(_steps(node), np.int32) * element),
        }
        return kernel_call("gather_nd", fields, (node.input(0), node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Indices of any depth, in any order, repeated; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        depth = draw.integer(1, len(shape) + 1)
        picked = (*draw.many(0, 3, draw.small), depth)
        if draw.integer(0, 5) == 0:
            indices = activation(picked, DType.INT32)
        else:
            rows = [[draw.integer(0, size) for size in shape[:depth]] for _ in range(math.prod(picked[:-1]))]
            indices = ints(np.array(rows, np.int32).reshape(picked))
        return node_of(self, name, None, [activation(shape, dtype), indices], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices inside the data."""
        if position != 1:
            return None
        return rng.integers(0, np.array(node.input(0).shape[: _depth(node)]), tensor.shape)


def _depth(node: Node) -> int:
    """How many numbers an index has."""
    return node.input(1).shape[-1]


def _run(node: Node) -> int:
    """The elements of a slice."""
    return math.prod(node.input(0).shape[_depth(node) :])


def _steps(node: Node) -> tuple[int, ...]:
    return tuple(row_major_strides(node.input(0).shape)[: _depth(node)])


KIND = GatherNdKind()
