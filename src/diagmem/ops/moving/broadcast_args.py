"""BROADCAST_ARGS: the shape of an operation on two shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at, swept
from diagmem.ops.loops.chunks import FILL, Chunks
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature


class BroadcastArgsKind(OpKind):
    """Inputs: two shapes, which need not have the same number of axes."""

    names = ("BROADCAST_ARGS",)
    takes = Signature((2, 2), numbers=(0, 1))
    needs = Fitting((DType.INT32,), scaled=())

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        first, second = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if len(first) != 1 or len(second) != 1:
            raise ModelError(f"{list(first)} and {list(second)} numbers are no two shapes; the file is damaged")
        return ((max(*first, *second),),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {p: _chunks(node, p).reads(p) for p, _ in node.activations()})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        sizes = node.input(position).dtype.size_bytes, node.output.dtype.size_bytes
        return _chunks(node, position).separation(position, output, *sizes)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        rank = node.output.elems
        first, second = (np.concatenate([np.ones(rank - len(x), x.dtype), x]) for x in inputs)
        return (np.where(first == 1, second, first),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(DType.INT32, tensors)
        fields = {"first": tensors[0].elems, "second": tensors[1].elems}
        return kernel_call("broadcast_args", fields, tensors)

    def sample(self, name: str, draw: Draw) -> Node:
        """Shapes of up to seven axes."""
        inputs = [activation((draw.size(),), DType.INT32) for _ in range(2)]
        return node_of(self, name, None, inputs, (DType.INT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Sizes that suit each other: 1, or one for each axis."""
        sizes = np.arange(10, 10 + node.output.elems)[node.output.elems - tensor.elems :]
        return np.where(rng.integers(0, 2, tensor.shape), sizes, 1)


def _chunks(node: Node, position: int) -> Chunks:
    """One axis after the other, those of the shorter shape behind those that it lacks."""
    given = node.input(position).elems
    return Chunks.of([FILL, 0], [node.output.elems - given, given], position=position)


KIND = BroadcastArgsKind()
