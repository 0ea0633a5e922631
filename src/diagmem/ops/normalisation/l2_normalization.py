"""L2_NORMALIZATION: each row along the last axis is divided by its Euclidean length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import SUFFIXES, CCall, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, Way
from diagmem.ops.loops.fibres import RowwiseKind
from diagmem.ops.numerics.fixed_point import inverse_sqrt, rescale
from diagmem.ops.numerics.quantised import quantisation_of, stored_zero, zero_point_of
from diagmem.ops.numerics.single_precision import sum_in_order
from diagmem.ops.options import Activation, Table
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature

_OUTPUT_BITS = 7
"""Quantised outputs are in units of 1/128."""

_MIDDLE = {DType.INT8: 0, DType.UINT8: 128}
"""Type -> the stored number that stands for 0 in an output."""


@dataclass(frozen=True, slots=True)
class L2Normalization:
    """Input: rows."""

    activation: Activation = Activation.NONE


class L2NormalizationKind(RowwiseKind):
    names = ("L2_NORMALIZATION",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature()
    table = Table(L2Normalization, ("FusedActivationFunction",), "L2NormOptions")

    def ways(self, name: str) -> dict[DType, Way]:
        return _WAYS

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        if node.attributes.activation is not Activation.NONE:
            raise Unsupported(f"a fused {node.attributes.activation.name}; TensorFlow Lite refuses it too")
        return super().c_call(node)

    def sample(self, name: str, draw: Draw) -> Node:
        """Rows of any rank."""
        data = activation(draw.many(1, 5, draw.size), draw.dtype())
        return node_of(self, name, L2Normalization(), [data], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        fixed = {dtype: (1 / 2**_OUTPUT_BITS, zero_point) for dtype, zero_point in _MIDDLE.items()}
        return Fitting((*_MIDDLE, DType.FLOAT32), fixed=fixed)


def _normalised_int(node: Node, data: Array) -> Array:
    value = data.astype(np.int64) - zero_point_of(node.input(0))
    squares = (value**2).sum(axis=-1, keepdims=True)
    roots = np.array([inverse_sqrt(int(square)) for square in squares.reshape(-1)]).reshape(*squares.shape, 2)
    # Unsigned numbers get their bits before they are multiplied, signed ones afterwards; roundings differ.
    before = _OUTPUT_BITS if node.output.dtype is DType.UINT8 else 0
    scaled = rescale(value << before, roots[..., 0], roots[..., 1] + _OUTPUT_BITS - before)
    info = np.iinfo(node.output.dtype.numpy)
    return np.clip(scaled + _MIDDLE[node.output.dtype], info.min, info.max).astype(info.dtype)


def _normalised_f32(node: Node, data: Array) -> Array:
    normalised: Array = data / np.maximum(np.sqrt(sum_in_order(data * data)), np.float32(1e-6))
    return normalised


def _call_int(node: Node) -> CCall:
    output, middle = quantisation_of(node.output), _MIDDLE[node.output.dtype]
    if output.scales[0] != 2**-_OUTPUT_BITS or output.zero_points[0] != middle:
        raise Unsupported(f"an output scale other than 1/128 with zero point {middle}; TensorFlow Lite refuses it too")
    return _call(node)


def _call(node: Node) -> CCall:
    size = node.output.shape[-1]
    zero_point = stored_zero(node.input(0)) if node.output.dtype in _MIDDLE else 0
    fields = {"rows": node.output.elems // size, "size": size, "zero_point": zero_point}
    function = f"l2_normalization_{SUFFIXES[node.output.dtype]}"
    return kernel_call("l2_normalization", fields, (node.input(0), node.output), function=function)


_INTEGER = Way(_normalised_int, _call_int)
_WAYS = {DType.INT8: _INTEGER, DType.UINT8: _INTEGER, DType.FLOAT32: Way(_normalised_f32, _call)}


KIND = L2NormalizationKind()
