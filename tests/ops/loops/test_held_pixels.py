"""Loops that keep whole pixels in hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import Nhwc, Window2D
from diagmem.ops.accesses import Accesses, Runs, replayed_separation
from diagmem.ops.convolution.conv_2d import KIND, Conv2D
from diagmem.ops.loops.pixels import HeldPixels
from diagmem.ops.loops.windowed import WindowedLoop
from diagmem.ops.orders import Order
from tests.ops.cases import SMALL, activation, constant, node_of, windows
from tests.ops.simulation import survives
from tests.profiles import examples


@st.composite
def held_pixels(draw: st.DrawFn) -> HeldPixels:
    """Any window, batch and depths; from a pixel that is only read before it is written to rows that stay in hand."""
    sliding, depth = draw(windows()), draw(SMALL)
    image = Nhwc(draw(SMALL), *sliding.image, draw(SMALL))
    window = Window2D.resolve(image, sliding.kernel, sliding.stride, sliding.dilation, sliding.padding)
    out = Nhwc(image.batch, window.rows.size_out, window.cols.size_out, depth)
    sizes = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 4)))
    loop = WindowedLoop(image, out, window.rows, window.cols, 1, *sizes)
    return HeldPixels(loop, draw(st.integers(0, 4)), draw(st.integers(0, depth)))


@examples(150)
@given(held_pixels())
def test_separation_of_held_pixels_is_exact(held: HeldPixels) -> None:
    """Closed form == replay; the simulation is safe there, and catches one byte less."""
    loop = held.loop
    accesses = Accesses(held.steps, (held.reads(),), (Runs.sweep(loop.steps),))
    sizes = loop.in_size, loop.out_size
    closed = held.separation()
    assert closed == replayed_separation(accesses, 0, 0, *sizes)
    if closed is not None:
        assert survives(accesses, 0, 0, sizes, closed)
        assert not survives(accesses, 0, 0, sizes, closed - 1)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 7), (3, 2, 2), (2, 5, 3)])
@pytest.mark.parametrize(("depth_in", "depth_out"), [(1, 1), (2, 3), (3, 2)])
def test_pointwise_convolutions_know_no_rows(shape: tuple[int, int, int], depth_in: int, depth_out: int) -> None:
    """Four pixels at a time go across the ends of rows and images: as if all stood in one row."""
    filters = constant((depth_out, 1, 1, depth_in))
    pixels = shape[0] * shape[1] * shape[2]
    node = node_of("CONV_2D", Conv2D(), [activation((*shape, depth_in)), filters])
    flat = node_of("CONV_2D", Conv2D(), [activation((1, 1, pixels, depth_in)), filters])
    closed = KIND.closed_separation(node, 0, Order.QUADS, 0)
    assert closed == KIND.closed_separation(flat, 0, Order.QUADS, 0)
    assert closed == replayed_separation(KIND.accesses(node, Order.QUADS), 0, 0, 1, 1)
