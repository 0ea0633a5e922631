"""FILL, RANGE, ZEROS_LIKE, SHAPE, RANK, ONE_HOT, BROADCAST_ARGS: tensors made of a shape and a few numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, Unsupported, element_code, kernel_call, require_types
from diagmem.ops.kind import (
    Array,
    Computed,
    Inputs,
    OpKind,
    Shapes,
    Values,
    input_at,
    known_ints,
    swept,
    unless_computed,
)
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind, strided
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.signature import Signature


class FillKind(OpKind):
    """Inputs: the new shape, the value."""

    names = ("FILL",)
    takes = Signature((2, 2), data=1, numbers=(0,), single=(1,))

    @unless_computed
    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        return (known_ints(inputs, 0),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {1: Runs.of(0, 1, 0)})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.full(node.output.shape, inputs[1].reshape(())),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(1),))
        fields = {"element": node.output.dtype.size_bytes, "count": node.output.elems}
        return kernel_call("fill", fields, (node.input(1), node.output))


MOST_NUMBERS = 1 << 20


class NumberRangeKind(RearrangeKind):
    """Inputs: the first number, the end, which is not reached, and the distance. All are constant where there is a
    kernel: models compute shapes and places with it."""

    names = ("RANGE",)
    takes = Signature((3, 3), all_alike=True, single=(0, 1, 2))

    @unless_computed
    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        tensors = [input_at(inputs, position) for position in range(3)]
        if any(t.data is None for t in tensors):
            raise Computed("its numbers are computed")
        if any(t.elems != 1 for t in tensors):
            raise ModelError("a range has a first number, an end and a distance, and not several of any")
        first, end, step = (float(np.asarray(t.data).reshape(())) for t in tensors)
        count = np.ceil((end - first) / step) if step else np.inf
        if not count < MOST_NUMBERS:
            raise ModelError(f"numbers from {first:g} to {end:g} by {step:g} have no end; the file is damaged")
        return ((max(0, int(count)),),)

    def moves(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(FILL, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        first, _, step = (np.asarray(values).reshape(()) for values in inputs)
        found = first + np.arange(node.output.elems).astype(first.dtype) * step
        return (found.astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        given = [node.input(position).data for position in range(3)]
        if any(values is None for values in given):
            raise Unsupported("numbers that are computed; supported: constants")
        values = CTable("values", self.reference(node, given)[0])
        return kernel_call("known", {"bytes": node.output.size_bytes, "values": values}, (node.output,))


_OF_SHAPES = ("SHAPE", "RANK")


@dataclass(frozen=True, slots=True)
class Known:
    """`out_type`: the type of the sizes that SHAPE gives."""

    out_type: DType = DType.INT32


class ZerosLikeKind(RearrangeKind):
    names = ("ZEROS_LIKE", "SHAPE", "RANK")
    table = {**dict.fromkeys(names, Table(Known, name=None)), "SHAPE": Table(Known, ("OutType",))}
    reads_only_shapes = True

    def decode(self, name: str, options: Any) -> Any:
        """An absent type is written as float32's code, and means 32 bits."""
        is_absent = name == "SHAPE" and options is not None and not options.OutType()
        return Known() if is_absent else super().decode(name, options)

    def signature(self, name: str) -> Signature:
        made = {"SHAPE": (DType.INT32, DType.INT64), "RANK": (DType.INT32,)}.get(name)
        return Signature(made={} if made is None else dict.fromkeys(DType, made))

    def output_shapes(self, name: str, attributes: Known, inputs: Inputs) -> Shapes:
        shape = input_at(inputs, 0).shape
        return ({"SHAPE": (len(shape),), "RANK": ()}.get(name, shape),)

    def moves(self, node: Node, order: Order) -> Chunks:
        return Chunks.of(FILL, node.output.elems)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (_values(node),)

    def c_call(self, node: Node) -> CCall:
        values = CTable("values", _values(node).reshape(-1)) if node.op.kind in _OF_SHAPES else None
        return kernel_call("known", {"bytes": node.output.size_bytes, "values": values}, (node.output,))


