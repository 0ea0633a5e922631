"""DEPTHWISE_CONV_2D on 8-bit integers for cores with Helium: eight channels together."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.graph import Node
from diagmem.ops.c_call import CCall, CTable, kernel_call, values_of
from diagmem.ops.c_rows import window_row_call
from diagmem.ops.convolution._depthwise_conv_2d_dsp import by_channel
from diagmem.ops.loops.c_window import c_window, window_limits
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.numerics.packed import Channels
from diagmem.ops.numerics.vectors import c_eights, taps_of
from diagmem.ops.numerics.weighted_sums import c_padding
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant


@dataclass(frozen=True, slots=True)
class MveDepthwiseConv2D:
    """The kernel for a node with an output channel for each input channel."""

    loop: WindowedLoop

    def variants(self) -> tuple[Variant, ...]:
        return (Variant(Order.EIGHTS, Order.EIGHTS, self._call, self._row_call),)

    def _row_call(self, node: Node) -> CCall:
        return window_row_call(self._call(node), node, self.loop.rows)

    def _call(self, node: Node) -> CCall:
        channels = Channels.of(node, 3, by_channel(values_of(node.input(1))))
        fields = {
            "window": c_window(self.loop),
            "padding": c_padding(node, self.loop),
            "filter": CTable("filter", taps_of(channels.weights)),
            "output": c_eights(channels),
        }
        arguments, limits = (node.input(0), node.output), window_limits(self.loop)
        return kernel_call("depthwise_conv_2d_mve_s8", fields, arguments, limits, self.loop.output_pixels)
