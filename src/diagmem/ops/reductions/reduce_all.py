"""REDUCE_ALL, REDUCE_ANY: whether all truths along the reduced axes hold, or any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses
from diagmem.ops.c_call import CCall, CStruct, require_types, values_of
from diagmem.ops.kind import Array, OpKind, Values, axis_of, held_separation, input_at, swept
from diagmem.ops.loops.fibres import c_fibres, fibre_reads, fibre_separation, kept_shape
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, ints, node_of
from diagmem.ops.signature import Signature

_FUNCTIONS = {"REDUCE_ALL": np.all, "REDUCE_ANY": np.any}


@dataclass(frozen=True, slots=True)
class ReduceAll:
    """Inputs: truths, axes (constant; negative ones count from the end)."""

    keep_dims: bool = False


class ReduceAllKind(OpKind):
    names = tuple(_FUNCTIONS)
    takes = Signature((2, 2), numbers=(1,), made=dict.fromkeys(DType, (DType.BOOL,)))
    needs = Fitting((DType.BOOL,), scaled=())
    table = Table(ReduceAll, ("KeepDims",), "ReducerOptions")

    def output_shapes(self, name: str, attributes: ReduceAll, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (kept_shape(input_at(inputs, 0).shape, _axes(inputs), attributes.keep_dims),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: fibre_reads(node.input(0).shape, _axes(node.inputs))})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return fibre_separation(node, _axes(node.inputs)) if position == 0 else held_separation(node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        found = _FUNCTIONS[node.op.kind](inputs[0], axis=tuple(sorted(_axes(node.inputs))))
        return (np.reshape(found, node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        data = node.input(0)
        require_types(DType.BOOL, (data, node.output))
        values_of(node.input(1))
        fibres = c_fibres(data.shape, data.strides, _axes(node.inputs))
        parameters = CStruct("diagmem_reduce_all_params", {"fibres": fibres})
        return CCall("reduce_all.c", f"diagmem_{node.op.kind.lower()}", parameters, (data, node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Any axes, none, all, named twice or from the end."""
        shape = draw.choice((draw.image(), tuple(draw.many(1, 5, draw.size))))
        axes = draw.many(0, 5, lambda: draw.axis(len(shape)))
        inputs = [activation(shape, DType.BOOL), ints(axes)]
        return node_of(self, name, ReduceAll(draw.boolean()), inputs, (DType.BOOL,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Mostly what does not decide the answer."""
        if position != 0:
            return None
        count = tensor.elems // max(1, node.output.elems)
        found: Array = rng.random(tensor.shape) < 1 / max(2, count)
        return found if node.op.kind == "REDUCE_ANY" else ~found


def _axes(inputs: Sequence[Tensor | None]) -> frozenset[int]:
    data, axes = input_at(inputs, 0), input_at(inputs, 1)
    return frozenset(axis_of(axis, len(data.shape)) for axis in axes.ints)


KIND = ReduceAllKind()
