"""Inputs that are repeated to match a larger shape, as numpy does: axes of size 1, and those missing in front."""

from __future__ import annotations

from diagmem.accesses import Accesses
from diagmem.errors import ModelError
from diagmem.graph import Node, Shape, row_major_strides
from diagmem.ops._base import OpKind, swept
from diagmem.ops._rearrange import Chunks, strided


class BroadcastKind(OpKind):
    """For each element of the output, in order, one element of each input is read."""

    def accesses(self, node: Node, order: str) -> Accesses:
        return swept(node, {position: _chunks(node, position).reads(position) for position, _ in node.activations()})

    def closed_separation(self, node: Node, position: int, order: str, output: int) -> int | None:
        sizes = node.input(position).dtype.size_bytes, node.output.dtype.size_bytes
        return _chunks(node, position).separation(position, output, *sizes)


def broadcast_shape(a: Shape, b: Shape) -> Shape:
    """The shape of an operation on `a` and `b`."""
    rank = max(len(a), len(b))
    pairs = list(zip(_widened(a, rank), _widened(b, rank), strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        raise ModelError(f"shapes {list(a)} and {list(b)} cannot be broadcast to each other; the file is damaged")
    return tuple(y if x == 1 else x for x, y in pairs)


def _widened(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _chunks(node: Node, position: int) -> Chunks:
    """The elements of one input in the order in which they are read, one at each step."""
    out = node.output.shape
    shape = _widened(node.input(position).shape, len(out))
    strides = [0 if size == 1 else stride for size, stride in zip(shape, row_major_strides(shape), strict=True)]
    return strided(out, strides, position=position)
