"""CONV_2D on 8-bit integers for cores with Helium: two pixels together over a buffer, or single ones without."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.graph import Node
from diagmem.ops.c_call import MAX_ROWS, CCall, CScratch, kernel_call, values_of
from diagmem.ops.c_rows import window_row_call
from diagmem.ops.loops.c_window import c_window
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.numerics.packed import Channels
from diagmem.ops.numerics.quantised import zero_point_of
from diagmem.ops.numerics.vectors import VECTOR_BYTES, c_eights, filled_up, vectors_of
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant


@dataclass(frozen=True, slots=True)
class MveConv2D:
    """The kernels for a node. `loop`: its loops, row by row; `whole`: as they are if all of it is run."""

    node: Node
    loop: WindowedLoop
    whole: WindowedLoop

    def variants(self) -> tuple[Variant, ...]:
        """The fastest first. A window of one pixel is in one piece where it lies, so that it needs no buffer."""
        axes, out = (self.loop.rows, self.loop.cols), self.loop.out
        pairs = Variant(Order.PAIRS, Order.ROW_PAIRS, self._pairs, self._pairs_row, 2 * self._buffered)
        point = Variant(Order.BLOCKS, Order.BLOCKS, self._point, self._point_row)
        is_point = all(axis.kernel == 1 and len(axis.taps()[0]) == axis.size_out for axis in axes)
        is_single = out.height * out.width == 1
        return (*(() if is_point and is_single else (pairs,)), *((point,) if is_point else ()))

    @property
    def _buffered(self) -> int:
        """Inputs of a window in the buffer, with what fills them up."""
        return filled_up(self.loop.rows.kernel * self.loop.cols.kernel * self.loop.image.depth, VECTOR_BYTES)

    @property
    def _channels(self) -> Channels:
        return Channels.of(self.node, 0, values_of(self.node.input(1)))

    def _pairs(self, node: Node) -> CCall:
        return self._pairs_call(self.whole)

    def _pairs_row(self, node: Node) -> CCall:
        return window_row_call(self._pairs_call(self.loop), node, self.loop.rows)

    def _pairs_call(self, loop: WindowedLoop) -> CCall:
        channels = self._channels
        fields = {
            "window": c_window(loop),
            "zero": zero_point_of(self.node.input(0)),
            "size": self._buffered,
            "filter": vectors_of(channels.weights),
            "output": c_eights(channels),
        }
        arguments = self.node.input(0), self.node.output, CScratch()
        limits = {MAX_ROWS: loop.rows.kernel}
        return kernel_call("conv_2d_mve_s8", fields, arguments, limits, loop.output_pairs)

    def _point(self, node: Node) -> CCall:
        channels = self._channels
        fields = {
            "window": c_window(self.loop),
            "filter": vectors_of(channels.weights),
            "output": c_eights(channels),
        }
        arguments = node.input(0), node.output
        return kernel_call("conv_2d_point_mve_s8", fields, arguments, passes=self.loop.output_pixels)

    def _point_row(self, node: Node) -> CCall:
        return window_row_call(self._point(node), node, self.loop.rows)
