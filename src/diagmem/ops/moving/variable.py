"""READ_VARIABLE, ASSIGN_VARIABLE: a variable of the network taken out as a tensor, and a tensor put in its place.

The file names variables by handles; here the variable itself is what is read, and what is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.graph import Node, Shape, Tensor
from diagmem.model.multicore import Cut
from diagmem.ops.kind import input_at
from diagmem.ops.loops.chunks import StridedKind, Walk
from diagmem.ops.orders import Variant
from diagmem.ops.sampling import Draw, activation, node_of
from diagmem.ops.signature import Signature


class VariableKind(StridedKind):
    """A copy, element by element from the first on: a value may lie over the variable that it is put into, or above."""

    names = ("READ_VARIABLE", "ASSIGN_VARIABLE")
    is_copy = True
    takes = Signature()

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def walk(self, node: Node) -> Walk:
        return Walk((node.output.elems,), (1,))

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """State is for one core."""
        return ()

    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape and type."""
        shape, dtype = draw.shape(), draw.dtype()
        return node_of(self, name, None, [activation(shape, dtype)], (dtype,))


KIND = VariableKind()
