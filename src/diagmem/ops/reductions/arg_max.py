"""ARG_MAX, ARG_MIN: where along an axis the largest or smallest element stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, element_code, kernel_call, values_of
from diagmem.ops.kind import Array, OpKind, Values, axis_of, held_separation, input_at, only_axis, swept
from diagmem.ops.loops.fibres import fibre_reads, fibre_separation, kept_shape
from diagmem.ops.options import TYPE_CODES, BuiltinOptions
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, ints, node_of
from diagmem.ops.signature import Signature

_OUTPUT_TYPES = {2: DType.INT32, 4: DType.INT64}
"""TFLite's code of a type -> the type that indices may have."""


@dataclass(frozen=True, slots=True)
class ArgMax:
    """Inputs: data, axis (constant, one number)."""

    output_type: DType = DType.INT64


class ArgMaxKind(OpKind):
    names = ("ARG_MAX", "ARG_MIN")
    takes = Signature((2, 2), numbers=(1,), single=(1,), made=dict.fromkeys(DType, (DType.INT32, DType.INT64)))
    needs = Fitting(draws_output_types=True)

    def decode(self, name: str, options: Any) -> ArgMax:
        if options is None:
            return ArgMax()
        code = options.OutputType()
        if code not in _OUTPUT_TYPES:
            raise ModelError(f"{name}: output type code {code} is neither int32 nor int64; the file is damaged")
        return ArgMax(_OUTPUT_TYPES[code])

    def encode(self, node: Node) -> BuiltinOptions:
        table = "ArgMaxOptions" if node.op.kind == "ARG_MAX" else "ArgMinOptions"
        return BuiltinOptions(table, {"OutputType": TYPE_CODES[node.attributes.output_type]})

    def output_shapes(self, name: str, attributes: ArgMax, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (kept_shape(input_at(inputs, 0).shape, _axes(inputs), keep_dims=False),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: fibre_reads(node.input(0).shape, _axes(node.inputs))})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return fibre_separation(node, _axes(node.inputs)) if position == 0 else held_separation(node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        (axis,) = _axes(node.inputs)
        found: Array = (np.argmax if node.op.kind == "ARG_MAX" else np.argmin)(inputs[0], axis=axis)
        return (np.reshape(found, node.output.shape).astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        values_of(node.input(1))
        shape, (axis,) = node.input(0).shape, _axes(node.inputs)
        fields = {
            "outer": math.prod(shape[:axis]),
            "size": shape[axis],
            "inner": math.prod(shape[axis + 1 :]),
            "type": element_code(node.input(0).dtype),
            "is_max": int(node.op.kind == "ARG_MAX"),
            "index_type": element_code(node.output.dtype),
        }
        return kernel_call("arg_max", fields, (node.input(0), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Any axis; the indices that come out are wider than what went in."""
        shape = draw.many(1, 5, draw.size)
        out_dtype = draw.choice((DType.INT32, DType.INT64))
        inputs = [activation(shape, draw.dtype()), ints(draw.axis(len(shape)))]
        return node_of(self, name, ArgMax(out_dtype), inputs, (out_dtype,))


def _axes(inputs: Sequence[Tensor | None]) -> tuple[int]:
    return (axis_of(only_axis(input_at(inputs, 1).ints), len(input_at(inputs, 0).shape)),)


KIND = ArgMaxKind()
