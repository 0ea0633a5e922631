"""FLOOR_DIV, FLOOR_MOD, POW: on pairs of numbers, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.c_call import CCall, CStruct, Unsupported, require_types
from diagmem.ops.kind import Array, Values, input_at
from diagmem.ops.loops.broadcast import BroadcastKind, broadcast_shape, c_broadcast
from diagmem.ops.sampling import Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature

_SUFFIXES = {DType.FLOAT32: "f32", DType.INT32: "s32"}


class FloorDivKind(BroadcastKind):
    names = ("FLOOR_DIV", "FLOOR_MOD", "POW")
    tflm_agrees = True
    is_pointwise = True
    takes = Signature((2, 2), alike=(1,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (broadcast_shape(input_at(inputs, 0).shape, input_at(inputs, 1).shape),)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        found = _whole(node.op.kind, *inputs) if node.output.dtype is DType.INT32 else _real(node.op.kind, *inputs)
        return (np.reshape(found, node.output.shape).astype(node.output.dtype.numpy),)

    def c_call(self, node: Node) -> CCall:
        tensors = node.input(0), node.input(1), node.output
        require_types(node.output.dtype, tensors)
        if node.output.dtype not in _types(node.op.kind):
            raise Unsupported(f"{node.output.dtype.value} elements; supported: float32, of divisions also int32")
        function = f"diagmem_{node.op.kind.lower()}_{_SUFFIXES[node.output.dtype]}"
        parameters = CStruct("diagmem_floor_div_params", {"shape": c_broadcast(node)})
        return CCall("floor_div.c", function, parameters, tensors)

    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        shape = draw.shape()
        places = draw.choice(((activation, activation), (activation, constant), (constant, activation)))
        inputs = [place(draw.shrunk(shape), DType.FLOAT32) for place in places]
        return node_of(self, name, None, inputs, (DType.FLOAT32,))

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


KIND = FloorDivKind()
