"""What convolutions and fully connected layers have in common beside their loops: scales, biases, activations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import (
    SUFFIXES,
    CCall,
    CStruct,
    CTable,
    Fields,
    Unsupported,
    kernel_call,
    require_types,
    values_of,
)
from diagmem.ops.kind import Array
from diagmem.ops.loops.windowed import WindowedLoop, c_window, tap_counts, window_limits
from diagmem.ops.numerics.fitted import fitted
from diagmem.ops.numerics.fixed_point import Ints, wrapped
from diagmem.ops.numerics.quantised import (
    NARROW_WEIGHTS,
    Requantisation,
    channel_scales,
    folded_bias,
    integer_range,
    quantisation_of,
    real_range,
    rounds_to_even,
    scale_of,
    zero_point_of,
)
from diagmem.ops.numerics.single_precision import clamped
from diagmem.ops.options import TYPE_CODES

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


BIAS_TYPE = "QuantizedBiasType"
"""The schema's name of the option for the type of biases; 0: it does not say."""


def has_narrow_sums(node: Node, bias: Tensor | None) -> bool:
    """Whether sums of 16-bit products have 32 bits: where the bias has, or the option `bias_type` says that it would
    have. TFLite knows no DEPTHWISE_CONV_2D with such a bias, which is widened; and TensorFlow Lite Micro does not look
    at the option of a TRANSPOSE_CONV."""
    if bias is not None:
        return bias.dtype is DType.INT32 and node.op.kind != "DEPTHWISE_CONV_2D"
    is_told = node.op.kind in ("CONV_2D", "FULLY_CONNECTED")
    return is_told and bool(node.attributes.bias_type == TYPE_CODES[DType.INT32])


@dataclass(frozen=True, slots=True, eq=False)
class ChannelsS16:
    """`bias`: None stands for zeros. `is_wide`: sums are taken to need more than 32 bits."""

    output: Requantisation
    bias: Tensor | None
    is_wide: bool

    @classmethod
    def of(cls, node: Node, output: Requantisation, bias: Tensor | None) -> ChannelsS16:
        """What makes the outputs of a node."""
        require_types(DType.INT8, () if node.input(1).dtype is DType.INT4 else (node.input(1),))
        require_types(DType.INT16, (node.output,))
        is_narrow = has_narrow_sums(node, bias)
        require_types(DType.INT64, () if bias is None or bias.dtype is DType.INT32 else (bias,))
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


UNSIGNED_BIAS = 128
"""What a stored number of an unsigned type has more than the signed one that stands for the same."""

_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")

CHANNELS_OF_A_BLOCK = 8
"""Output channels that a kernel in order BLOCKS computes together, as in `_dot_s8.h` and `_dot_f32.h`."""

BY_CHANNEL = frozenset(("filter", "bias", "mantissa", "shift", "scales"))
"""The tables of which each output channel has a part."""


def bias_of(node: Node) -> Tensor | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def requantisation_of(node: Node, axis: int) -> Requantisation:
    """With a multiplier for each channel along the filter's `axis`. The product of the scales of unsigned numbers is
    rounded to float32."""
    unit, output = scale_of(node.input(0)), scale_of(node.output)
    scales = channel_scales(node.input(1), axis)
    if rounds_to_even(node.output):
        factors = np.float32(unit) * np.array(scales, dtype=np.float32) / np.float32(output)
        return Requantisation.of([float(factor) for factor in factors], node.output, node.attributes.activation)
    products = [unit * scale for scale in scales]
    if node.input(0).dtype is DType.UINT8:
        products = [float(np.float32(product)) for product in products]
    return Requantisation.of([product / output for product in products], node.output, node.attributes.activation)


def finished(node: Node, axis: int, sums: Array, bias: Array | None) -> Array:
    """An output from the sums of its products. `axis`: that of the output channels in the filter."""
    dtype = node.input(0).dtype
    if dtype is DType.FLOAT32:
        return finished_f32(node, sums, bias)
    if is_rounded_once(node):
        return rounded_once(node, sums, bias)
    output = requantisation_of(node, axis)
    if dtype is DType.INT16:
        return ChannelsS16.of(node, output, bias_of(node)).apply(sums, bias)
    whole = sums.astype(np.int64) + (0 if bias is None else bias.reshape(-1))
    return output.apply(whole).astype(node.output.dtype.numpy)


