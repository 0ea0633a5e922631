"""FILL: one value again and again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, constant_ints, held_separation, swept
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant, ints, node_of
from diagmem.ops.signature import Signature


class FillKind(OpKind):
    """Inputs: the new shape, the value."""

    names = ("FILL",)
    takes = Signature((2, 2), data=1, numbers=(0,), single=(1,))
    needs = Fitting((DType.INT8, DType.INT16, DType.FLOAT32), data=1)

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        shape = constant_ints(inputs, 0)
        return None if shape is None else (shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {1: Runs.of(0, 1, 0)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return None if position == 1 else held_separation(node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.full(node.output.shape, inputs[1].reshape(())),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(1),))
        fields = {"element": node.output.dtype.size_bytes, "count": node.output.elems}
        return kernel_call("fill", fields, (node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape; the value is computed or constant."""
        dtype = draw.dtype()
        shape = draw.shape(least_axes=1)
        place = draw.choice((activation, constant))
        return node_of(self, name, None, [ints(list(shape)), place((), dtype)], (dtype,))


KIND = FillKind()
