"""How the tests draw the operations of `moving/reshape.py`."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.moving.reshape import Reshape, ReshapeKind, VariableKind
from tests.ops.sampling import Draw, Samples, activation, ints, node_of


class ReshapeSamples(Samples, of=ReshapeKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """The new shape as an input, as an option, or known to the file alone."""
        shape, dtype = draw.shape(), draw.dtype()
        data = activation(shape, dtype)
        if name == "SQUEEZE":
            ones = [axis for axis, size in enumerate(shape) if size == 1]
            dims = tuple(axis for axis in ones if draw.boolean())
            return node_of(self.kind, name, Reshape(squeeze_dims=dims), [data], (dtype,))
        if name == "DENSIFY":
            return node_of(self.kind, name, Reshape(), [data], (dtype,))
        if name == "EXPAND_DIMS":
            return node_of(self.kind, name, Reshape(), [data, ints(draw.axis(len(shape) + 1))], (dtype,))
        new = draw.permutation(shape)
        if new and draw.boolean():
            new[draw.integer(0, len(new))] = -1
            return node_of(self.kind, name, Reshape(), [data, ints(new)], (dtype,))
        if draw.boolean():
            asked = activation((len(new),), DType.INT32)
            return node_of(self.kind, name, Reshape(), [data, asked], (dtype,), (tuple(new),))
        return node_of(self.kind, name, Reshape(new_shape=tuple(new)), [data], (dtype,))


class VariableSamples(Samples, of=VariableKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape and type."""
        shape, dtype = draw.shape(), draw.dtype()
        return node_of(self.kind, name, None, [activation(shape, dtype)], (dtype,))
