"""SPACE_TO_DEPTH, DEPTH_TO_SPACE: square blocks of pixels against channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagmem.model.errors import ModelError
from diagmem.model.graph import Nhwc, Node, Shape, Tensor, row_major_strides
from diagmem.ops.kind import input_at
from diagmem.ops.loops.chunks import Chunks, StridedKind, Walk
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, activation, node_of
from diagmem.ops.signature import Signature


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

    def output_shapes(self, name: str, attributes: SpaceDepth, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
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

    def chunks(self, node: Node, order: Order) -> Chunks:
        chunks = self.walk(node).chunks()
        return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.source)

    def sample(self, name: str, draw: Draw) -> Node:
        """Blocks of one to three pixels a side, either way."""
        dtype, block = draw.dtype(), draw.small()
        batch, height, width, depth = (draw.small() for _ in range(4))
        if name == "SPACE_TO_DEPTH":
            shape = (batch, height * block, width * block, depth)
        else:
            shape = (batch, height, width, depth * block**2)
        return node_of(self, name, SpaceDepth(block), [activation(shape, dtype)], (dtype,))


KIND = SpaceDepthKind()
