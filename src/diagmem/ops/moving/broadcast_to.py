"""BROADCAST_TO, TILE: the input again and again along some axes."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor, row_major_strides
from diagmem.ops.kind import constant_ints, input_at
from diagmem.ops.loops.chunks import StridedKind, Walk
from diagmem.ops.sampling import Draw, activation, ints, node_of
from diagmem.ops.signature import Signature


class BroadcastToKind(StridedKind):
    """Inputs: data; the new shape (BROADCAST_TO), or how often each axis is repeated (TILE)."""

    names = ("BROADCAST_TO", "TILE")
    takes = Signature((2, 2), numbers=(1,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        shape, given = input_at(inputs, 0).shape, constant_ints(inputs, 1)
        if given is None:
            return None
        if name == "TILE":
            if len(given) != len(shape) or any(count < 0 for count in given):
                raise ModelError(f"{list(given)} does not say how often to repeat {list(shape)}; the file is damaged")
            return (tuple(size * count for size, count in zip(shape, given, strict=True)),)
        widened = (1,) * (len(given) - len(shape)) + shape
        if len(widened) != len(given) or any(a not in (1, b) for a, b in zip(widened, given, strict=True)):
            raise ModelError(f"{list(shape)} cannot be repeated to make {list(given)}; the file is damaged")
        return (given,)

    def walk(self, node: Node) -> Walk | None:
        shape, given = node.input(0).shape, constant_ints(node.inputs, 1)
        if given is None:
            return None
        strides = row_major_strides(shape)
        if node.op.kind == "BROADCAST_TO":
            missing = len(given) - len(shape)
            steps = (0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
            return Walk(given, (0,) * missing + tuple(steps))
        sizes = tuple(n for pair in zip(given, shape, strict=True) for n in pair)
        return Walk(sizes, tuple(n for stride in strides for n in (0, stride)))

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
        is_known = draw.integer(0, 5) > 0
        given = ints(second) if is_known else activation((len(second),), DType.INT32)
        return node_of(self, name, None, [activation(shape, dtype), given], (dtype,), (out,))


KIND = BroadcastToKind()