def _values(node: Node) -> Array:
    dtype, shape = node.output.dtype.numpy, node.input(0).shape
    if node.op.kind in _OF_SHAPES:
        return np.array(shape if node.op.kind == "SHAPE" else len(shape), dtype)
    return np.zeros(node.output.shape, dtype)


@dataclass(frozen=True, slots=True)
class OneHot:
    """Inputs: indices, depth (constant), the value that is on, the value that is off. `axis`: where the new axis
    stands."""

    axis: int = 0


class OneHotKind(OpKind):
    names = ("ONE_HOT",)
    takes = Signature((4, 4), data=2, alike=(3,), numbers=(0, 1), single=(1, 2, 3))
    table = Table(OneHot, ("Axis",))

    @unless_computed
    def output_shapes(self, name: str, attributes: OneHot, inputs: Inputs) -> Shapes:
        depth, shape = known_ints(inputs, 1), input_at(inputs, 0).shape
        if len(depth) != 1 or depth[0] < 0 or not -1 <= attributes.axis <= len(shape):
            raise ModelError(f"depth {list(depth)} or axis {attributes.axis} is out of range; the file is damaged")
        axis = attributes.axis if attributes.axis >= 0 else len(shape)
        return ((*shape[:axis], depth[0], *shape[axis:]),)

    def can_make(self, node: Node) -> bool:
        shape, made, axis = node.input(0).shape, node.output.shape, node.attributes.axis
        axis = axis if axis >= 0 else len(shape)
        return -1 <= node.attributes.axis <= len(shape) and (*made[:axis], *made[axis + 1 :]) == shape

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: _chunks(node).reads(0)})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        indices, _, on, off = inputs
        outer, depth, inner = _sizes(node)
        is_on = indices.reshape(outer, 1, inner) == np.arange(depth).reshape(1, depth, 1)
        return (np.where(is_on, on.reshape(()), off.reshape(())).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        indices, on, off = node.input(0), node.input(2), node.input(3)
        require_types(node.output.dtype, (on, off))
        outer, depth, inner = _sizes(node)
        fields = {
            "index_type": element_code(indices.dtype),
            "element": node.output.dtype.size_bytes,
            "outer": outer,
            "depth": depth,
            "inner": inner,
        }
        return kernel_call("one_hot", fields, (indices, on, off, node.output))


def _sizes(node: Node) -> tuple[int, int, int]:
    """Of the axes before the new one, of the new one, and of those behind it."""
    shape, axis = node.output.shape, node.attributes.axis
    axis = axis if axis >= 0 else len(shape) - 1
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _chunks(node: Node) -> Chunks:
    """The indices in the order in which they are read."""
    outer, depth, inner = _sizes(node)
    return strided((outer, depth, inner), (inner, 0, 1))


class BroadcastArgsKind(OpKind):
    """Inputs: two shapes, which need not have the same number of axes."""

    names = ("BROADCAST_ARGS",)
    takes = Signature((2, 2), numbers=(0, 1))

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        first, second = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if len(first) != 1 or len(second) != 1:
            raise ModelError(f"{list(first)} and {list(second)} numbers are no two shapes; the file is damaged")
        return ((max(*first, *second),),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {p: _shape_chunks(node, p).reads(p) for p, _ in node.activations()})

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        rank = node.output.elems
        first, second = (np.concatenate([np.ones(rank - len(x), x.dtype), x]) for x in inputs)
        return (np.where(first == 1, second, first),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(DType.INT32, tensors)
        fields = {"first": tensors[0].elems, "second": tensors[1].elems}
        return kernel_call("broadcast_args", fields, tensors)


def _shape_chunks(node: Node, position: int) -> Chunks:
    """One axis after the other, those of the shorter shape behind those that it lacks."""
    given = node.input(position).elems
    return Chunks.of([FILL, 0], [node.output.elems - given, given], position=position)


KINDS = (FillKind(), NumberRangeKind(), ZerosLikeKind(), OneHotKind(), BroadcastArgsKind())
