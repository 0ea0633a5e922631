"""PRELU, FLOOR_DIV, FLOOR_MOD, POW, ADD_N."""

from __future__ import annotations

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import (
    QUANTISED_OR_FLOAT,
    SUFFIXES,
    CCall,
    CPointers,
    Fields,
    Unsupported,
    by_type,
    kernel_call,
    require_types,
)
from diagmem.ops.kind import Array, Inputs, Shapes, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast
from diagmem.ops.numerics.fixed_point import Multiplier, rescale
from diagmem.ops.numerics.quantised import Requantisation, require_same_quantisation, scale_of, zero_point_of
from diagmem.ops.sampling import OPERAND_SIZE, Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import MANY, Signature


class PreluKind(BroadcastKind):
    """Inputs: data, slopes, which are repeated to match the data."""

    names = ("PRELU",)
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2))
    needs = Fitting(QUANTISED_OR_FLOAT, gain=OPERAND_SIZE, other_types={DType.INT16: DType.INT8})
    """Slopes have 8 bits, also those of 16-bit data."""

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
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
        return by_type(node, {**dict.fromkeys(QUANTISED_OR_FLOAT, _call_int), DType.FLOAT32: _call_f32})

    def sample(self, name: str, draw: Draw) -> Node:
        """Slopes for each element, each channel, or one for all; in RAM or constant."""
        shape, dtype = draw.shape(), draw.dtype()
        slopes = draw.choice((activation, constant))(draw.shrunk(shape), dtype)
        return node_of(self, name, None, [activation(shape, dtype), slopes], (dtype,))


def _requantisations(node: Node) -> tuple[Requantisation, Requantisation]:
    """Of elements above zero, and of the others times their slope. Scales of unsigned numbers are taken as
    float32."""
    number = np.float32 if node.output.dtype is DType.UINT8 else np.float64
    data, slope, out = (number(scale_of(t)) for t in (node.input(0), node.input(1), node.output))
    unit, sloped = float(data / out), float(data * slope / out)
    return Requantisation.of([unit], node.output), Requantisation.of([sloped], node.output)


def _call(node: Node, struct: str, fields: Fields) -> CCall:
    require_types(node.input(0).dtype, (node.output,))
    own, tensors = {"shape": c_broadcast(node), **fields}, (node.input(0), node.input(1), node.output)
    return kernel_call("prelu", own, tensors, function=f"prelu_{SUFFIXES[node.output.dtype]}", struct=struct)


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
    return _call(node, "prelu", fields)


def _call_f32(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.input(1),))
    return _call(node, "prelu_f32", {})


class FloorDivKind(BroadcastKind):
    names = ("FLOOR_DIV", "FLOOR_MOD", "POW")
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        found = _whole(node.op.kind, *inputs) if node.output.dtype is DType.INT32 else _real(node.op.kind, *inputs)
        return (np.reshape(found, node.output.shape).astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(node.output.dtype, tensors)
        if node.output.dtype not in _types(node.op.kind):
            raise Unsupported(f"{node.output.dtype.value} elements; supported: float32, of divisions also int32")
        function = f"{node.op.kind.lower()}_{SUFFIXES[node.output.dtype]}"
        return kernel_call("floor_div", {"shape": c_broadcast(node)}, tensors, function=function)

    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        return node_of(self, name, None, draw.pair(DType.FLOAT32), (DType.FLOAT32,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(_types(node.op.kind), scaled=())

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Nothing is divided by 0, and only numbers above 0 have powers."""
        found: Array = rng.normal(0, 4, tensor.shape)
        if node.op.kind == "POW":
            return np.abs(found) + 0.01 if position == 0 else found
        sized: Array = np.where(found < 0, found - 1, found + 1) if position == 1 else found * 10
        return sized


def _types(kind: str) -> tuple[DType, ...]:
    return (DType.FLOAT32,) if kind == "POW" else (DType.FLOAT32, DType.INT32)


def _real(kind: str, first: Array, second: Array) -> Array:
    with np.errstate(all="ignore"):
        if kind == "POW":
            power: Array = np.power(first.astype(np.float64), second.astype(np.float64))
            return power
        if kind == "FLOOR_DIV":
            return np.floor(first / second)
        rest = np.fmod(first, second)
        found: Array = np.where((rest != 0) & ((second < 0) != (rest < 0)), rest + second, rest)
    return found


def _whole(kind: str, first: Array, second: Array) -> Array:
    """A division by 0 gives 0."""
    divisor = np.where(second == 0, 1, second).astype(np.int64)
    found = first.astype(np.int64) // divisor if kind == "FLOOR_DIV" else first.astype(np.int64) % divisor
    return np.where(second == 0, 0, found)


_LEFT_SHIFT = 20
"""Bits behind the point that the inputs get before they are added."""


class AddNKind(BroadcastKind):
    names = ("ADD_N",)
    tflm_agrees = True
    is_pointwise = True
    takes_pitches = False
    takes = Signature((1, MANY), all_alike=True)
    needs = Fitting((DType.INT8, DType.FLOAT32))
    """All inputs have one scale."""

    def output_shapes(self, name: str, attributes: None, inputs: Inputs) -> Shapes:
        shapes = [input_at(inputs, position).shape for position in range(len(inputs))]
        if len(set(shapes)) != 1:
            raise ModelError(f"tensors of shapes {[list(s) for s in shapes]} cannot be added; the file is damaged")
        return (shapes[0],)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        if node.output.dtype is DType.FLOAT32:
            return (np.reshape(sum(inputs, np.zeros(node.output.shape, np.float32)), node.output.shape),)
        half, zero_point = Multiplier.of(0.5), zero_point_of(node.input(0))
        # TFLite Micro starts from a stored 0, which stands for minus the zero point.
        scaled = rescale(np.full(node.output.shape, -zero_point) << _LEFT_SHIFT, *half)
        for values in inputs:
            scaled = scaled + rescale((values.astype(np.int64) - zero_point) << _LEFT_SHIFT, *half)
        return (np.reshape(_output(node).apply(scaled), node.output.shape).astype(np.int8),)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(p) for p in range(len(node.inputs))))
        return by_type(node, {DType.INT8: _call_s8, DType.FLOAT32: lambda n: _add_n_call(n, "f32", {})})

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
    return _add_n_call(node, "s8", {**fields, "output": _output(node).c_struct()})


def _add_n_call(node: Node, suffix: str, fields: dict[str, object]) -> CCall:
    sizes = {"elems": node.output.elems, "count": len(node.inputs)}
    inputs, name = CPointers(tuple(node.input(p) for p in range(len(node.inputs)))), f"add_n_{suffix}"
    return kernel_call("add_n", {**sizes, **fields}, (inputs, node.output), function=name, struct=name)


KINDS = (PreluKind(), FloorDivKind(), AddNKind())
