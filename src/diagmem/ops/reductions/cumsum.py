"""CUMSUM: the sum of all elements up to each one along an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import SUFFIXES, CCall, Unsupported, by_type, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, Inputs, OpKind, Shapes, Values, input_at, only_axis
from diagmem.ops.numerics.fixed_point import wrapped
from diagmem.ops.numerics.quantised import Requantisation, scale_of, zero_point_of
from diagmem.ops.options import Table
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, ints, node_of
from diagmem.ops.signature import Signature

_FRACTION_BITS = 19
"""Bits behind the point that 8-bit numbers get before they are added up; sums of 16 of the largest wrap around."""


@dataclass(frozen=True, slots=True)
class CumSum:
    """Inputs: data, axis (constant, one number). `exclusive`: an element does not count for its own sum. `reverse`:
    sums begin at the end of the axis."""

    exclusive: bool = False
    reverse: bool = False


class CumSumKind(OpKind):
    names = ("CUMSUM",)
    tflm_agrees = True
    takes = Signature((2, 2), numbers=(1,), single=(1,))
    table = Table(CumSum, ("Exclusive", "Reverse"))

    def output_shapes(self, name: str, attributes: CumSum, inputs: Inputs) -> Shapes:
        _axis(inputs)
        return (input_at(inputs, 0).shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """Fibre by fibre, in the order of their first elements; along a fibre each element is read, then written."""
        outer, size, inner = walk_of(node)
        first = (np.arange(outer)[:, None] * size * inner + np.arange(inner)).reshape(-1)
        pitch = inner
        if node.attributes.reverse:
            first, pitch = first + (size - 1) * inner, -inner
        each = Runs.of(first, size, np.arange(outer * inner) * size, pitch=pitch)
        return Accesses(node.output.elems, (each, *(None for _ in node.inputs[1:])), (each,))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, dtype = inputs[0], node.output.dtype
        if dtype is DType.INT8:
            zero = zero_point_of(node.input(0))
            # TFLite Micro starts from a stored 0, which stands for minus the zero point.
            sums = wrapped(_sums(node, (data.astype(np.int64) - zero) << _FRACTION_BITS, -zero << _FRACTION_BITS))
            return (_output(node).apply(sums).astype(np.int8),)
        wide = data if dtype is DType.FLOAT32 else data.astype(np.int64)
        return (_sums(node, wide, 0).astype(dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.input(0).dtype, (node.output,))
        values_of(node.input(1))
        return by_type(node, dict.fromkeys((DType.INT8, DType.FLOAT32, DType.INT32), _call))

    def sample(self, name: str, draw: Draw) -> Node:
        """Any axis, either way round, with or without the element itself."""
        shape = draw.many(1, 5, draw.size)
        inputs = [activation(shape, draw.dtype()), ints(draw.axis(len(shape)))]
        return node_of(self, name, CumSum(draw.boolean(), draw.boolean()), inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return Fitting((DType.INT8, DType.FLOAT32, DType.INT32), gain=math.sqrt(walk_of(node)[1]), scaled=(DType.INT8,))


def _axis(inputs: Inputs) -> int:
    return only_axis(input_at(inputs, 1).ints, len(input_at(inputs, 0).shape))


def walk_of(node: Node) -> tuple[int, int, int]:
    """Elements of the axes before that which is summed, along it, and of those behind it."""
    shape, axis = node.input(0).shape, _axis(node.inputs)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _sums(node: Node, data: Array, start: int) -> Array:
    """One element after the other, for a float32 sum depends on the order."""
    moved = np.moveaxis(data, _axis(node.inputs), 0)
    moved = moved[::-1] if node.attributes.reverse else moved
    total: Array = np.full(moved.shape[1:], start, data.dtype)
    sums = np.empty_like(moved)
    for number, values in enumerate(moved):
        after = total + values
        sums[number] = total if node.attributes.exclusive else after
        total = after
    sums = sums[::-1] if node.attributes.reverse else sums
    return np.moveaxis(sums, 0, _axis(node.inputs))


def _output(node: Node) -> Requantisation:
    real = scale_of(node.input(0)) / (2**_FRACTION_BITS * scale_of(node.output))
    if real >= 1:
        raise Unsupported("an output scale that is far smaller than the input's; TensorFlow Lite refuses it too")
    return Requantisation.of([real], node.output)


def _call(node: Node) -> CCall:
    outer, size, inner = walk_of(node)
    is_scaled = node.output.dtype is DType.INT8
    fields = {"zero_point": zero_point_of(node.input(0)), "output": _output(node).c_struct()} if is_scaled else {}
    a, suffix = node.attributes, SUFFIXES[node.output.dtype]
    walk = {"outer": outer, "size": size, "inner": inner, "is_exclusive": int(a.exclusive)}
    struct = "cumsum_s8" if is_scaled else "cumsum"
    own, tensors = {**walk, "is_reverse": int(a.reverse), **fields}, (node.input(0), node.output)
    return kernel_call("cumsum", own, tensors, function=f"cumsum_{suffix}", struct=struct)


KIND = CumSumKind()
