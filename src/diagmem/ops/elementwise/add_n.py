"""ADD_N: the sum of several tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CPointers, CStruct, Unsupported, by_type, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind
from diagmem.ops.numerics.fixed_point import Multiplier, rescale
from diagmem.ops.numerics.quantised import Requantisation, require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import MANY, Signature

_LEFT_SHIFT = 20
"""Bits behind the point that the inputs get before they are added."""


class AddNKind(BroadcastKind):
    names = ("ADD_N",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((1, MANY), all_alike=True)
    needs = Fitting((DType.INT8, DType.FLOAT32))
    """All inputs have one scale."""

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shapes = [input_at(inputs, position).shape for position in range(len(inputs))]
        if len(set(shapes)) != 1:
            raise ModelError(f"tensors of shapes {[list(s) for s in shapes]} cannot be added; the file is damaged")
        return (shapes[0],)

    def can_address(self, node: Node) -> bool:
        return OpKind.can_address(self, node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if node.output.dtype is DType.FLOAT32:
            total = np.zeros(node.output.shape, np.float32)
            for values in inputs:
                total = total + values
            return (np.reshape(total, node.output.shape),)
        half, zero_point = Multiplier.of(0.5), zero_point_of(node.input(0))
        # TFLite Micro starts from a stored 0, which stands for minus the zero point.
        scaled = rescale(np.full(node.output.shape, -zero_point) << _LEFT_SHIFT, *half)
        for values in inputs:
            scaled = scaled + rescale((values.astype(np.int64) - zero_point) << _LEFT_SHIFT, *half)
        return (np.reshape(_output(node).apply(scaled), node.output.shape).astype(np.int8),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(p) for p in range(len(node.inputs))))
        return by_type(node, {DType.INT8: _call_s8, DType.FLOAT32: lambda n: _call(n, "f32", {})})

    def sample(self, name: str, draw: Draw) -> Node:
        """Two to four tensors."""
        shape, dtype = draw.shape(), draw.dtype()
        inputs = [activation(shape, dtype) for _ in range(draw.integer(2, 5))]
        return node_of(self, name, None, inputs, (dtype,))


def _output(node: Node) -> Requantisation:
    real = 2 * scale_of(node.input(0)) / ((1 << _LEFT_SHIFT) * scale_of(node.output))
    if real >= 1:
        raise Unsupported("an output scale that is far smaller than the inputs'; TensorFlow Lite refuses it too")
    return Requantisation.of([real], node.output)


def _call_s8(node: Node) -> CCall:
    inputs = [node.input(p) for p in range(len(node.inputs))]
    require_same_quantisation(inputs)
    mantissa, shift = Multiplier.of(0.5)
    fields = {"zero_point": zero_point_of(inputs[0]), "mantissa": mantissa, "shift": shift}
    return _call(node, "s8", {**fields, "output": _output(node).c_struct()})


def _call(node: Node, suffix: str, fields: dict[str, object]) -> CCall:
    sizes = {"elems": node.output.elems, "count": len(node.inputs)}
    parameters = CStruct(f"diagmem_add_n_{suffix}_params", {**sizes, **fields})
    inputs = CPointers(tuple(node.input(p) for p in range(len(node.inputs))))
    return CCall("add_n.c", f"diagmem_add_n_{suffix}", parameters, (inputs, node.output))


KIND = AddNKind()
