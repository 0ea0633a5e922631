"""Inputs that are repeated to match a larger shape, as numpy does: axes of size 1, and those missing in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape, row_major_strides
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CStruct, Unsupported, is_row_local, joined_axes
from diagmem.ops.kind import Inputs, OpKind, Shapes, input_at, swept
from diagmem.ops.loops.chunks import Chunks, strided
from diagmem.ops.orders import Order


class BroadcastKind(OpKind):
    """For each element of the output, in order, one element of each input is read."""

    takes_pitches = True

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes:
        return (broadcast_shape(input_at(inputs, 0).shape, input_at(inputs, 1).shape),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {position: _chunks(node, position).reads(position) for position, _ in node.activations()})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        sizes = node.input(position).dtype.size_bytes, node.output.dtype.size_bytes
        return _chunks(node, position).laid_out(node).separation(position, output, *sizes)

    def has_row_kernel(self, node: Node) -> bool:
        return is_row_local(node)


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
    return strided(node.output.shape, _strides(node, position), position=position)


def _strides(node: Node, position: int) -> list[int]:
    """Elements between neighbours of one input along each axis of the output; 0 where it is repeated."""
    shape = _widened(node.input(position).shape, len(node.output.shape))
    return [0 if size == 1 else stride for size, stride in zip(shape, row_major_strides(shape), strict=True)]


def pitches(node: Node, position: int) -> list[int]:
    """Elements between neighbours of one input along each axis of the output, in memory, where the input may be a view;
    0 where it is repeated."""
    tensor, rank = node.input(position), len(node.output.shape)
    shape, strides = _widened(tensor.shape, rank), (0,) * (rank - len(tensor.shape)) + tensor.strides
    return [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]


def outer_cut(node: Node, walk: Callable[[Node], CStruct]) -> tuple[Cut, ...]:
    """Several cores share the outermost axis of an element-wise walk."""
    try:
        sizes = walk(node).fields["size"]
    except Unsupported:
        return ()
    return (Cut(Along.PIXELS, next((size for size in sizes if size > 1), 1), can_hold=True),)


def c_broadcast(node: Node) -> CStruct:
    """The `diagmem_broadcast` of an operation on two inputs."""
    return c_walk(node.output.shape, pitches(node, 0), pitches(node, 1), node.output.strides)


def c_elementwise(node: Node) -> CStruct:
    """The `diagmem_broadcast` of an operation on one input."""
    shape = node.output.shape
    return c_walk(shape, node.input(0).strides, [0] * len(shape), node.output.strides)


def c_walk(shape: Shape, first: Sequence[int], second: Sequence[int], out: Sequence[int]) -> CStruct:
    """A `diagmem_broadcast`: the elements between neighbours along each axis, in either input and in the output."""
    names = ("size", "first", "second", "out")
    return CStruct("diagmem_broadcast", dict(zip(names, joined_axes(4, shape, first, second, out), strict=True)))
