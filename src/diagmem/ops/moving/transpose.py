"""TRANSPOSE: the axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor, row_major_strides
from diagmem.ops.kind import axis_of, constant_ints, input_at
from diagmem.ops.loops.chunks import StridedKind, Walk
from diagmem.ops.sampling import Draw, activation, ints, node_of
from diagmem.ops.signature import Signature


class TransposeKind(StridedKind):
    """Inputs: data, permutation: axis a of the output is axis permutation[a] of the data."""

    names = ("TRANSPOSE",)
    tflm_agrees = True
    takes = Signature((2, 2), numbers=(1,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        permutation = _permutation(inputs)
        return None if permutation is None else (tuple(input_at(inputs, 0).shape[a] for a in permutation),)

    def walk(self, node: Node) -> Walk | None:
        permutation = _permutation(node.inputs)
        if permutation is None:
            return None
        strides = row_major_strides(node.input(0).shape)
        return Walk(node.output.shape, tuple(strides[a] for a in permutation))

    def sample(self, name: str, draw: Draw) -> Node:
        """Any permutation of up to six axes; sometimes it is not known."""
        shape, dtype = draw.shape(), draw.dtype()
        permutation = draw.permutation(range(len(shape)))
        is_known = not shape or draw.integer(0, 5) > 0
        out = tuple(shape[a] for a in permutation)
        second = ints(permutation) if is_known else activation((len(shape),), DType.INT32)
        return node_of(self, name, None, [activation(shape, dtype), second], (dtype,), (out,))


def _permutation(inputs: Sequence[Tensor | None]) -> tuple[int, ...] | None:
    shape, given = input_at(inputs, 0).shape, constant_ints(inputs, 1)
    if given is None:
        return None
    permutation = tuple(axis_of(a, len(shape)) for a in given)
    if sorted(permutation) != list(range(len(shape))):
        raise ModelError(f"{list(given)} is no permutation of the axes of {list(shape)}; the file is damaged")
    return permutation


KIND = TransposeKind()