def is_rounded_once(node: Node) -> bool:
    """Whether sums are scaled in float64 and rounded once: in dense layers that LiteRT has and TensorFlow Lite Micro
    has not, which are those of unsigned numbers, and of 4-bit weights with several scales."""
    return node.op.kind == "FULLY_CONNECTED" and kernel_suffix(node) in ("s4_once", "u8")


def rounded_once(node: Node, sums: Array, bias: Array | None) -> Array:
    """Outputs of a dense layer from the sums of their products, as LiteRT's reference kernels make them."""
    factors = np.array([scale_of(node.input(0)) * s for s in channel_scales(node.input(1), 0)]) / scale_of(node.output)
    real = wrapped(sums.astype(np.int64) + (0 if bias is None else bias.reshape(-1))) * factors
    whole = np.trunc(real)
    nearest = whole + np.sign(real) * (np.abs(real - whole) >= 0.5)
    low, high = integer_range(node.attributes.activation, node.output)
    stored: Array = np.clip(nearest + zero_point_of(node.output), low, high).astype(node.output.dtype.numpy)
    return stored


def finished_f32(node: Node, sums: Array, bias: Array | None) -> Array:
    """A float32 output from the sums of its products."""
    whole: Array = clamped(sums if bias is None else sums + bias.reshape(-1), *real_range(node.attributes.activation))
    return whole


def is_hybrid(node: Node) -> bool:
    """Whether it multiplies float32 data with weights of 8 or 4 bits."""
    is_real = node.op.kind in _WEIGHTED and node.input(0).dtype is DType.FLOAT32
    return is_real and node.input(1).dtype in NARROW_WEIGHTS


def kernel_suffix(node: Node) -> str:
    """What the name of a kernel for the types of data and weights ends with."""
    data, weights = node.input(0).dtype, node.input(1).dtype
    if is_hybrid(node):
        return "w8_f32"
    if (data, weights) == (DType.FLOAT32, DType.FLOAT16):
        return "w16_f32"
    if (data, weights) != (DType.INT8, DType.INT4):
        return SUFFIXES[data]
    has_scales = node.op.kind == "FULLY_CONNECTED" and quantisation_of(node.input(1)).per_channel
    return "s4_once" if has_scales and not rounds_to_even(node.output) else "s4"


def filter_fields(node: Node, axis: int, weights: Array, stored: Array | None = None) -> Fields:
    """Filter, biases and scales, as kernels for the type of the input have them. `weights`: a row for each output
    channel; `stored`: the same in the order in which the kernel wants them, if that is another."""
    dtype = node.input(0).dtype
    kept = weights if stored is None else stored
    if dtype is DType.FLOAT32:
        if not np.isfinite(weights).all():
            raise Unsupported("weights that are not finite")  # What lies beyond an image is 0, and 0 times them is not.
        return _fields_f32(node, axis, weights, kept)
    output = requantisation_of(node, axis)
    fields = {DType.INT16: _fields_s16, DType.UINT8: _fields_u8}.get(dtype, _fields_s8)
    return fields(node, weights, output, kept)


def _fields_s8(node: Node, weights: Array, output: Requantisation, stored: Array) -> Fields:
    bias = bias_of(node)
    require_types(DType.INT8, (node.output,) if node.input(1).dtype is DType.INT4 else (node.input(1), node.output))
    require_types(DType.INT32, () if bias is None else (bias,))
    folded = folded_bias(None if bias is None else values_of(bias), weights, zero_point_of(node.input(0)))
    rows = weights.reshape(len(weights), -1).astype(np.int64)
    line = fitted(rows, folded.astype(np.int64), output) if output.is_rounded_once else None
    if line is not None:
        folded = np.where(line.has_line, line.starts, folded)
        numbers = np.where(line.has_line, line.multipliers, output.mantissas)
        output = replace(output, mantissas=numbers, shifts=line.shifts)
    return {"filter": CTable("filter", stored), "output": output.c_channels(folded)}


