"""What quantised kernels have in common: real values as scaled integers, activations as ranges of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Quantisation, Rounding, Tensor
from diagmem.ops.c_call import CName, CStruct, CTable, Unsupported
from diagmem.ops.numerics.fixed_point import INT32_MAX, Ints, multipliers, rescale, round_half_away, wrapped
from diagmem.ops.options import Activation

NARROW_WEIGHTS = (DType.INT8, DType.INT4)
"""Types of weights that may stand beside data of a wider type. Values of 4 bits are held in bytes."""

TO_EVEN = "DIAGMEM_TO_EVEN"
"""Limit: some multipliers are float32, and their products are rounded once."""

LEAST_SINGLE, LARGEST_SINGLE = 2.0**-40, 2.0**24
"""Multipliers of single precision lie between; with smaller ones no 32-bit number becomes as much as a half."""

LARGEST = float(np.finfo(np.float32).max)
"""This number stands for "no limit", as in TFLite."""

_BOUNDS = {
    Activation.UNLIMITED: (-math.inf, math.inf),
    Activation.RELU_UNLIMITED: (0.0, math.inf),
    Activation.NONE: (-LARGEST, LARGEST),
    Activation.RELU: (0.0, LARGEST),
    Activation.RELU_N1_TO_1: (-1.0, 1.0),
    Activation.RELU6: (0.0, 6.0),
}


def real_range(activation: Activation) -> tuple[float, float]:
    """The interval of real values that a fused activation clamps to."""
    if activation not in _BOUNDS:
        known = ", ".join(a.name for a in _BOUNDS if a.value >= 0)
        raise Unsupported(f"a fused {activation.name}; supported: {known}")
    return _BOUNDS[activation]


def integer_range(activation: Activation, output: Tensor) -> tuple[int, int]:
    """The interval of stored values, closed, that a fused activation clamps the output to."""
    return stored_range(real_range(activation), output)


def stored_range(bounds: tuple[float, float], output: Tensor) -> tuple[int, int]:
    """The stored values, closed, that stand for a range of real values."""
    info = np.iinfo(output.dtype.numpy)
    low, high = (quantised(bound, output) for bound in bounds)
    return int(max(info.min, low)), int(min(info.max, high))


def quantised(real: float, tensor: Tensor) -> float:
    """The stored value nearest to a real value, in float32 as TFLite computes it."""
    if abs(real) == LARGEST:
        return math.copysign(math.inf, real)
    with np.errstate(over="ignore"):
        units = float(np.float32(real) / np.float32(scale_of(tensor)))
    nearest = round if rounds_to_even(tensor) else round_half_away
    return zero_point_of(tensor) + (nearest(units) if math.isfinite(units) else units)


def rounds_to_even(tensor: Tensor) -> bool:
    """Whether the values of a tensor are rounded once, halves to even, as onnxruntime does it."""
    return tensor.quantisation is not None and tensor.quantisation.rounding is not Rounding.TFLITE


def lowered_by(tensor: Tensor) -> int:
    """By how much stored values are lower than those that onnxruntime computes with."""
    is_unsigned = tensor.quantisation is not None and tensor.quantisation.rounding is Rounding.ONNX_UNSIGNED
    return 128 if is_unsigned else 0


def quantisation_of(tensor: Tensor) -> Quantisation:
    if tensor.quantisation is None:
        raise Unsupported(f"tensor '{tensor.label}' has {tensor.dtype.value} elements but no scale")
    return tensor.quantisation


def scale_of(tensor: Tensor) -> float:
    """The scale of a tensor that has only one. It may be 0 if all that the tensor holds is, whatever the scale."""
    found = quantisation_of(tensor)
    is_zero = tensor.is_constant and tensor.data is not None and bool((tensor.data == found.zero_points[0]).all())
    if found.per_channel or not (found.scales[0] > 0 or is_zero):
        raise Unsupported(f"tensor '{tensor.label}' needs one positive scale; it has {list(found.scales[:4])}")
    return found.scales[0]


def zero_point_of(tensor: Tensor) -> int:
    return quantisation_of(tensor).zero_points[0]


def stored_zero(tensor: Tensor) -> int:
    """The stored value that stands for 0."""
    return 0 if tensor.quantisation is None else zero_point_of(tensor)


def dequantised(tensor: Tensor, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The real values of stored ones, in float32."""
    real: npt.NDArray[Any] = np.float32(scale_of(tensor)) * (stored.astype(np.int64) - zero_point_of(tensor)).astype(
        np.float32
    )
    return real


def require_same_quantisation(tensors: Sequence[Tensor]) -> None:
    """Raises Unsupported unless a stored value means the same in all of these."""
    found = {
        (t.quantisation.scales, t.quantisation.zero_points)
        for t in tensors
        if t.quantisation is not None and t.dtype is not DType.FLOAT32
    }
    if len(found) > 1:
        raise Unsupported("inputs and outputs of different scale; TensorFlow Lite refuses it too")


def channel_scales(filters: Tensor, axis: int) -> tuple[float, ...]:
    """A filter's scale for each of its channels along `axis`; its zero points must be 0 if it is a signed constant."""
    found = quantisation_of(filters)
    if any(found.zero_points) and _is_symmetric(filters):
        raise Unsupported(f"filter '{filters.label}' has a zero point other than 0")
    if found.per_channel and found.axis != axis:
        raise Unsupported(f"filter '{filters.label}' is quantised along axis {found.axis}; supported: {axis}")
    return found.scales * filters.shape[axis] if not found.per_channel else found.scales


