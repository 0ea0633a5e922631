"""How the tests draw the operations of `moving/concatenation.py`."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import QUANTISED_OR_FLOAT
from diagmem.ops.moving.concatenation import Concatenation, ConcatenationKind, Pack, PackKind, Split, SplitKind
from tests.ops.sampling import Draw, Fitting, Samples, activation, constant, ints, node_of


class ConcatenationSamples(Samples, of=ConcatenationKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """One to four inputs along any axis, counted from either end; some are constant."""
        shape, dtype = draw.shape(least_axes=1), draw.choice(QUANTISED_OR_FLOAT)
        axis = draw.axis(len(shape))
        parts = [
            [size if a == axis % len(shape) else s for a, s in enumerate(shape)] for size in draw.many(1, 5, draw.small)
        ]
        inputs = [draw.choice((activation, activation, constant))(part, dtype) for part in parts]
        return node_of(self.kind, name, Concatenation(axis), inputs, (dtype,))

    def fitting(self, node: Node) -> Fitting:
        """Unsigned inputs have scales of their own."""
        return Fitting(None, gain=1 if node.output.dtype is DType.UINT8 else None)


class PackSamples(Samples, of=PackKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """One to four tensors along any axis, counted from either end; some that are stacked are constant."""
        shape, dtype, count = draw.shape()[:5], draw.dtype(), draw.integer(1, 5)
        axis = draw.axis(len(shape) + 1)
        if name == "PACK":
            places = [draw.choice((activation, activation, constant)) for _ in range(count)]
            return node_of(self.kind, name, Pack(axis, count), [place(shape, dtype) for place in places], (dtype,))
        at = axis % (len(shape) + 1)
        data = activation((*shape[:at], count, *shape[at:]), dtype)
        return node_of(self.kind, name, Pack(axis, count), [data], (dtype,))


class SplitSamples(Samples, of=SplitKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Equal parts and given sizes, along any axis, counted from either end."""
        shape, dtype = list(draw.shape(least_axes=1)), draw.dtype()
        axis = draw.axis(len(shape))
        if name == "SPLIT":
            parts = draw.integer(1, 5)
            shape[axis] = parts * draw.integer(1, 3)
            return node_of(self.kind, name, Split(parts), [ints(axis), activation(shape, dtype)], (dtype,))
        sizes = draw.many(1, 5, draw.small)
        shape[axis] = sum(sizes)
        if draw.boolean():
            sizes[draw.integer(0, len(sizes))] = -1
        inputs = [activation(shape, dtype), ints(sizes), ints(axis)]
        return node_of(self.kind, name, Split(len(sizes)), inputs, (dtype,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(data=1 if node.op.kind == "SPLIT" else 0)
