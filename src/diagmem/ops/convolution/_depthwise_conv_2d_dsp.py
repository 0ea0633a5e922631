"""DEPTHWISE_CONV_2D on 8-bit integers for cores with the DSP extension: four channels together, taps in pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.graph import Node
from diagmem.ops.c_call import CCall, CChannels, CName, CTable, kernel_call, values_of
from diagmem.ops.c_rows import window_row_call
from diagmem.ops.kind import Array
from diagmem.ops.loops.c_window import c_window, window_limits
from diagmem.ops.loops.channel_groups import GROUPS
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.numerics.fitted import Fitted, fitted
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import Channels, Packed, Words, stream, words, words_of
from diagmem.ops.numerics.weighted_sums import BY_CHANNEL, c_padding
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant

TOGETHER = GROUPS[Order.FOURS]

OWN_CHANNELS = CChannels(("window.in_depth", "window.out_depth"), BY_CHANNEL | {"padding", "blocks"}, are_of_input=True)
"""Each output channel is made of the input channel of its number."""


@dataclass(frozen=True, slots=True)
class DspDepthwiseConv2D:
    """The kernels for a node with an output channel for each input channel."""

    loop: WindowedLoop

    def variants(self) -> tuple[Variant, ...]:
        return (Variant(Order.FOURS, Order.FOURS, self._call, self._row_call),)

    def _row_call(self, node: Node) -> CCall:
        return window_row_call(self._call(node), node, self.loop.rows)

    def _call(self, node: Node) -> CCall:
        channels = Channels.of(node, 3, by_channel(values_of(node.input(1))))
        fields = {"window": c_window(self.loop), "padding": c_padding(node, self.loop)}
        arguments, limits, passes = (node.input(0), node.output), window_limits(self.loop), self.loop.output_pixels
        packed = channels.packed()
        if packed is None:
            own = {"filter": CTable("filter", channels.weights.astype(np.int8)), "output": channels.c_output()}
            wide = kernel_call("depthwise_conv_2d_wide_fours_s8", {**fields, **own}, arguments, limits, passes)
            return replace(wide, channels=OWN_CHANNELS)
        whole = len(channels.bias) // TOGETHER * TOGETHER
        short = fitted(channels)
        how = f"fitted_{short.shift}" if short else "positive" if channels.is_positive else "any"
        name = f"diagmem_{how}_fours_s8"
        is_3x3 = self.loop.rows.kernel == self.loop.cols.kernel == 3 and whole == len(channels.bias)
        own = {
            "is_positive": int(channels.is_positive),
            "inside": CName(f"{name}_inside") if is_3x3 else None,
            "taps": CName(f"{name}_taps") if whole else None,
            "blocks": _blocks(channels.weights, short or packed, whole) if whole else None,
            "ones": CName("diagmem_fours_rest_s8") if whole < len(channels.bias) else None,
            "rest": _rest(channels.weights, packed, whole) if whole < len(channels.bias) else None,
        }
        call = kernel_call("depthwise_conv_2d_fours_s8", {**fields, **own}, arguments, limits, passes)
        return replace(call, channels=OWN_CHANNELS)


def by_channel(filters: Array) -> Array:
    """The weights of each output channel side by side."""
    return np.ascontiguousarray(filters[0].reshape(-1, filters.shape[3]).T)


def _blocks(weights: Ints, found: Packed | Fitted, whole: int) -> CTable:
    """Of the first `whole` channels, in fours."""
    if isinstance(found, Fitted):
        starts, constants, weights = found.starts, words(found.multipliers), 256 * weights
    else:
        starts, constants = found.bias, found.constants
    parts: list[Words] = []
    for first in range(0, whole, TOGETHER):
        four = slice(first, first + TOGETHER)
        parts += [words(starts[four]), *_taps(weights[four]), constants[four]]
    return stream(parts)


def _taps(weights: Ints) -> list[Words]:
    """For each two taps a word for each of four channels; of a last tap the channels 0 and 2, then 1 and 3."""
    pairs = weights.shape[1] // 2
    found = [words_of(weights[:, 2 * t : 2 * t + 2]) for t in range(pairs)]
    last = weights[:, 2 * pairs :]
    return [*found, words_of(last.reshape(2, 2).T)] if last.size else found


def _rest(weights: Ints, packed: Packed, whole: int) -> CTable:
    """Bias, weights and constants of the channels from `whole` on."""
    rows = [words(packed.bias)[:, None], words(weights), packed.constants]
    return CTable("rest", np.concatenate(rows, axis=1)[whole:].astype(np.int32))
