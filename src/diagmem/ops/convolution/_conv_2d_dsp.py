"""CONV_2D on 8-bit integers for cores with the DSP extension: two pixels together over a buffer, or one without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.graph import Node
from diagmem.ops.c_call import MAX_ROWS, CCall, CName, CScratch, CStruct, CTable, kernel_call, values_of
from diagmem.ops.c_rows import window_row_call
from diagmem.ops.loops.c_window import c_window, window_limits
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.numerics.fitted import fitted, fitted_blocks
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.packed import Channels, blocks_of_four, bytes_of, c_packed, packed_channels
from diagmem.ops.numerics.weighted_sums import CHANNELS_OF_A_BLOCK, c_padding
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant

COLUMNS = 8
"""The buffer holds a multiple of so many inputs of a window."""

TOGETHER = 4
"""Channels of a pixel are widened in so many at once."""

LEAST_DEPTH = 4
"""From so many output channels on it is worth widening a window first."""

LEAST_SINGLES = 8
"""From so many pixels without a neighbour on it is worth having code for sixteen of their inputs at once."""


@dataclass(frozen=True, slots=True)
class DspConv2D:
    """The kernels for a node. `loop`: its loops, row by row; `whole`: as they are if all of it is run. `plain`: its
    call in plain C, for weights that cannot be packed."""

    node: Node
    loop: WindowedLoop
    whole: WindowedLoop
    plain: Callable[[Node], CCall]

    def variants(self) -> tuple[Variant, ...]:
        """The fastest first."""
        out, is_even = self.loop.out, self.loop.image.depth % TOGETHER == 0
        pairs = Variant(Order.PAIRS, Order.ROW_PAIRS, self._pairs, self._pairs_row, self._buffer_bytes)
        direct = Variant(Order.BLOCKS, Order.BLOCKS, self._direct, self._direct_row, block=CHANNELS_OF_A_BLOCK)
        has_pairs = out.height * out.width > 1 and out.depth >= LEAST_DEPTH
        return (*((pairs,) if has_pairs else ()), *((direct,) if is_even else ()))

    @property
    def _buffered(self) -> int:
        """Inputs of a window in the buffer, with what fills them up."""
        size = self.loop.rows.kernel * 2 * len(_words(self._in_row))
        return -(-size // COLUMNS) * COLUMNS

    @property
    def _in_row(self) -> int:
        """Inputs in a row of the window."""
        return self.loop.cols.kernel * self.loop.image.depth

    @property
    def _buffer_bytes(self) -> int:
        """16 bits for each input of two pixels; and room to collect two rows of windows where channels do not come in
        fours."""
        return 4 * self._buffered + (2 * self._in_row if self.loop.image.depth % TOGETHER else 0)

    @property
    def _channels(self) -> Channels:
        return Channels.of(self.node, 0, values_of(self.node.input(1)))

    def _in_buffer(self, weights: Ints) -> Ints:
        """The weights of each channel as they meet the words of the buffer, two each."""
        rows = weights.reshape(len(weights), -1, self._in_row)
        met = np.pad(rows, ((0, 0), (0, 0), (0, 1)))[:, :, _words(self._in_row)].reshape(len(rows), -1, 2)
        return np.pad(met, ((0, 0), (0, self._buffered // 2 - met.shape[1]), (0, 0)))

    def _pairs(self, node: Node) -> CCall:
        return self._pairs_call(self.whole)

    def _pairs_row(self, node: Node) -> CCall:
        return window_row_call(self._pairs_call(self.loop), node, self.loop.rows)

    def _pairs_call(self, loop: WindowedLoop) -> CCall:
        size, channels = self._buffered, self._channels
        weights = self._in_buffer(channels.weights)
        fields = {
            "window": c_window(loop),
            "paired": CStruct("diagmem_paired", {"size": size, "padding": c_padding(self.node, self.loop)}),
        }
        arguments = self.node.input(0), self.node.output, CScratch()
        made = _blocks(channels, weights)
        if made is None:
            own = {"filter": CTable("filter", bytes_of(weights)), "output": channels.c_output()}
            return kernel_call("conv_2d_wide_pairs_s8", {**fields, **own}, arguments, _limits(loop), loop.output_pixels)
        (how, blocks), inputs = made, 8 if size % 16 else 16
        singles = loop.out.height * (loop.out.width % 2)
        two = CName(f"diagmem_two_{how}_{inputs}_s8")
        one = CName(f"diagmem_one_{how}_{inputs if singles >= LEAST_SINGLES else 8}_s8")
        own = {"two": two, "one": one, "blocks": blocks}
        return kernel_call("conv_2d_pairs_s8", {**fields, **own}, arguments, _limits(loop), loop.output_pairs)

    def _direct(self, node: Node) -> CCall:
        output = c_packed(self._channels)
        if output is None:
            return self.plain(node)
        fields = {"window": c_window(self.loop), "padding": c_padding(node, self.loop), "output": output}
        arguments, limits = (node.input(0), node.output), window_limits(self.loop)
        call = kernel_call("conv_2d_direct_s8", fields, arguments, limits, self.loop.output_pixels)
        return replace(call, channels=packed_channels(self.loop.rows.kernel * self._in_row, "window.out_depth"))

    def _direct_row(self, node: Node) -> CCall:
        return window_row_call(self._direct(node), node, self.loop.rows)


def _blocks(channels: Channels, weights: Ints) -> tuple[str, CTable] | None:
    """Weights and constants for the kernels of this name; None where the numbers do not allow any."""
    short = fitted(channels)
    if short is not None:
        blocks = fitted_blocks(short, weights)
        return None if blocks is None else (f"fitted_{short.shift}", blocks)
    blocks = blocks_of_four(channels, weights)
    return None if blocks is None else ("positive" if channels.is_positive else "any", blocks)


def _words(count: int) -> list[tuple[int, int]]:
    """The numbers of the inputs of a row of the window that share words of the buffer; `count` stands for none."""
    fours, last = count // 4 * 4, count - 1
    found = [pair for first in range(0, fours, 4) for pair in ((first, first + 2), (first + 1, first + 3))]
    if count % 4 >= 2:
        found.append((fours, fours + 1))
    return [*found, (last, count)] if count % 2 else found


def _limits(loop: WindowedLoop) -> dict[str, int]:
    return {MAX_ROWS: loop.rows.kernel}
