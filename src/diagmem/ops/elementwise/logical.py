"""LOGICAL_AND, LOGICAL_OR: of pairs of truths, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CStruct, require_types
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast
from diagmem.ops.sampling import Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature

_FUNCTIONS = {"LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or}


class LogicalKind(BroadcastKind):
    names = tuple(_FUNCTIONS)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,), made=dict.fromkeys(DType, (DType.BOOL,)))
    needs = Fitting((DType.BOOL,), scaled=())

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (broadcast_shape(input_at(inputs, 0).shape, input_at(inputs, 1).shape),)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.reshape(_FUNCTIONS[node.op.kind](*inputs), node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(DType.BOOL, tensors)
        parameters = CStruct("diagmem_logical_params", {"shape": c_broadcast(node)})
        return CCall("logical.c", f"diagmem_{node.op.kind.lower()}", parameters, tensors)

    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        shape = draw.shape()
        places = draw.choice(((activation, activation), (activation, constant), (constant, activation)))
        inputs = [place(draw.shrunk(shape), DType.BOOL) for place in places]
        return node_of(self, name, None, inputs, (DType.BOOL,))


KIND = LogicalKind()
