"""PRELU: a leaky rectifier with a slope for each channel, or for each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import QUANTISED_OR_REAL, SUFFIXES, CCall, CStruct, Fields, by_type, require_types
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast
from diagmem.ops.numerics.quantised import Requantisation, scale_of, zero_point_of
from diagmem.ops.sampling import OPERAND_SIZE, Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature


class PreluKind(BroadcastKind):
    """Inputs: data, slopes, which are repeated to match the data."""

    names = ("PRELU",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2))
    needs = Fitting(QUANTISED_OR_REAL, gain=OPERAND_SIZE, other_types={DType.INT16: DType.INT8})
    """Slopes have 8 bits, also those of 16-bit data."""

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        data, slopes = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if broadcast_shape(data, slopes) != data:
            raise ModelError(f"slopes {list(slopes)} cannot be repeated to match {list(data)}; the file is damaged")
        return (data,)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, slopes = inputs
        if node.output.dtype is DType.FLOAT32:
            return (np.where(data >= 0, data, data * slopes).reshape(data.shape),)
        above, below = _requantisations(node)
        value = data.astype(np.int64) - zero_point_of(node.input(0))
        slope = slopes.astype(np.int64) - zero_point_of(node.input(1))
        found = np.where(value >= 0, above.apply(value), below.apply(value * slope))
        return (found.astype(data.dtype).reshape(data.shape),)

    def c_call(self, node: Node) -> CCall:
        return by_type(node, {**dict.fromkeys(QUANTISED_OR_REAL, _call_int), DType.FLOAT32: _call_f32})

    def sample(self, name: str, draw: Draw) -> Node:
        """Slopes for each element, each channel, or one for all; in RAM or constant."""
        shape, dtype = draw.shape(), draw.dtype()
        slopes = tuple(size if draw.boolean() else 1 for size in shape)
        kept = slopes[draw.integer(0, len(slopes) + 1) if draw.boolean() else 0 :]
        place = draw.choice((activation, constant))
        return node_of(self, name, None, [activation(shape, dtype), place(kept, dtype)], (dtype,))


def _requantisations(node: Node) -> tuple[Requantisation, Requantisation]:
    """Of elements above zero, and of the others times their slope. Scales of unsigned numbers are taken in single
    precision."""
    number = np.float32 if node.output.dtype is DType.UINT8 else np.float64
    data, slope, out = (number(scale_of(t)) for t in (node.input(0), node.input(1), node.output))
    unit, sloped = float(data / out), float(data * slope / out)
    return Requantisation.of([unit], node.output), Requantisation.of([sloped], node.output)


def _call(node: Node, struct: str, fields: Fields) -> CCall:
    require_types(node.input(0).dtype, (node.output,))
    parameters = CStruct(struct, {"shape": c_broadcast(node), **fields})
    arguments = (node.input(0), node.input(1), node.output)
    return CCall("prelu.c", f"diagmem_prelu_{SUFFIXES[node.output.dtype]}", parameters, arguments)


def _call_int(node: Node) -> CCall:
    """Slopes have 8 bits, also those of 16-bit data."""
    require_types(DType.UINT8 if node.output.dtype is DType.UINT8 else DType.INT8, (node.input(1),))
    above, below = _requantisations(node)
    fields = {
        "zero_point": zero_point_of(node.input(0)),
        "slope_zero_point": zero_point_of(node.input(1)),
        "above": above.c_struct(),
        "below": below.c_struct(),
    }
    return _call(node, "diagmem_prelu_params", fields)


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1),))
    return _call(node, "diagmem_prelu_f32_params", {})


KIND = PreluKind()
