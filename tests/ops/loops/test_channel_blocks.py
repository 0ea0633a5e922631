"""Loops over blocks of channels, with blocks small enough to be walked through byte by byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import DType, Nhwc, Window2D
from diagmem.ops.accesses import Accesses, replayed_separation
from diagmem.ops.convolution.depthwise_conv_2d import CHANNELS_OF_A_BLOCK, KIND, DepthwiseConv2D
from diagmem.ops.loops.pixels import ChannelBlocks
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.orders import Order
from tests.ops.cases import SMALL, activation, constant, node_of, windows
from tests.ops.simulation import survives
from tests.profiles import examples


@st.composite
def blocks(draw: st.DrawFn) -> ChannelBlocks:
    """Any window, batch, depth, multiplier and size of a block."""
    sliding, depth, multiplier = draw(windows()), draw(st.integers(1, 5)), draw(SMALL)
    image = Nhwc(draw(SMALL), *sliding.image, depth)
    window = Window2D.resolve(image, sliding.kernel, sliding.stride, sliding.dilation, sliding.padding)
    out = Nhwc(image.batch, window.rows.size_out, window.cols.size_out, depth * multiplier)
    sizes = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 4)))
    return ChannelBlocks(WindowedLoop(image, out, window.rows, window.cols, depth, *sizes), draw(SMALL))


@examples(150)
@given(blocks())
def test_separation_of_blocks_is_exact(blocks: ChannelBlocks) -> None:
    """Closed form == replay; the simulation is safe there, and catches one byte less."""
    loop = blocks.loop
    accesses = Accesses(loop.steps, (blocks.reads(),), (blocks.writes(),))
    sizes = loop.in_size, loop.out_size
    closed = blocks.separation()
    assert closed == replayed_separation(accesses, 0, 0, *sizes)
    if closed is not None:
        assert survives(accesses, 0, 0, sizes, closed)
        assert not survives(accesses, 0, 0, sizes, closed - 1)


def test_one_block_more_costs_the_overlap() -> None:
    """Up to a block's channels the loop is the plain one; one channel more, and a pixel's bytes may overlap at most,
    though a larger overlap would be safe again."""

    def overlap(depth: int) -> int:
        inputs = [activation((1, 8, 8, depth)), constant((1, 3, 3, depth))]
        node = node_of("DEPTHWISE_CONV_2D", DepthwiseConv2D(), inputs, (DType.INT8,))
        return node.output.size_bytes - KIND.separation(node, 0, Order.CHANNEL_BLOCKS)

    assert overlap(CHANNELS_OF_A_BLOCK) == (64 - 9) * CHANNELS_OF_A_BLOCK
    assert overlap(CHANNELS_OF_A_BLOCK + 1) == CHANNELS_OF_A_BLOCK + 1
