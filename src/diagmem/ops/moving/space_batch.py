"""SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: blocks of pixels against the batch, with padding and cropping."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import IntArray, Node, Shape, row_major_strides
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Inputs, Shapes, input_at, known_ints, unless_computed
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind, gathered_call, outer_sum
from diagmem.ops.numerics.quantised import stored_zero
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of a block, and (before, after) of the padding or cropping, along each axis from 1 on."""

    sizes: tuple[int, ...]
    margins: tuple[tuple[int, int], ...]

    @property
    def pixels(self) -> int:
        return math.prod(self.sizes)


class SpaceBatchKind(RearrangeKind):
    """Inputs: data, block sizes, paddings or crops. In order "memcpy" pixels are copied whole, and BATCH_TO_SPACE_ND
    walks the input instead of the output."""

    names = ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
    orders = (Order.REFERENCE, Order.MEMCPY)
    takes = Signature((3, 3), numbers=(1, 2))

    @unless_computed
    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        spread = _batched if name == "SPACE_TO_BATCH_ND" else _spread
        return (spread(input_at(inputs, 0).shape, blocks_of(inputs)),)

    def moves(self, node: Node, order: Order) -> Chunks:
        blocks, shape, out = blocks_of(node.inputs), node.input(0).shape, node.output.shape
        to_batch = node.op.kind == "SPACE_TO_BATCH_ND"
        pixel = math.prod(shape[len(blocks.sizes) + 1 :])
        sources = _batched_sources(shape, out, blocks) if to_batch else outer_sum(*_spread_terms(shape, out, blocks))
        chunks = Chunks.of(sources, pixel)
        if order is Order.REFERENCE:
            return chunks
        return (chunks if to_batch else chunks.sorted_by(chunks.source)).moved_at_once()

    def fill(self, node: Node) -> int:
        return stored_zero(node.output)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        blocks = blocks_of(node.inputs)
        if node.op.kind == "BATCH_TO_SPACE_ND":
            shape, out = node.input(0).shape, node.output.shape
            return gathered_call(node, _spread_terms(shape, out, blocks), math.prod(shape[len(blocks.sizes) + 1 :]))
        return _to_batch_call(node, blocks)


def blocks_of(inputs: Inputs) -> Blocks:
    shape, sizes, margins = input_at(inputs, 0).shape, known_ints(inputs, 1), known_ints(inputs, 2)
    if (
        len(margins) != 2 * len(sizes)
        or len(sizes) >= len(shape)
        or min(sizes, default=1) < 1
        or min(margins, default=0) < 0
    ):
        raise ModelError(
            f"blocks {list(sizes)}, margins {list(margins)} do not suit {list(shape)}; the file is damaged"
        )
    return Blocks(sizes, tuple(zip(margins[::2], margins[1::2], strict=True)))


def _batched(shape: Shape, blocks: Blocks) -> Shape:
    padded = [size + sum(m) for size, m in zip(shape[1:], blocks.margins, strict=False)]
    if any(size % b for size, b in zip(padded, blocks.sizes, strict=True)):
        raise ModelError(f"blocks {list(blocks.sizes)} do not tile {padded} (padded); the file is damaged")
    sizes = (size // b for size, b in zip(padded, blocks.sizes, strict=True))
    return (shape[0] * blocks.pixels, *sizes, *shape[len(padded) + 1 :])


def _spread(shape: Shape, blocks: Blocks) -> Shape:
    sizes = [s * b - sum(m) for s, b, m in zip(shape[1:], blocks.sizes, blocks.margins, strict=False)]
    if shape[0] % blocks.pixels or min(sizes, default=1) < 1:
        raise ModelError(
            f"shape {list(shape)} cannot be spread into blocks {list(blocks.sizes)} less crops {list(blocks.margins)}; "
            "the file is damaged"
        )
    return (shape[0] // blocks.pixels, *sizes, *shape[len(sizes) + 1 :])


def _batched_sources(shape: Shape, out: Shape, blocks: Blocks) -> IntArray:
    """SPACE_TO_BATCH_ND: for each output pixel, the first element of the input pixel that it copies, or FILL.

    The output's batch is (place in block, batch), so the axes are: place along each axis, batch, pixel along each axis.
    """
    strides, rank = row_major_strides(shape), len(blocks.sizes)
    sources = np.arange(shape[0], dtype=np.int64).reshape((-1,) + (1,) * rank) * strides[0]
    for a, (block, (before, _)) in enumerate(zip(blocks.sizes, blocks.margins, strict=True)):
        place, pixel = np.arange(block, dtype=np.int64)[:, None], np.arange(out[a + 1], dtype=np.int64)
        index = pixel * block + place - before
        term = np.where((index >= 0) & (index < shape[a + 1]), index * strides[a + 1], FILL)
        along = [1] * (2 * rank + 1)
        along[a], along[rank + 1 + a] = term.shape
        sources = sources + term.reshape(along)
    return sources


def _spread_terms(shape: Shape, out: Shape, blocks: Blocks) -> list[IntArray]:
    """BATCH_TO_SPACE_ND: what each axis of the output adds to the first element of the input pixel that it copies."""
    strides = row_major_strides(shape)
    places = row_major_strides(blocks.sizes)
    terms = [np.arange(out[0], dtype=np.int64) * strides[0]]
    for a, (block, (before, _)) in enumerate(zip(blocks.sizes, blocks.margins, strict=True)):
        index = np.arange(out[a + 1], dtype=np.int64) + before
        terms.append(index % block * places[a] * out[0] * strides[0] + index // block * strides[a + 1])
    return terms


def _to_batch_call(node: Node, blocks: Blocks) -> CCall:
    """Heights stand along the axis that is last but one of those cut into blocks."""
    if len(blocks.sizes) > 2:
        raise Unsupported(f"blocks along {len(blocks.sizes)} axes; at most 2 are supported")
    missing, rank = 2 - len(blocks.sizes), len(blocks.sizes) + 1
    (block_h, block_w), margins = (1,) * missing + blocks.sizes, ((0, 0),) * missing + blocks.margins
    in_height, in_width = (1,) * missing + node.input(0).shape[1:rank]
    out_height, out_width = (1,) * missing + node.output.shape[1:rank]
    fields = {
        "element": node.output.dtype.size_bytes,
        "batches": node.input(0).shape[0],
        "in_height": in_height,
        "in_width": in_width,
        "out_height": out_height,
        "out_width": out_width,
        "block_h": block_h,
        "block_w": block_w,
        "pad_top": margins[0][0],
        "pad_left": margins[1][0],
        "depth": math.prod(node.input(0).shape[rank:]),
        "value": CTable("value", np.array([stored_zero(node.output)], node.output.dtype.numpy)),
    }
    return kernel_call("space_to_batch", fields, (node.input(0), node.output))


KIND = SpaceBatchKind()