def _fields_u8(node: Node, weights: Array, output: Requantisation, stored: Array) -> Fields:
    """Weights are kept as signed numbers, 128 less than in the file, and so is their zero point."""
    bias, filters = bias_of(node), node.input(1)
    require_types(DType.UINT8, (filters, node.output))
    require_types(DType.INT32, () if bias is None else (bias,))
    zero_point = zero_point_of(filters)
    given = None if bias is None else values_of(bias)
    folded = folded_bias(given, weights.astype(np.int64) - zero_point, zero_point_of(node.input(0)))
    return {
        "filter": CTable("filter", (stored.astype(np.int16) - UNSIGNED_BIAS).astype(np.int8)),
        "filter_zero_point": zero_point - UNSIGNED_BIAS,
        "output": output.c_channels(folded),
    }


def _fields_s16(node: Node, weights: Array, output: Requantisation, stored: Array) -> Fields:
    channels = ChannelsS16.of(node, output, bias_of(node))
    return {"filter": CTable("filter", stored), "output": channels.c_struct()}


def _fields_f32(node: Node, axis: int, weights: Array, stored: Array) -> Fields:
    """Weights of 8 bits stay what they are, with a scale for each channel; those of half precision too, as bits."""
    bias, kept = bias_of(node), node.input(1)
    is_narrow, is_half = kept.dtype in NARROW_WEIGHTS, kept.dtype is DType.FLOAT16
    is_kept = is_narrow or is_half
    require_types(DType.FLOAT32, (*(() if is_kept else (kept,)), node.output, *(() if bias is None else (bias,))))
    values = np.zeros(len(weights), np.float32) if bias is None else values_of(bias)
    low, high = real_range(node.attributes.activation)
    filters = CTable("filter", stored.astype(np.float16).view(np.uint16) if is_half else stored)
    output = CStruct("diagmem_channels_f32", {"bias": CTable("bias", values), "low": low, "high": high})
    scales = np.array(channel_scales(kept, axis), np.float32) if is_narrow else None
    return {"filter": filters, **({} if scales is None else {"scales": CTable("scales", scales)}), "output": output}


def window_call(
    stem: str, node: Node, loop: WindowedLoop, own: Fields, axis: int, weights: Array, stored: Array | None = None
) -> CCall:
    """The call of a windowed kernel, by its name without the type. `own`: fields that it has beside the usual ones."""
    windowed = {"window": c_window(loop), "padding": c_padding(node, loop)}
    fields = {**own, **windowed, **filter_fields(node, axis, weights, stored)}
    arguments, limits = (node.input(0), node.output), window_limits(loop)
    return kernel_call(f"{stem}_{kernel_suffix(node)}", fields, arguments, limits, loop.output_pixels)


def c_padding(node: Node, loop: WindowedLoop) -> CTable | None:
    """What taps outside the image read, the stored value of 0 for each channel; None where no window has any."""
    taps, dtype = loop.rows.kernel * loop.cols.kernel, node.input(0).dtype
    if tap_counts(loop.rows, loop.cols).min() == taps:
        return None
    zero = zero_point_of(node.input(0)) if dtype in (DType.INT8, DType.UINT8) else 0
    return CTable("padding", np.full(loop.image.depth, zero, dtype.numpy))


def interleaved(node: Node, weights: Array, together: int = CHANNELS_OF_A_BLOCK) -> Array:
    """Weights in blocks of output channels, channels last within a block; `weights`: a row for each channel."""
    is_packed = kernel_suffix(node).startswith("s4")
    rows = weights.reshape(len(weights), -1)
    blocks = (rows[c : c + together].T for c in range(0, len(rows), together))
    return np.concatenate([(halves(block) if is_packed else block).reshape(-1) for block in blocks])


def halves(rows: Array) -> Array:
    """Numbers of 4 bits, two in a byte, the first in its lower half; each row fills whole bytes."""
    even = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2))).astype(np.uint8) & 15
    packed: Array = even[:, ::2] | even[:, 1::2] << 4
    return packed


def block_start(channels: int) -> int:
    """How many output channels come before the last block."""
    return (channels - 1) // CHANNELS_OF_A_BLOCK * CHANNELS_OF_A_BLOCK
