"""SLICE, STRIDED_SLICE: a box cut out of the input, with steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape, row_major_strides
from diagmem.ops.c_call import CCall, CRow
from diagmem.ops.kind import Inputs, Shapes, input_at, known_ints, unless_computed
from diagmem.ops.loops.chunks import Chunks, StridedKind, Walk, outer_sum
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class StridedSlice:
    """Bit i of a mask speaks of entry i of begin, end and strides. `offset`: end counts from begin. SLICE has none."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False


class StridedSliceKind(StridedKind):
    """Inputs: data, begin, and for SLICE the size, for STRIDED_SLICE end and strides. In order "memcpy" the rows of the
    last axis are copied whole, where its elements are neighbours."""

    names = parts = ("SLICE", "STRIDED_SLICE")
    table = {
        "STRIDED_SLICE": Table(
            StridedSlice, ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset")
        )
    }
    orders = (Order.REFERENCE, Order.MEMCPY)
    tflm_agrees = True

    def signature(self, name: str) -> Signature:
        count = 3 if name == "SLICE" else 4
        return Signature((count, count), numbers=tuple(range(1, count)))

    @unless_computed
    def output_shapes(self, name: str, attributes: StridedSlice | None, inputs: Inputs) -> Shapes:
        return (box_of(name, attributes, inputs).out_shape,)

    def walk(self, node: Node) -> Walk:
        box = box_of(node.op.kind, node.attributes, node.inputs)
        taken = list(zip(box.ranges, row_major_strides(node.input(0).shape), strict=True))
        offset = sum(r.start * stride for r, stride in taken)
        return Walk(box.sizes, tuple(r.step * stride for r, stride in taken), offset)

    def has_row_kernel(self, node: Node) -> bool:
        """Rows of an image, from top to bottom, and whatever of each."""
        box = unless_computed(box_of)(node.op.kind, node.attributes, node.inputs)
        is_image = len(node.input(0).shape) == 4 and node.input(0).shape[0] == 1
        return box is not None and is_image and box.sizes == node.output.shape and box.ranges[1].step > 0

    def c_row_call(self, node: Node) -> CCall:
        walk, rows = self.walk(node), box_of(node.op.kind, node.attributes, node.inputs).ranges[1]
        row_elems = node.input(0).elems // node.input(0).shape[1]
        row = Walk((1, 1, *walk.shape[2:]), walk.strides, walk.offset - rows.start * row_elems)
        taken = CRow(node.input(0), first=rows.start, step=rows.step)
        return replace(row.c_call(node), arguments=(taken, CRow(node.output)))

    def moves(self, node: Node, order: Order) -> Chunks:
        box = box_of(node.op.kind, node.attributes, node.inputs)
        if order is not Order.MEMCPY or not box.ranges or box.ranges[-1].step != 1:
            return super().moves(node, order)
        *outer, last = box.ranges
        rows = zip(outer, row_major_strides(node.input(0).shape), strict=False)
        starts = outer_sum(*(np.array(r, dtype=np.int64) * stride for r, stride in rows))
        return Chunks.of(starts + last.start, len(last)).moved_at_once()


@dataclass(frozen=True, slots=True)
class Box:
    """The input indices taken along each axis of the input, and the shape of what they make."""

    ranges: tuple[range, ...]
    out_shape: Shape

    @property
    def sizes(self) -> Shape:
        return tuple(len(r) for r in self.ranges)


def box_of(name: str, attributes: StridedSlice | None, inputs: Inputs) -> Box:
    shape = input_at(inputs, 0).shape
    bounds = [known_ints(inputs, position) for position in range(1, 3 if name == "SLICE" else 4)]
    return _plain_box(shape, *bounds) if attributes is None else _strided_box(attributes, shape, *bounds)


def _plain_box(shape: Shape, begin: tuple[int, ...], size: tuple[int, ...]) -> Box:
    """SLICE: size -1 means all the rest."""
    if len(begin) == len(size) == len(shape):
        ends = [n if s == -1 else b + s for n, b, s in zip(shape, begin, size, strict=True)]
        if all(0 <= b <= e <= n for n, b, e in zip(shape, begin, ends, strict=True)):
            ranges = tuple(range(b, e) for b, e in zip(begin, ends, strict=True))
            return Box(ranges, tuple(len(r) for r in ranges))
    raise ModelError(f"begin {list(begin)}, size {list(size)} do not lie in shape {list(shape)}; the file is damaged")


def _strided_box(
    attributes: StridedSlice, shape: Shape, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]
) -> Box:
    if not len(begin) == len(end) == len(strides) or 0 in strides:
        raise ModelError(
            f"begin {list(begin)}, end {list(end)}, strides {list(strides)}: as many of each, and no stride 0, "
            "are needed; the file is damaged"
        )
    ranges: list[range] = []
    out: list[int] = []
    for entry in _entries(attributes, len(shape), len(begin)):
        if entry is None:
            out.append(1)
        elif len(ranges) >= len(shape):
            raise ModelError(f"{len(begin)} slices for {len(shape)} axes of {list(shape)}; the file is damaged")
        elif entry < 0:
            ranges.append(range(shape[len(ranges)]))
            out.append(len(ranges[-1]))
        else:
            taken = _range(attributes, entry, shape[len(ranges)], begin[entry], end[entry], strides[entry])
            ranges.append(taken)
            if not attributes.shrink_axis_mask >> entry & 1:
                out.append(len(taken))
    return Box(tuple(ranges), tuple(out))


def _entries(attributes: StridedSlice, rank: int, count: int) -> list[int | None]:
    """What makes each axis, in order: entry i of begin, end and strides; -1 takes a whole axis; None is a new axis."""
    masks = attributes
    new = [bool(masks.new_axis_mask >> i & 1 and not masks.ellipsis_mask >> i & 1) for i in range(count)]
    ellipsis = next((i for i in range(count) if masks.ellipsis_mask >> i & 1), count)
    sliced = sum(1 for i in range(count) if not new[i] and i != ellipsis)
    entries: list[int | None] = []
    for i in range(count):
        entries += [-1] * (rank - sliced) if i == ellipsis else [None if new[i] else i]
    return entries + [-1] * (rank - sliced if ellipsis == count else 0)


def _range(attributes: StridedSlice, entry: int, size: int, begin: int, end: int, stride: int) -> range:
    """The indices that one entry takes from an axis; bounds are clamped as Python clamps those of its slices."""
    start, _, _ = slice(None if attributes.begin_mask >> entry & 1 else begin, None, stride).indices(size)
    if attributes.shrink_axis_mask >> entry & 1:
        if not 0 <= start < size:
            raise ModelError(f"index {begin} does not lie in an axis of {size}; the file is damaged")
        return range(start, start + 1)
    end += start if attributes.offset else 0
    _, stop, _ = slice(None, None if attributes.end_mask >> entry & 1 else end, stride).indices(size)
    return range(start, stop, stride)


KIND = StridedSliceKind()
