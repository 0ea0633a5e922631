"""SELECT, SELECT_V2: of two numbers the one that a condition picks, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, joined_axes, kernel_call, require_types
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, pitches
from diagmem.ops.numerics.quantised import require_same_quantisation
from diagmem.ops.sampling import Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature

MOST_AXES = 5
"""How many axes `select.c` walks over."""


class SelectKind(BroadcastKind):
    """Inputs: condition, what is taken where it is true, what is taken where it is false."""

    names = ("SELECT_V2", "SELECT")
    is_pointwise = True
    takes = Signature((3, 3), data=1, alike=(2,))
    needs = Fitting(data=1)

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        condition, yes, no = (input_at(inputs, position).shape for position in range(3))
        if name == "SELECT" and (yes != no or condition not in ((), (1,), yes)):
            raise ModelError(f"a condition {list(condition)} cannot pick of {list(yes)} and {list(no)} in SELECT")
        return (broadcast_shape(condition, broadcast_shape(yes, no)),)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.reshape(np.where(*inputs), node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        condition, yes, no = (node.input(position) for position in range(3))
        require_types(DType.BOOL, (condition,))
        require_types(node.output.dtype, (yes, no))
        require_same_quantisation((yes, no, node.output))
        steps = (pitches(node, position) for position in range(3))
        axes = joined_axes(MOST_AXES, node.output.shape, *steps, node.output.strides)
        named = dict(zip(("size", "condition", "yes", "no", "out"), axes, strict=True))
        fields = {**named, "element": node.output.dtype.size_bytes}
        return kernel_call("select", fields, (condition, yes, no, node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """All inputs may be repeated, each along its own axes; the numbers may be constant."""
        shape, dtype = draw.shape(), draw.dtype()
        if name == "SELECT":
            inputs = [activation(shape, DType.BOOL), activation(shape, dtype), activation(shape, dtype)]
            return node_of(self, name, None, inputs, (dtype,))
        places = draw.choice(((activation, activation), (activation, constant), (constant, activation)))
        condition = activation(draw.shrunk(shape), DType.BOOL)
        inputs = [condition, *(place(draw.shrunk(shape), dtype) for place in places)]
        return node_of(self, name, None, inputs, (dtype,))


KIND = SelectKind()
