"""Weights, biases and multipliers as the kernels for cores with Helium want them: see `_mve.h` and `_mve_dot_s8.h`."""

from __future__ import annotations

import numpy as np

from diagmem.ops.c_call import CStruct, CTable
from diagmem.ops.kind import Array
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import INT8, Channels

TOGETHER = 8
"""Channels that are computed together."""

VECTOR_BYTES = 16

IN_LANES = (0, 2, 4, 6, 1, 3, 5, 7)
"""Channels of eight: the even ones, then the odd ones."""

AS_SUMMED = (0, 4, 2, 6, 1, 5, 3, 7)
"""The same in the order in which their sums are put into these lanes."""


def filled_up(size: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-size // unit) * unit


def c_eights(channels: Channels) -> CStruct:
    """The `diagmem_eights_s8` of a pixel's channels."""
    output, count = channels.output, len(channels.bias)
    is_whole = (output.low, output.high) == INT8
    is_positive = channels.is_positive and is_whole and int(output.shifts.max()) <= 0
    bias, mantissas, shifts = (
        np.pad(row, (0, -count % TOGETHER)).reshape(-1, TOGETHER)[:, IN_LANES]
        for row in (channels.bias, output.mantissas, output.shifts)
    )
    packed = np.ascontiguousarray(shifts.astype(np.int8)).view("<i4")
    fields = {
        "channels": count,
        "zero_point": output.zero_point,
        "low": output.low,
        "high": output.high,
        "is_positive": int(is_positive),
        "eights": CTable("eights", np.concatenate([bias, mantissas, packed], axis=1).astype(np.int32)),
    }
    return CStruct("diagmem_eights_s8", fields)


def vectors_of(weights: Ints) -> CTable:
    """The weights of each channel, a row each, in vectors, filled up with zeros: of two channels at a time, in the
    order of their sums, one vector each, then the next."""
    channels, size = weights.shape
    filled = np.pad(weights, ((0, -channels % TOGETHER), (0, -size % VECTOR_BYTES)))
    eights = filled.reshape(-1, TOGETHER, filled.shape[1])[:, AS_SUMMED]
    groups = eights.reshape(-1, 2, filled.shape[1] // VECTOR_BYTES, VECTOR_BYTES).swapaxes(1, 2)
    return CTable("filter", groups.astype(np.int8))


def taps_of(weights: Ints) -> Array:
    """The weights of a depthwise convolution, a row for each channel: for each eight channels tap by tap."""
    channels, taps = weights.shape
    filled = np.pad(weights, ((0, -channels % TOGETHER), (0, 0)))
    in_eights: Array = filled.reshape(-1, TOGETHER, taps).swapaxes(1, 2).astype(np.int8)
    return in_eights
