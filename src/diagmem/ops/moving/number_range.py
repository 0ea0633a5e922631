"""RANGE: numbers at equal distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, constant_of, node_of
from diagmem.ops.signature import Signature

MOST_NUMBERS = 1 << 20


class NumberRangeKind(RearrangeKind):
    """Inputs: the first number, the end, which is not reached, and the distance. All are constant where there is a
    kernel: models compute shapes and places with it."""

    names = ("RANGE",)
    takes = Signature((3, 3), all_alike=True, single=(0, 1, 2))
    needs = Fitting(is_drawn_whole=True)

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        tensors = [input_at(inputs, position) for position in range(3)]
        if any(t.data is None for t in tensors):
            return None
        if any(t.elems != 1 for t in tensors):
            raise ModelError("a range has a first number, an end and a distance, and not several of any")
        first, end, step = (float(np.asarray(t.data).reshape(())) for t in tensors)
        count = np.ceil((end - first) / step) if step else np.inf
        if not count < MOST_NUMBERS:
            raise ModelError(f"numbers from {first:g} to {end:g} by {step:g} have no end; the file is damaged")
        return ((max(0, int(count)),),)

    def chunks(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(FILL, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        first, _, step = (np.asarray(values).reshape(()) for values in inputs)
        found = first + np.arange(node.output.elems).astype(first.dtype) * step
        return (found.astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        given = [node.input(position).data for position in range(3)]
        if any(values is None for values in given):
            raise Unsupported("numbers that are computed; supported: constants")
        values = CTable("values", self.reference(node, given)[0])
        return kernel_call("known", {"bytes": node.output.size_bytes, "values": values}, (node.output,))

    def sample(self, name: str, draw: Draw) -> Node:
        """Upwards and downwards, of whole numbers."""
        first, step, count = draw.integer(-9, 9), draw.choice((1, 2, -3)), draw.integer(1, 9)
        numbers = (np.array(value, np.int32) for value in (first, first + step * count, step))
        return node_of(self, name, None, [constant_of(value) for value in numbers], (DType.INT32,))


KIND = NumberRangeKind()