def centred_weights(filters: Tensor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A filter's values as multiples of its scale. Signed constants are that already."""
    return values if _is_symmetric(filters) else values.astype(np.int64) - zero_point_of(filters)


def _is_symmetric(filters: Tensor) -> bool:
    return filters.is_constant and filters.dtype is not DType.UINT8


def float_weights(filters: Tensor, values: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """A filter's weights as float32, dequantised where they are quantised. `axis`: that of its channels."""
    if filters.dtype not in NARROW_WEIGHTS:
        return values.astype(np.float32)
    scales = np.array(channel_scales(filters, axis), np.float32)
    shape = [len(scales) if a == axis else 1 for a in range(values.ndim)]
    return values.astype(np.float32) * scales.reshape(shape)


@dataclass(frozen=True, slots=True, eq=False)
class Requantisation:
    """32-bit accumulators to stored values of an output, a multiplier for each channel (the last axis).
    `is_rounded_once`: as onnxruntime does it, by float32 multipliers, halves to even; mantissas are then the bits of
    these, and shifts -1."""

    mantissas: Ints
    shifts: Ints
    zero_point: int
    low: int
    high: int
    is_rounded_once: bool = False

    @classmethod
    def of(cls, reals: Sequence[float], output: Tensor, activation: Activation = Activation.NONE) -> Requantisation:
        """`reals`: what one unit of the accumulator is worth, in units of the output."""
        return cls.between(reals, output, real_range(activation))

    @classmethod
    def between(cls, reals: Sequence[float], output: Tensor, bounds: tuple[float, float]) -> Requantisation:
        """The same, clamped to a range of real values."""
        ends = zero_point_of(output), *stored_range(bounds, output)
        if not rounds_to_even(output):
            # Shifted by 32 bits and more, nothing is left of a 32-bit number, as on Arm.
            return cls(*multipliers([0.0 if INT32_MAX < real < math.inf else real for real in reals]), *ends)
        wrong = [real for real in reals if not 0 <= real < LARGEST_SINGLE]
        if wrong:
            raise Unsupported(f"scales that make a factor of {wrong[0]:.6g}; supported: 0 to 2^24")
        bits = np.array(reals, np.float32).view(np.int32).astype(np.int64)
        return cls(
            np.where(np.array(reals) < LEAST_SINGLE, 0, bits), np.full_like(bits, -1), *ends, is_rounded_once=True
        )

    @property
    def reals(self) -> npt.NDArray[np.float64]:
        """What one unit of an accumulator is worth, as the multipliers have it."""
        if self.is_rounded_once:
            return self.mantissas.astype(np.int32).view(np.float32).astype(np.float64)
        scaled: npt.NDArray[np.float64] = self.mantissas * 2.0 ** (self.shifts - 31)
        return scaled

    @property
    def ignores_signs(self) -> bool:
        """Whether rounding does not depend on signs, or all negative sums give the least output."""
        return self.is_rounded_once or self.zero_point == np.iinfo(np.int8).min

    def apply(self, accumulators: Any) -> Ints:
        if self.is_rounded_once:
            products = wrapped(np.asarray(accumulators)).astype(np.float32) * self.reals.astype(np.float32)
            held = np.clip(products, self.low - self.zero_point, self.high - self.zero_point)
            rounded: Ints = np.rint(held).astype(np.int64) + self.zero_point
            return rounded
        scaled = wrapped(rescale(accumulators, self.mantissas, self.shifts) + self.zero_point)
        clipped: Ints = np.clip(scaled, self.low, self.high)
        return clipped

    def c_struct(self) -> CStruct:
        """The `diagmem_requantisation` that has one multiplier for all channels."""
        (mantissa,), (shift,) = self.mantissas.tolist(), self.shifts.tolist()
        fields = {"mantissa": mantissa, "shift": shift, **self._range(), **self.c_rounding()}
        return CStruct("diagmem_requantisation", fields)

    def c_channels(self, bias: npt.NDArray[Any]) -> CStruct:
        """The `diagmem_channels_s8` that has a bias and a multiplier for each channel."""
        is_plain = bool(self.shifts.max() <= -2) and (self.low, self.high) == (-128, 127)
        how = CName("DIAGMEM_ROUNDED_TWICE_DOWN" if is_plain else "DIAGMEM_ROUNDED_TWICE")
        return CStruct(
            "diagmem_channels_s8",
            {
                "bias": CTable("bias", bias.astype(np.int32)),
                "mantissa": CTable("mantissa", self.mantissas.astype(np.int32)),
                "shift": CTable("shift", self.shifts.astype(np.int8)),
                **self._range(),
                "rounding": how,
                **self.c_rounding(),
            },
        )

    def c_rounding(self) -> dict[str, CName]:
        """The field that tells kernels to round once, where they do."""
        return {"rounding": CName("DIAGMEM_ROUNDED_TO_EVEN")} if self.is_rounded_once else {}

    def _range(self) -> dict[str, int]:
        return {"zero_point": self.zero_point, "low": self.low, "high": self.high}


def folded_bias(bias: npt.NDArray[Any] | None, weights: npt.NDArray[Any], zero_point: int) -> npt.NDArray[np.int32]:
    """bias - zero_point * sum(weights) for each output channel (the first axis of `weights`), so that a kernel may
    multiply stored inputs as they are. It wraps around, as sums do: channels without use may have any bias."""
    rows = weights.reshape(len(weights), -1).astype(np.int64)
    folded = -zero_point * rows.sum(axis=1) + (0 if bias is None else bias.reshape(-1).astype(np.int64))
    result: npt.NDArray[np.int32] = folded.astype(np.int32)
    return result
