"""RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes under another shape. DENSIFY: under the same one, for what a file has
stored sparsely is dense once it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Shape
from diagmem.model.schedule import Cut
from diagmem.ops.c_call import CCall, kernel_call
from diagmem.ops.kind import (
    Array,
    Computed,
    Inputs,
    Shapes,
    Values,
    axis_of,
    input_at,
    known_ints,
    only_axis,
    unless_computed,
)
from diagmem.ops.loops.chunks import Chunks, RearrangeKind, StridedKind, Walk
from diagmem.ops.options import BuiltinOptions
from diagmem.ops.orders import Order, Variant
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Reshape:
    """`squeeze_dims`: the axes that SQUEEZE drops, all of size 1 if empty. `new_shape` counts for RESHAPE where no
    second input gives the shape."""

    squeeze_dims: tuple[int, ...] = ()
    new_shape: Shape | None = None


class ReshapeKind(RearrangeKind):
    """In order "alias" the output lies where the input lies and nothing moves; elsewhere it is copied forward."""

    names = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "DENSIFY")
    orders = (Order.ALIAS, Order.REFERENCE, Order.MEMCPY)
    tflm_agrees = True
    int8_version = 1
    is_alias = True

    def decode(self, name: str, options: Any) -> Reshape:
        if options is None:
            return Reshape()
        if name == "SQUEEZE":
            return Reshape(squeeze_dims=tuple(options.SqueezeDims(i) for i in range(options.SqueezeDimsLength())))
        if name == "RESHAPE" and not options.NewShapeIsNone():
            return Reshape(new_shape=tuple(options.NewShape(i) for i in range(options.NewShapeLength())))
        return Reshape()

    def encode(self, node: Node) -> BuiltinOptions | None:
        if node.op.kind == "SQUEEZE":
            return BuiltinOptions("SqueezeOptions", {"SqueezeDims": node.attributes.squeeze_dims})
        if node.attributes.new_shape is None:
            return None
        return BuiltinOptions("ReshapeOptions", {"NewShape": node.attributes.new_shape})

    def signature(self, name: str) -> Signature:
        least, most = {"RESHAPE": (1, 2), "EXPAND_DIMS": (2, 2)}.get(name, (1, 1))
        return Signature((least, most), numbers=tuple(range(1, most)), single=(1,) if name == "EXPAND_DIMS" else ())

    @unless_computed
    def output_shapes(self, name: str, attributes: Reshape, inputs: Inputs) -> Shapes:
        if name == "DENSIFY":
            return (input_at(inputs, 0).shape,)
        return ({"RESHAPE": _reshaped, "SQUEEZE": _squeezed, "EXPAND_DIMS": _expanded}[name](attributes, inputs),)

    def can_make(self, node: Node) -> bool:
        return node.input(0).elems == node.output.elems

    def moves(self, node: Node, order: Order) -> Chunks:
        if node.input(0).elems != node.output.elems:
            raise ModelError(f"{node.label}: its input and output differ in element count; the file is damaged")
        chunks = Chunks.of(0, node.output.elems)
        return chunks.moved_at_once() if order is Order.MEMCPY else chunks

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (inputs[0].reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        return kernel_call("reshape", {"bytes": node.output.size_bytes}, (node.input(0), node.output))


def _reshaped(attributes: Reshape, inputs: Inputs) -> Shape:
    given = len(inputs) > 1 and inputs[1] is not None
    wanted = known_ints(inputs, 1) if given else attributes.new_shape
    if wanted is None:
        raise Computed("its new shape is not in the file")
    elems, known = input_at(inputs, 0).elems, math.prod(size for size in wanted if size != -1)
    shape = tuple(elems // max(1, known) if size == -1 else size for size in wanted)
    if wanted.count(-1) > 1 or min(shape, default=1) < 0 or math.prod(shape) != elems:
        raise ModelError(
            f"shape {list(input_at(inputs, 0).shape)} cannot become {list(wanted)}: the element counts differ"
        )
    return shape


def _squeezed(attributes: Reshape, inputs: Inputs) -> Shape:
    shape = input_at(inputs, 0).shape
    dropped = {axis_of(axis, len(shape)) for axis in attributes.squeeze_dims}
    if any(shape[axis] != 1 for axis in dropped):
        raise ModelError(f"axes {sorted(dropped)} of {list(shape)} are not all of size 1; the file is damaged")
    return tuple(s for a, s in enumerate(shape) if (a not in dropped if attributes.squeeze_dims else s != 1))


def _expanded(attributes: Reshape, inputs: Inputs) -> Shape:
    shape, axes = input_at(inputs, 0).shape, known_ints(inputs, 1)
    axis = only_axis(axes, len(shape) + 1)
    return (*shape[:axis], 1, *shape[axis:])


class VariableKind(StridedKind):
    """A copy, element by element from the first on: a value may lie over the variable that it is put into, or above."""

    names = ("READ_VARIABLE", "ASSIGN_VARIABLE")
    is_copy = True
    takes = Signature()

    def only_moves(self, name: str) -> bool:
        """State changes from run to run, though no element moves."""
        return False

    def walk(self, node: Node) -> Walk:
        return Walk((node.output.elems,), (1,))

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """State is for one core."""
        return ()


KINDS = (ReshapeKind(), VariableKind())
