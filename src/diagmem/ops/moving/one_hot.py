"""ONE_HOT: for each index a row that is off everywhere but at that index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, element_code, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, constant_ints, held_separation, input_at, swept
from diagmem.ops.loops.chunks import Chunks, strided
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant, ints, node_of
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class OneHot:
    """Inputs: indices, depth (constant), the value that is on, the value that is off. `axis`: where the new axis
    stands."""

    axis: int = 0


class OneHotKind(OpKind):
    names = ("ONE_HOT",)
    takes = Signature((4, 4), data=2, alike=(3,), numbers=(0, 1), single=(1, 2, 3))
    needs = Fitting(data=2)
    table = Table(OneHot, ("Axis",))

    def output_shapes(self, name: str, attributes: OneHot, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        depth, shape = constant_ints(inputs, 1), input_at(inputs, 0).shape
        if depth is None:
            return None
        if len(depth) != 1 or depth[0] < 0 or not -1 <= attributes.axis <= len(shape):
            raise ModelError(f"depth {list(depth)} or axis {attributes.axis} is out of range; the file is damaged")
        axis = attributes.axis if attributes.axis >= 0 else len(shape)
        return ((*shape[:axis], depth[0], *shape[axis:]),)

    def can_make(self, node: Node) -> bool:
        shape, made, axis = node.input(0).shape, node.output.shape, node.attributes.axis
        axis = axis if axis >= 0 else len(shape)
        return -1 <= node.attributes.axis <= len(shape) and (*made[:axis], *made[axis + 1 :]) == shape

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: _chunks(node).reads(0)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position != 0:
            return held_separation(node)
        return _chunks(node).separation(0, output, node.input(0).dtype.size_bytes, node.output.dtype.size_bytes)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        indices, _, on, off = inputs
        outer, depth, inner = _sizes(node)
        is_on = indices.reshape(outer, 1, inner) == np.arange(depth).reshape(1, depth, 1)
        return (np.where(is_on, on.reshape(()), off.reshape(())).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        indices, on, off = node.input(0), node.input(2), node.input(3)
        require_types(node.output.dtype, (on, off))
        outer, depth, inner = _sizes(node)
        fields = {
            "index_type": element_code(indices.dtype),
            "element": node.output.dtype.size_bytes,
            "outer": outer,
            "depth": depth,
            "inner": inner,
        }
        return kernel_call("one_hot", fields, (indices, on, off, node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """The new axis anywhere; values constant, now and then computed."""
        shape = tuple(draw.many(0, 4, draw.small))
        axis = draw.integer(-1, len(shape) + 1)
        values = [draw.choice((constant, constant, activation))((), draw.dtype()) for _ in range(2)]
        inputs = [activation(shape, DType.INT32), ints(draw.size()), *values]
        return node_of(self, name, OneHot(axis), inputs, (draw.dtype(),))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices, some of them just outside, where nothing is on."""
        return rng.integers(-1, _sizes(node)[1] + 1, tensor.shape) if position == 0 else None


def _sizes(node: Node) -> tuple[int, int, int]:
    """Of the axes before the new one, of the new one, and of those behind it."""
    shape, axis = node.output.shape, node.attributes.axis
    axis = axis if axis >= 0 else len(shape) - 1
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _chunks(node: Node) -> Chunks:
    """The indices in the order in which they are read."""
    outer, depth, inner = _sizes(node)
    return strided((outer, depth, inner), (inner, 0, 1))


KIND = OneHotKind()
