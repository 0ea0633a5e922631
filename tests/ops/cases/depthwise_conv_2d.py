from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D
from tests.ops.cases import DTYPES, SMALL, activation, node_of, operand, windows


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any padding, stride, dilation and multiplier."""
    window = draw(windows())
    depth, multiplier = draw(SMALL), draw(SMALL)
    inputs = [
        activation((draw(SMALL), *window.image, depth), draw(DTYPES)),
        draw(operand((1, *window.kernel, depth * multiplier))),
        draw(st.none() | operand((depth * multiplier,))),
    ]
    attributes = DepthwiseConv2D(window.padding, *window.stride, *window.dilation, multiplier)
    return node_of("DEPTHWISE_CONV_2D", attributes, inputs, (draw(DTYPES),))
