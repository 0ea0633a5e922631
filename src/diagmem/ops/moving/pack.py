"""PACK, UNPACK: tensors stacked along a new axis, and taken apart again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape, Tensor, row_major_strides
from diagmem.ops.c_call import CCall
from diagmem.ops.kind import axis_of, input_at
from diagmem.ops.loops.chunks import Chunks, RearrangeKind
from diagmem.ops.moving.concatenation import concatenation_call
from diagmem.ops.moving.split import MOST_OUTPUTS, split_call
from diagmem.ops.options import BuiltinOptions
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, activation, constant, node_of
from diagmem.ops.signature import MANY, Signature


@dataclass(frozen=True, slots=True)
class Pack:
    """`count` tensors lie along `axis` of the stack."""

    axis: int = 0
    count: int = 0


class PackKind(RearrangeKind):
    """In order "reference" the stack is walked forward; in "tensor_major" one tensor is finished before the next."""

    names = ("PACK", "UNPACK")
    orders = (Order.REFERENCE, Order.TENSOR_MAJOR)

    def decode(self, name: str, options: Any) -> Pack:
        if options is None:
            return Pack()
        return Pack(options.Axis(), options.ValuesCount() if name == "PACK" else options.Num())

    def encode(self, node: Node) -> BuiltinOptions:
        a = node.attributes
        if node.op.kind == "PACK":
            return BuiltinOptions("PackOptions", {"Axis": a.axis, "ValuesCount": a.count})
        return BuiltinOptions("UnpackOptions", {"Axis": a.axis, "Num": a.count})

    def signature(self, name: str) -> Signature:
        return Signature((1, MANY), all_alike=True) if name == "PACK" else Signature(outputs=(1, MANY))

    def output_shapes(self, name: str, attributes: Pack, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (_stacked if name == "PACK" else _unstacked)(attributes, inputs)

    def chunks(self, node: Node, order: Order) -> Chunks:
        stack = node.output.shape if node.op.kind == "PACK" else node.input(0).shape
        axis = axis_of(node.attributes.axis, len(stack))
        tensors = np.arange(stack[axis], dtype=np.int64)
        rows = np.arange(math.prod(stack[:axis]), dtype=np.int64)[:, None]
        length = math.prod(stack[axis + 1 :])
        if node.op.kind == "PACK":
            chunks = Chunks.of(rows * length, length, position=tensors)
            return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.position)
        chunks = Chunks.of((rows * len(tensors) + tensors) * length, length, output=tensors)
        return chunks if order is Order.REFERENCE else chunks.sorted_by(chunks.output)

    def c_call(self, node: Node) -> CCall:
        if node.op.kind == "PACK":
            axis, shape = axis_of(node.attributes.axis, len(node.output.shape)), node.input(0).shape
            strides = row_major_strides(shape)[:axis]
            return concatenation_call(node, axis, [shape[axis:]] * len(node.inputs), [strides] * len(node.inputs))
        data = node.input(0)
        axis = axis_of(node.attributes.axis, len(data.shape))
        return split_call(node, data, [math.prod(data.shape[axis + 1 :])] * len(node.outputs))

    def sample(self, name: str, draw: Draw) -> Node:
        """One to four tensors along any axis, counted from either end; some that are stacked are constant."""
        shape, dtype, count = draw.shape()[:5], draw.dtype(), draw.integer(1, 5)
        axis = draw.axis(len(shape) + 1)
        if name == "PACK":
            places = [draw.choice((activation, activation, constant)) for _ in range(count)]
            return node_of(self, name, Pack(axis, count), [place(shape, dtype) for place in places], (dtype,))
        at = axis % (len(shape) + 1)
        data = activation((*shape[:at], count, *shape[at:]), dtype)
        return node_of(self, name, Pack(axis, count), [data], (dtype,))


def _stacked(attributes: Pack, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
    shapes = {input_at(inputs, position).shape for position in range(max(1, len(inputs)))}
    if len(shapes) > 1 or attributes.count != len(inputs):
        raise ModelError(
            f"{attributes.count} tensors of one shape are to be stacked, {len(inputs)} of {len(shapes)} shapes are "
            "given; the file is damaged"
        )
    shape = shapes.pop()
    axis = axis_of(attributes.axis, len(shape) + 1)
    return ((*shape[:axis], len(inputs), *shape[axis:]),)


def _unstacked(attributes: Pack, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
    shape, count = input_at(inputs, 0).shape, attributes.count
    axis = axis_of(attributes.axis, len(shape))
    if shape[axis] != count or count > MOST_OUTPUTS:
        raise ModelError(f"axis {axis} of {list(shape)} cannot be taken apart into {count}; the file is damaged")
    return ((*shape[:axis], *shape[axis + 1 :]),) * count


KIND = PackKind()
