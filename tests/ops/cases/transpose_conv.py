from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node, Window1D
from diagmem.ops.convolution.transpose_conv import TransposeConv
from tests.ops.cases import DTYPES, SMALL, activation, ints, node_of, operand, windows


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any padding, stride and window; strides above the window leave output pixels that nothing reaches."""
    window = draw(windows(dilated=False))
    sizes = zip(window.image, window.kernel, window.stride, strict=True)
    image = [Window1D.resolve(out, kernel, stride, 1, window.padding).size_out for out, kernel, stride in sizes]
    batch, depth_in, depth_out = draw(SMALL), draw(SMALL), draw(SMALL)
    inputs = [
        ints([batch, *window.image, depth_out]),
        draw(operand((depth_out, *window.kernel, depth_in))),
        activation((batch, *image, depth_in), draw(DTYPES)),
        draw(st.none() | operand((depth_out,))),
    ]
    return node_of("TRANSPOSE_CONV", TransposeConv(window.padding, *window.stride), inputs, (draw(DTYPES),))
