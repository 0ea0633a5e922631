"""TRANSPOSE, REVERSE_V2, BROADCAST_TO, TILE, SPACE_TO_DEPTH, DEPTH_TO_SPACE: even walks over the input."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.errors import ModelError
from diagmem.model.graph import Nhwc, Node, row_major_strides
from diagmem.ops.kind import Inputs, Shapes, axis_of, input_at, known_ints, unless_computed
from diagmem.ops.loops.chunks import Chunks, StridedKind, Walk
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


class TransposeKind(StridedKind):
    """Inputs: data, permutation: axis a of the output is axis permutation[a] of the data."""

    names = ("TRANSPOSE",)
    tflm_agrees = True
    takes = Signature((2, 2), numbers=(1,))

    @unless_computed
    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        return (tuple(input_at(inputs, 0).shape[a] for a in _permutation(inputs)),)

    def walk(self, node: Node) -> Walk:
        strides = row_major_strides(node.input(0).shape)
        return Walk(node.output.shape, tuple(strides[a] for a in _permutation(node.inputs)))


def _permutation(inputs: Inputs) -> tuple[int, ...]:
    shape, given = input_at(inputs, 0).shape, known_ints(inputs, 1)
    permutation = tuple(axis_of(a, len(shape)) for a in given)
    if sorted(permutation) != list(range(len(shape))):
        raise ModelError(f"{list(given)} is no permutation of the axes of {list(shape)}; the file is damaged")
    return permutation


class ReverseKind(StridedKind):
    """Inputs: data, axes."""

    names = ("REVERSE_V2",)
    takes = Signature((2, 2), numbers=(1,))

    def walk(self, node: Node) -> Walk:
        shape, given = node.input(0).shape, known_ints(node.inputs, 1)
        turned = {axis_of(axis, len(shape)) for axis in given}
        strides = row_major_strides(shape)
        offset = sum((shape[axis] - 1) * strides[axis] for axis in turned)
        return Walk(shape, tuple(-s if axis in turned else s for axis, s in enumerate(strides)), offset)


class BroadcastToKind(StridedKind):
    """Inputs: data; the new shape (BROADCAST_TO), or how often each axis is repeated (TILE)."""

    names = ("BROADCAST_TO", "TILE")
    takes = Signature((2, 2), numbers=(1,))

    @unless_computed
    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        shape, given = input_at(inputs, 0).shape, known_ints(inputs, 1)
        if name == "TILE":
            if len(given) != len(shape) or any(count < 0 for count in given):
                raise ModelError(f"{list(given)} does not say how often to repeat {list(shape)}; the file is damaged")
            return (tuple(size * count for size, count in zip(shape, given, strict=True)),)
        widened = (1,) * (len(given) - len(shape)) + shape
        if len(widened) != len(given) or any(a not in (1, b) for a, b in zip(widened, given, strict=True)):
            raise ModelError(f"{list(shape)} cannot be repeated to make {list(given)}; the file is damaged")
        return (given,)

    def walk(self, node: Node) -> Walk:
        shape, given = node.input(0).shape, known_ints(node.inputs, 1)
        strides = row_major_strides(shape)
        if node.op.kind == "BROADCAST_TO":
            missing = len(given) - len(shape)
            steps = (0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
            return Walk(given, (0,) * missing + tuple(steps))
        sizes = tuple(n for pair in zip(given, shape, strict=True) for n in pair)
        return Walk(sizes, tuple(n for stride in strides for n in (0, stride)))


@dataclass(frozen=True, slots=True)
class SpaceDepth:
    block: int = 0


class SpaceDepthKind(StridedKind):
    """In order "reference" the output is walked forward; in "input_major" the input is."""

    names = ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
    orders = (Order.REFERENCE, Order.INPUT_MAJOR)
    tflm_agrees = True
    takes = Signature()
    table = Table(SpaceDepth, ("BlockSize",))

    def output_shapes(self, name: str, attributes: SpaceDepth, inputs: Inputs) -> Shapes:
        image, block = Nhwc.of(input_at(inputs, 0)), attributes.block
        if name == "SPACE_TO_DEPTH":
            if block < 1 or image.height % block or image.width % block:
                raise ModelError(f"blocks of {block} pixels do not tile {list(image)}; the file is damaged")
            return ((image.batch, image.height // block, image.width // block, image.depth * block**2),)
        if block < 1 or image.depth % block**2:
            raise ModelError(f"{image.depth} channels do not make blocks of {block} pixels; the file is damaged")
        return ((image.batch, image.height * block, image.width * block, image.depth // block**2),)

    def walk(self, node: Node) -> Walk:
        image, out, block = Nhwc.of(node.input(0)), Nhwc.of(node.output), node.attributes.block
        # The input's axes: batch, row of blocks, then row in block and block, one way or the other, row of a block.
        if node.op.kind == "SPACE_TO_DEPTH":
            axes = (image.batch, out.height, block, out.width, block * image.depth)
        else:
            axes = (image.batch, image.height, image.width, block, block * out.depth)
        swapped, strides = ((a[0], a[1], a[3], a[2], a[4]) for a in (axes, row_major_strides(axes)))
        return Walk(swapped, strides)

    def moves(self, node: Node, order: Order) -> Chunks:
        chunks = self.walk(node).chunks()
        return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.source)


KINDS = (TransposeKind(), ReverseKind(), BroadcastToKind(), SpaceDepthKind())
