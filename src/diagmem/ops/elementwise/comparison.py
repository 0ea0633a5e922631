"""Comparisons, LOGICAL_AND, LOGICAL_OR, SELECT_V2: truths, and what they choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import CCall, CStruct, Unsupported, element_code, joined_axes, kernel_call, require_types
from diagmem.ops.kind import Array, Inputs, Shapes, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast, pitches
from diagmem.ops.numerics.fixed_point import Multiplier, rescale
from diagmem.ops.numerics.quantised import require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.signature import Signature

_LEFT_SHIFT = 8
"""Bits behind the point that quantised numbers get before they are brought to one scale."""

_SCALED = (DType.INT8, DType.UINT8)
"""Types whose numbers are compared by what they stand for; TFLite compares others as they are stored."""

_TYPES = (DType.INT8, DType.INT32, DType.FLOAT32, DType.INT64, DType.UINT8)


class _Relation(NamedTuple):
    """`cases`: which of less (1), equal (2), greater (4) and no number (8) are true, as `comparison.c` takes them."""

    holds: Callable[[Array, Array], Array]
    cases: int


_RELATIONS: Mapping[str, _Relation] = {
    "EQUAL": _Relation(np.equal, 2),
    "NOT_EQUAL": _Relation(np.not_equal, 1 | 4 | 8),
    "GREATER": _Relation(np.greater, 4),
    "GREATER_EQUAL": _Relation(np.greater_equal, 4 | 2),
    "LESS": _Relation(np.less, 1),
    "LESS_EQUAL": _Relation(np.less_equal, 1 | 2),
}


class ComparisonKind(BroadcastKind):
    names = tuple(_RELATIONS)
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,), made=dict.fromkeys(DType, (DType.BOOL,)))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if node.input(0).dtype in _SCALED:
            inputs = [
                rescale((x.astype(np.int64) - zero_point_of(node.input(i))) << _LEFT_SHIFT, *_multiplier(node.input(i)))
                for i, x in enumerate(inputs)
            ]
        return (np.reshape(_RELATIONS[node.op.kind].holds(*inputs), node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        dtype = node.input(0).dtype
        require_types(dtype, (node.input(1),))
        require_types(DType.BOOL, (node.output,))
        if dtype not in (*_TYPES, DType.BOOL):
            raise Unsupported(f"{dtype.value} elements; supported: {', '.join(d.value for d in (*_TYPES, DType.BOOL))}")
        fields = {
            "shape": c_broadcast(node),
            "type": element_code(dtype),
            "cases": _RELATIONS[node.op.kind].cases,
            "is_scaled": int(dtype in _SCALED),
            "first": _compared(node.input(0)),
            "second": _compared(node.input(1)),
        }
        return kernel_call("comparison", fields, (node.input(0), node.input(1), node.output))


def _multiplier(tensor: Tensor) -> Multiplier:
    found = Multiplier.of(scale_of(tensor))
    if found.shift > 0:
        raise Unsupported(f"tensor '{tensor.label}' has a scale of 1 or more; TensorFlow Lite refuses it too")
    return found


def _compared(tensor: Tensor) -> CStruct:
    zero_point, (mantissa, shift) = 0, (0, 0)
    if tensor.dtype in _SCALED:
        zero_point, (mantissa, shift) = zero_point_of(tensor), _multiplier(tensor)
    return CStruct("diagmem_compared", {"zero_point": zero_point, "mantissa": mantissa, "shift": shift})


_FUNCTIONS = {"LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or}


class LogicalKind(BroadcastKind):
    names = tuple(_FUNCTIONS)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,), made=dict.fromkeys(DType, (DType.BOOL,)))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.reshape(_FUNCTIONS[node.op.kind](*inputs), node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(DType.BOOL, tensors)
        return kernel_call("logical", {"shape": c_broadcast(node)}, tensors, function=node.op.kind.lower())


MOST_AXES = 5
"""How many axes `select.c` walks over."""


class SelectKind(BroadcastKind):
    """Inputs: condition, what is taken where it is true, what is taken where it is false."""

    names = ("SELECT_V2", "SELECT")
    is_pointwise = True
    takes = Signature((3, 3), data=1, alike=(2,))

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        condition, yes, no = (input_at(inputs, position).shape for position in range(3))
        if name == "SELECT" and (yes != no or condition not in ((), (1,), yes)):
            raise ModelError(f"a condition {list(condition)} cannot pick of {list(yes)} and {list(no)} in SELECT")
        return (broadcast_shape(condition, broadcast_shape(yes, no)),)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        return (np.reshape(np.where(*inputs), node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        condition, yes, no = (node.input(position) for position in range(3))
        require_types(DType.BOOL, (condition,))
        require_types(node.output.dtype, (yes, no))
        require_same_quantisation((yes, no, node.output))
        steps = (pitches(node, position) for position in range(3))
        axes = joined_axes(MOST_AXES, node.output.shape, *steps, node.output.strides)
        named = dict(zip(("size", "condition", "yes", "no", "out"), axes, strict=True))
        fields = {**named, "element": node.output.dtype.size_bytes}
        return kernel_call("select", fields, (condition, yes, no, node.output))


KINDS = (ComparisonKind(), LogicalKind(), SelectKind())
