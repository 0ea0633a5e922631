"""SPLIT, SPLIT_V: the input cut along an axis into several outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CPointers, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import axis_of, constant_ints, input_at, only_axis
from diagmem.ops.loops.chunks import COMPUTED, Chunks, RearrangeKind
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, ints, node_of
from diagmem.ops.signature import MANY, Signature

MOST_OUTPUTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Split:
    """Inputs of SPLIT: axis, data. Inputs of SPLIT_V: data, sizes along the axis (one may be -1: the rest), axis."""

    num_splits: int = 0


class SplitKind(RearrangeKind):
    """The input is walked forward, and one output after the other gets its share of a row."""

    names = ("SPLIT", "SPLIT_V")
    tflm_agrees = True
    table = Table(Split, ("NumSplits",))

    def signature(self, name: str) -> Signature:
        if name == "SPLIT":
            return Signature((2, 2), (1, MANY), data=1, numbers=(0,), single=(0,))
        return Signature((3, 3), (1, MANY), numbers=(1, 2), single=(2,))

    def output_shapes(self, name: str, attributes: Split, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...] | None:
        cut = _cut(name, attributes, inputs)
        if cut is None:
            return None
        shape, (axis, sizes) = input_at(inputs, _data(name)).shape, cut
        return tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)

    def chunks(self, node: Node, order: Order) -> Chunks | None:
        cut = _cut(node.op.kind, node.attributes, node.inputs)
        if cut is None:
            return None
        position, (axis, sizes) = _data(node.op.kind), cut
        shape = node.input(position).shape
        lengths = np.array(sizes, dtype=np.int64) * math.prod(shape[axis + 1 :])
        rows = np.arange(math.prod(shape[:axis]), dtype=np.int64)[:, None]
        starts = rows * math.prod(shape[axis:]) + np.cumsum(lengths) - lengths
        return Chunks.of(starts, lengths, position=position, output=np.arange(len(lengths)))

    def c_call(self, node: Node) -> CCall:
        cut = _cut(node.op.kind, node.attributes, node.inputs)
        if cut is None:
            raise Unsupported(COMPUTED)
        data, (axis, sizes) = node.input(_data(node.op.kind)), cut
        return split_call(node, data, [size * math.prod(data.shape[axis + 1 :]) for size in sizes])

    def sample(self, name: str, draw: Draw) -> Node:
        """Equal parts and given sizes, along any axis, counted from either end."""
        shape, dtype = list(draw.shape(least_axes=1)), draw.dtype()
        axis = draw.axis(len(shape))
        if name == "SPLIT":
            parts = draw.integer(1, 5)
            shape[axis] = parts * draw.integer(1, 3)
            return node_of(self, name, Split(parts), [ints(axis), activation(shape, dtype)], (dtype,))
        sizes = draw.many(1, 5, draw.small)
        shape[axis] = sum(sizes)
        if draw.boolean():
            sizes[draw.integer(0, len(sizes))] = -1
        inputs = [activation(shape, dtype), ints(sizes), ints(axis)]
        return node_of(self, name, Split(len(sizes)), inputs, (dtype,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(data=1 if node.op.kind == "SPLIT" else 0)


def split_call(node: Node, data: Tensor, widths: Sequence[int]) -> CCall:
    """`widths`: elements that each output gets of a row."""
    require_types(data.dtype, node.outputs)
    fields = {
        "element": data.dtype.size_bytes,
        "rows": data.elems // max(1, sum(widths)),
        "count": len(widths),
        "width": CTable("width", np.array(widths, np.int32)),
    }
    return kernel_call("split", fields, (data, CPointers(node.outputs, is_written=True)))


def _data(name: str) -> int:
    return 1 if name == "SPLIT" else 0


def _cut(name: str, attributes: Split, inputs: Sequence[Tensor | None]) -> tuple[int, tuple[int, ...]] | None:
    """The axis, and the outputs' sizes along it; None where they are not constant in the file."""
    axes = constant_ints(inputs, 0 if name == "SPLIT" else 2)
    sizes = constant_ints(inputs, 1) if name == "SPLIT_V" else ()
    if axes is None or sizes is None:
        return None
    shape = input_at(inputs, _data(name)).shape
    axis = axis_of(only_axis(axes), len(shape))
    return axis, _equal(shape[axis], attributes.num_splits) if name == "SPLIT" else _given(shape[axis], sizes)


def _equal(whole: int, parts: int) -> tuple[int, ...]:
    if not 1 <= parts <= MOST_OUTPUTS or whole % parts:
        raise ModelError(f"an axis of {whole} cannot be split into {parts} equal parts; the file is damaged")
    return (whole // parts,) * parts


def _given(whole: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    rest = whole - sum(size for size in sizes if size != -1)
    found = tuple(rest if size == -1 else size for size in sizes)
    if sizes.count(-1) > 1 or min(found, default=0) < 0 or sum(found) != whole:
        raise ModelError(f"an axis of {whole} cannot be split into sizes {list(sizes)[:8]}; the file is damaged")
    return found


KIND = SplitKind()
