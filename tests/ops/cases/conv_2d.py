from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.convolution.conv_2d import Conv2D
from tests.ops.cases import DTYPES, SMALL, activation, node_of, operand, windows


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any padding, stride, dilation and grouping."""
    window = draw(windows())
    groups, depth_in, depth_out = draw(SMALL), draw(SMALL), draw(SMALL)
    inputs = [
        activation((draw(SMALL), *window.image, groups * depth_in), draw(DTYPES)),
        draw(operand((groups * depth_out, *window.kernel, depth_in))),
        draw(st.none() | operand((groups * depth_out,))),
    ]
    attributes = Conv2D(window.padding, *window.stride, *window.dilation)
    return node_of("CONV_2D", attributes, inputs, (draw(DTYPES),))
