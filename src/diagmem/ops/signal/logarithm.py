"""SignalFilterBankLog: natural logarithms, scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.numerics.fixed_point import Ints, bit_lengths
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature

_SEGMENTS = 128
_LN_2 = 45426
"""With 16 bits behind the point."""


@dataclass(frozen=True, slots=True)
class Logarithm:
    """Input: numbers. `correction_bits`: they are shifted to the left by these; `scale`: of the logarithms."""

    correction_bits: int = 0
    scale: int = 1


class LogarithmKind(OpKind):
    names = ("CUSTOM:SignalFilterBankLog",)
    takes = Signature(made=None)
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Logarithm, ("input_correction_bits", "output_scale"))

    def output_shapes(self, name: str, attributes: Logarithm, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.sweep(node.output.elems)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        gain = node.output.dtype.size_bytes - node.input(0).dtype.size_bytes
        return separation_of((AxisTerm.even(node.output.elems, gain),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        a = node.attributes
        numbers = (inputs[0].astype(np.int64) << a.correction_bits) & 0xFFFFFFFF
        found = np.minimum(_logarithms(np.maximum(numbers, 1), a.scale), 2**15 - 1)
        return (np.where(numbers > 1, found, 0).astype(np.int16),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.UINT32, (node.input(0),))
        require_types(DType.INT16, (node.output,))
        a = node.attributes
        if not (0 <= a.correction_bits < 32 and 0 <= a.scale < 2**31):
            raise Unsupported(f"numbers shifted by {a.correction_bits} bits, and a scale of {a.scale}")
        fields = {
            "elems": node.output.elems,
            "correction_bits": a.correction_bits,
            "scale": a.scale,
            "table": CTable("logarithms", _table().astype(np.uint16)),
        }
        return kernel_call("signal_log", fields, (node.input(0), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Numbers of any size."""
        data = activation((draw.integer(1, 40),), DType.UINT32)
        attributes = Logarithm(draw.integer(0, 5), draw.choice((1, 64, 1600)))
        return node_of(self, name, attributes, [data], (DType.INT16,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        found: Array = rng.integers(0, 2**32, tensor.shape) >> rng.integers(0, 33, tensor.shape)
        return found


def _table() -> Ints:
    """How far log2(1 + x) lies above x, with 16 bits behind the point, at the ends of segments of equal length."""
    x = np.arange(_SEGMENTS + 1) / _SEGMENTS
    return np.floor(65536 * (np.log2(1 + x) - x) + 0.5).astype(np.int64)


def _logarithms(x: Ints, scale: int) -> Ints:
    """scale * ln(x), by straight lines between the entries of the table."""
    table, whole = _table(), bit_lengths(x) - 1
    over = x - (1 << whole)
    rest = np.where(whole < 16, over << np.maximum(16 - whole, 0), over >> np.maximum(whole - 16, 0))
    segment = rest >> 9
    line = ((table[segment + 1] - table[segment]) * (rest - (segment << 9))) >> 16
    base_2 = (whole << 16) + rest + table[segment] + line
    natural = (_LN_2 * base_2 + 2**15) >> 16
    scaled: Ints = ((scale * natural + 2**15) & 0xFFFFFFFF) >> 16
    return scaled


KIND = LogarithmKind()
