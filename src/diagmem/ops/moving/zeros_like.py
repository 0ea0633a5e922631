"""ZEROS_LIKE, SHAPE, RANK: what is known without a look at the input's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CTable, kernel_call
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind
from diagmem.ops.options import TYPE_CODES, BuiltinOptions
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature

_SHAPE_TYPES = {TYPE_CODES[dtype]: dtype for dtype in (DType.INT32, DType.INT64)}
"""TFLite's code of a type -> the type that sizes may have."""


_OF_SHAPES = ("SHAPE", "RANK")


@dataclass(frozen=True, slots=True)
class Known:
    """`out_type`: the type of the sizes that SHAPE gives."""

    out_type: DType = DType.INT32


class ZerosLikeKind(RearrangeKind):
    names = ("ZEROS_LIKE", "SHAPE", "RANK")

    def decode(self, name: str, options: Any) -> Known:
        if options is None or name != "SHAPE":
            return Known()
        # An absent field is written as float32's code, and means 32 bits.
        code = options.OutType() or TYPE_CODES[DType.INT32]
        if code not in _SHAPE_TYPES:
            raise ModelError(f"{name}: output type code {code} is neither int32 nor int64; the file is damaged")
        return Known(_SHAPE_TYPES[code])

    def encode(self, node: Node) -> BuiltinOptions | None:
        if node.op.kind != "SHAPE":
            return None
        return BuiltinOptions("ShapeOptions", {"OutType": TYPE_CODES[node.attributes.out_type]})

    def signature(self, name: str) -> Signature:
        made = {"SHAPE": (DType.INT32, DType.INT64), "RANK": (DType.INT32,)}.get(name)
        return Signature(made={} if made is None else dict.fromkeys(DType, made))

    def output_shapes(self, name: str, attributes: Known, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape = input_at(inputs, 0).shape
        return ({"SHAPE": (len(shape),), "RANK": ()}.get(name, shape),)

    def chunks(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(FILL, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (_values(node),)

    def c_call(self, node: Node) -> CCall:
        values = CTable("values", _values(node).reshape(-1)) if node.op.kind in _OF_SHAPES else None
        return kernel_call("known", {"bytes": node.output.size_bytes, "values": values}, (node.output,))

    def sample(self, name: str, draw: Draw) -> Node:
        """Of any shape and type."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        out_type = draw.choice((DType.INT32, DType.INT64))
        attributes = Known(out_type) if name == "SHAPE" else Known()
        made = {"SHAPE": out_type, "RANK": DType.INT32}.get(name, dtype)
        return node_of(self, name, attributes, [activation(shape, dtype)], (made,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting((DType.INT8, DType.FLOAT32), draws_output_types=node.op.kind in _OF_SHAPES)


def _values(node: Node) -> Array:
    dtype, shape = node.output.dtype.numpy, node.input(0).shape
    if node.op.kind in _OF_SHAPES:
        return np.array(shape if node.op.kind == "SHAPE" else len(shape), dtype)
    return np.zeros(node.output.shape, dtype)


KIND = ZerosLikeKind()
