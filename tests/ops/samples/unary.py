"""How the tests draw the operations of `elementwise/unary.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import TYPES
from diagmem.ops.elementwise.lookup import Lookup, LookupKind
from diagmem.ops.elementwise.unary import _FIXED, CLAMPS, QUANTISED, Unary, UnaryKind
from diagmem.ops.kind import Array
from diagmem.ops.options import CUSTOM
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of

_SIZES_APART = (DType.BOOL, DType.INT16, DType.FLOAT32, DType.INT64)


_CASTABLE = (DType.INT8, DType.INT16, DType.FLOAT32, DType.INT32, DType.INT64, DType.UINT8, DType.BOOL, DType.UINT32)

_CONVERTED = {
    "CAST": (_CASTABLE, _CASTABLE),
    "QUANTIZE": ((*QUANTISED, DType.FLOAT32, DType.INT32), QUANTISED),
    "DEQUANTIZE": (QUANTISED, (DType.FLOAT32,)),
}
"""Kinds whose output may be of another type than the input -> the types of inputs, and of outputs."""


LUT_ONLY = ("EXP", "GELU")
"""Kinds whose 8-bit outputs LiteRT gives a scale of their own."""


class UnarySamples(Samples, of=UnaryKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any two element sizes, also from a small one to a large one; conversions from and to types that they take."""
        given, made = _CONVERTED.get(name, (_SIZES_APART, _SIZES_APART))
        slope = draw.integer(-2, 20) / 16 if name == "LEAKY_RELU" else 0.0
        attributes = Unary(slope, name == "GELU" and draw.boolean())
        data = activation(draw.shape(), draw.choice(given))
        return node_of(self.kind, name, attributes, [data], (draw.choice(made),))

    def fitting(self, node: Node) -> Fitting:
        name = node.op.kind
        if name in _CONVERTED:
            scaled = () if name == "CAST" else (*QUANTISED, DType.INT32)
            return Fitting(None, gain=1, scaled=scaled, draws_output_types=True)
        has_own_scale = name in CLAMPS or name in ("LEAKY_RELU", "ELU", "HARD_SWISH", "ABS", "RSQRT", *LUT_ONLY)
        return Fitting(
            tuple(self.kind.ways(name)) or TYPES, gain=1 if has_own_scale else None, fixed=_FIXED.get(name, {})
        )

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Only numbers above 0 have a root, and 0 none that is inverted; angles have sines up to 1."""
        if node.op.kind.startswith((f"{CUSTOM}A", f"{CUSTOM}Ta")):
            return np.tanh(rng.normal(0, 1, tensor.shape)) + (node.op.kind == f"{CUSTOM}Acosh") * 2
        if node.op.kind not in ("SQRT", "RSQRT", "LOG"):
            return None
        if tensor.quantisation is None:
            return np.abs(rng.normal(0, 3, tensor.shape)) + 0.01
        low, high = tensor.quantisation.zero_points[0], np.iinfo(tensor.dtype.numpy).max
        return rng.integers(low, high, tensor.shape, endpoint=True)


class LookupSamples(Samples, of=LookupKind):
    needs = Fitting((DType.INT8,), gain=1)

    def sample(self, name: str, draw: Draw) -> Node:
        """Any table."""
        table = Lookup(draw.numbers(np.int8, (256,)).tobytes())
        return node_of(self.kind, name, table, [activation(draw.shape())])
