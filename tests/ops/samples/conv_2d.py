"""How the tests draw the operations of `convolution/conv_2d.py`."""

from __future__ import annotations

from diagmem.model.graph import Node
from diagmem.ops.convolution.conv_2d import Conv2D, Conv2DKind
from tests.ops.samples.convolution import ConvolutionSamples
from tests.ops.sampling import Draw, activation, node_of


class Conv2DSamples(ConvolutionSamples, of=Conv2DKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any padding, stride, dilation and grouping; without groups now and then more channels than a block has."""
        window = draw.window()
        groups, depth_in, depth_out = draw.small(), draw.small(), draw.small()
        channels = groups * depth_out if groups > 1 else draw.choice((depth_out, 8 + depth_out))
        inputs = [
            activation((draw.small(), *window.image, groups * depth_in), draw.dtype()),
            draw.operand((channels, *window.kernel, depth_in)),
            draw.choice((None, draw.operand((channels,)))),
        ]
        attributes = Conv2D(window.padding, *window.stride, *window.dilation, draw.fused())
        return node_of(self.kind, name, attributes, inputs, (draw.dtype(),))
