"""How the tests draw the operations of `elementwise/binary.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import QUANTISED_OR_FLOAT
from diagmem.ops.elementwise.binary import (
    _WAYS,
    AddNKind,
    Binary,
    BinaryKind,
    FloorDivKind,
    PreluKind,
    _floor_div_types,
)
from diagmem.ops.kind import Array
from tests.ops.sampling import OPERAND_SIZE, Draw, Fitting, Samples, activation, constant, node_of


class BinarySamples(Samples, of=BinaryKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        inputs = draw.pair()
        attributes = Binary(draw.fused()) if name in self.kind.clamps else Binary()
        return node_of(self.kind, name, attributes, inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        gains = {"ADD": 1, "SUB": 1, "SQUARED_DIFFERENCE": 1, "MUL": OPERAND_SIZE, "DIV": 1}
        return Fitting(tuple(_WAYS[node.op.kind]), gain=gains.get(node.op.kind))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Whole numbers are not divided by 0."""
        if node.op.kind != "DIV" or position == 0 or tensor.dtype is DType.FLOAT32:
            return None
        zero = 0 if tensor.quantisation is None else tensor.quantisation.zero_points[0]
        found: Array = rng.integers(-100, 100, tensor.shape)
        return np.where(found == zero, zero - 1 if zero > 0 else zero + 1, found)


class PreluSamples(Samples, of=PreluKind):
    needs = Fitting(QUANTISED_OR_FLOAT, gain=OPERAND_SIZE, other_types={DType.INT16: DType.INT8})
    """Slopes have 8 bits, also those of 16-bit data."""

    def sample(self, name: str, draw: Draw) -> Node:
        """Slopes for each element, each channel, or one for all; in RAM or constant."""
        shape, dtype = draw.shape(), draw.dtype()
        slopes = draw.choice((activation, constant))(draw.shrunk(shape), dtype)
        return node_of(self.kind, name, None, [activation(shape, dtype), slopes], (dtype,))


class FloorDivSamples(Samples, of=FloorDivKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant. LiteRT repeats none in ATAN2."""
        shape = draw.shape()
        alike = [activation(shape, DType.FLOAT32), activation(shape, DType.FLOAT32)]
        return node_of(self.kind, name, None, alike if name == "ATAN2" else draw.pair(DType.FLOAT32), (DType.FLOAT32,))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(_floor_div_types(node.op.kind), scaled=())

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Nothing is divided by 0, and only numbers above 0 have powers."""
        found: Array = rng.normal(0, 4, tensor.shape)
        if node.op.kind == "POW":
            return np.abs(found) + 0.01 if position == 0 else found
        sized: Array = np.where(found < 0, found - 1, found + 1) if position == 1 else found * 10
        return sized


class AddNSamples(Samples, of=AddNKind):
    needs = Fitting((DType.INT8, DType.FLOAT32))
    """All inputs have one scale."""

    def sample(self, name: str, draw: Draw) -> Node:
        """Two to four tensors."""
        shape, dtype = draw.shape(), draw.dtype()
        inputs = [activation(shape, dtype) for _ in range(draw.integer(2, 5))]
        return node_of(self.kind, name, None, inputs, (dtype,))
