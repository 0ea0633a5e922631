"""Outputs of layers with 16-bit inputs and 8-bit weights, bit for bit as TFLite's reference kernels make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import CStruct, CTable, Unsupported, require_types, values_of
from diagmem.ops.kind import Array
from diagmem.ops.numerics.fixed_point import Ints, wrapped
from diagmem.ops.numerics.quantised import Requantisation, zero_point_of

_LARGEST_WIDE_SHIFT = 14
LARGEST_WIDE_BIAS = 2.0**46
"""A bit less than a mantissa of 15 bits can multiply in 64, for there is a sum beside the bias."""

_LARGEST_SCALED_BIAS = 2.0**30
"""A bit less than fits, likewise."""


def wide_mantissas(mantissas: Ints) -> Ints:
    """With 15 bits instead of 31, as sums of more than 32 bits are multiplied."""
    reduced: Ints = np.where(mantissas < 0x7FFF0000, (mantissas + (1 << 15)) >> 16, 0x7FFF)
    return reduced


def rescale_wide(x: Any, mantissa: Any, shift: Any) -> Ints:
    """x times mantissa * 2**(shift - 15), halves upwards, of which 32 bits remain."""
    right = 15 - np.asarray(shift, dtype=np.int64)
    return wrapped((np.asarray(x, dtype=np.int64) * mantissa + (np.int64(1) << (right - 1))) >> right)


def require_wide_shifts(shifts: Ints) -> None:
    """Raises Unsupported unless `rescale_wide` can shift to the right."""
    if shifts.max(initial=0) > _LARGEST_WIDE_SHIFT:
        raise Unsupported(f"an output scale that is too small beside the inputs': more than 2^{_LARGEST_WIDE_SHIFT}")


def _require_moderate(bias: Tensor | None, output: Requantisation) -> None:
    """Raises Unsupported unless sums with the bias can be multiplied in 64 bits, and are then numbers of 32."""
    if bias is None or bias.data is None:
        return
    largest = np.abs(bias.data.reshape(-1).astype(np.float64))
    scaled = largest * wide_mantissas(output.mantissas) * 2.0 ** (output.shifts - 15)
    if np.any(largest > LARGEST_WIDE_BIAS) or np.any(scaled > _LARGEST_SCALED_BIAS):
        raise Unsupported(f"'{bias.label}' holds biases that are far beyond the range of the output")


@dataclass(frozen=True, slots=True, eq=False)
class ChannelsS16:
    """`bias`: None stands for zeros. `is_wide`: sums are taken to need more than 32 bits."""

    output: Requantisation
    bias: Tensor | None
    is_wide: bool

    @classmethod
    def of(cls, node: Node, output: Requantisation, bias: Tensor | None) -> ChannelsS16:
        """What makes the outputs of a node. A bias of 32 bits means sums of 32 bits to those kinds that TFLite knows to
        take one; others widen it."""
        require_types(DType.INT8, () if node.input(1).dtype is DType.INT4 else (node.input(1),))
        require_types(DType.INT16, (node.output,))
        has_narrow_bias = bias is not None and bias.dtype is DType.INT32
        is_narrow = has_narrow_bias and node.op.kind in ("CONV_2D", "FULLY_CONNECTED")
        require_types(DType.INT64, () if bias is None or has_narrow_bias else (bias,))
        data = [t for t in node.inputs if t is not None and t.dtype is DType.INT16 and t.quantisation is not None]
        if output.zero_point or any(map(zero_point_of, data)):
            raise Unsupported("16-bit numbers with a zero point other than 0; TensorFlow Lite refuses it too")
        if not is_narrow:
            require_wide_shifts(output.shifts)
            _require_moderate(bias, output)
        return cls(output, bias, not is_narrow)

    def apply(self, sums: Array, bias: Array | None) -> Array:
        whole = sums.astype(np.int64) + (0 if bias is None else bias.reshape(-1).astype(np.int64))
        if not self.is_wide:
            return self.output.apply(whole).astype(np.int16)
        scaled = rescale_wide(whole, wide_mantissas(self.output.mantissas), self.output.shifts)
        return np.clip(scaled, self.output.low, self.output.high).astype(np.int16)

    def c_struct(self) -> CStruct:
        mantissas = wide_mantissas(self.output.mantissas) if self.is_wide else self.output.mantissas
        bias = np.zeros(len(mantissas), np.int64) if self.bias is None else values_of(self.bias).astype(np.int64)
        return CStruct(
            "diagmem_channels_s16",
            {
                "bias": CTable("bias", bias),
                "mantissa": CTable("mantissa", mantissas.astype(np.int32)),
                "shift": CTable("shift", self.output.shifts.astype(np.int8)),
                "low": self.output.low,
                "high": self.output.high,
                "is_wide": int(self.is_wide),
            },
        )
