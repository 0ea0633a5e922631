"""How the tests draw the operations of `moving/transpose.py`."""

from __future__ import annotations

from diagmem.model.graph import Node, Shape
from diagmem.ops.moving.transpose import BroadcastToKind, ReverseKind, SpaceDepth, SpaceDepthKind, TransposeKind
from tests.ops.sampling import Draw, Samples, activation, ints, node_of


class TransposeSamples(Samples, of=TransposeKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any permutation of up to six axes; sometimes it is not known."""
        shape, dtype = draw.shape(), draw.dtype()
        permutation = draw.permutation(range(len(shape)))
        out = tuple(shape[a] for a in permutation)
        second = draw.known(permutation) if shape else ints(permutation)
        return node_of(self.kind, name, None, [activation(shape, dtype), second], (dtype,), (out,))


class ReverseSamples(Samples, of=ReverseKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Axes that lie side by side, as runtimes take them; sometimes they are not known."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        first = draw.integer(0, len(shape))
        axes = range(first, draw.integer(first + 1, len(shape) + 1))
        return node_of(self.kind, name, None, [activation(shape, dtype), draw.known(axes)], (dtype,))


class BroadcastToSamples(Samples, of=BroadcastToKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any axes are repeated; sometimes it is not known how often."""
        dtype = draw.dtype()
        if name == "TILE":
            shape: Shape = tuple(draw.many(1, 5, draw.small))
            second = [draw.small() for _ in shape]
            out: Shape = tuple(size * count for size, count in zip(shape, second, strict=True))
        else:
            out = draw.shape(least_axes=1)
            shape, second = draw.shrunk(out), list(out)
        return node_of(self.kind, name, None, [activation(shape, dtype), draw.known(second)], (dtype,), (out,))


class SpaceDepthSamples(Samples, of=SpaceDepthKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Blocks of one to three pixels a side, either way."""
        dtype, block = draw.dtype(), draw.small()
        batch, height, width, depth = (draw.small() for _ in range(4))
        if name == "SPACE_TO_DEPTH":
            shape = (batch, height * block, width * block, depth)
        else:
            shape = (batch, height, width, depth * block**2)
        return node_of(self.kind, name, SpaceDepth(block), [activation(shape, dtype)], (dtype,))
