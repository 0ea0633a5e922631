"""REVERSE_V2: some axes from their end to their start."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.graph import DType, Node, Shape, Tensor, row_major_strides
from diagmem.ops.kind import axis_of, constant_ints, input_at
from diagmem.ops.loops.chunks import StridedKind, Walk
from diagmem.ops.sampling import Draw, activation, ints, node_of
from diagmem.ops.signature import Signature


class ReverseKind(StridedKind):
    """Inputs: data, axes."""

    names = ("REVERSE_V2",)
    takes = Signature((2, 2), numbers=(1,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def walk(self, node: Node) -> Walk | None:
        shape, given = node.input(0).shape, constant_ints(node.inputs, 1)
        if given is None:
            return None
        turned = {axis_of(axis, len(shape)) for axis in given}
        strides = row_major_strides(shape)
        offset = sum((shape[axis] - 1) * strides[axis] for axis in turned)
        return Walk(shape, tuple(-s if axis in turned else s for axis, s in enumerate(strides)), offset)

    def sample(self, name: str, draw: Draw) -> Node:
        """Axes that lie side by side, as runtimes take them; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        first = draw.integer(0, len(shape))
        axes = range(first, draw.integer(first + 1, len(shape) + 1))
        is_known = draw.integer(0, 5) > 0
        second = ints(list(axes)) if is_known else activation((len(axes),), DType.INT32)
        return node_of(self, name, None, [activation(shape, dtype), second], (dtype,))


KIND = ReverseKind()
