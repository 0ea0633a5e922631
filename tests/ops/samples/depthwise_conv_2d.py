"""How the tests draw the operations of `convolution/depthwise_conv_2d.py`."""

from __future__ import annotations

from diagmem.model.graph import Node
from diagmem.ops.convolution.depthwise_conv_2d import DepthwiseConv2D, DepthwiseConv2DKind
from tests.ops.samples.convolution import ConvolutionSamples
from tests.ops.sampling import Draw, activation, node_of


class DepthwiseConv2DSamples(ConvolutionSamples, of=DepthwiseConv2DKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any padding, stride, dilation and multiplier."""
        window = draw.window()
        depth, multiplier = draw.small(), draw.small()
        inputs = [
            activation((draw.small(), *window.image, depth), draw.dtype()),
            draw.operand((1, *window.kernel, depth * multiplier)),
            draw.choice((None, draw.operand((depth * multiplier,)))),
        ]
        attributes = DepthwiseConv2D(window.padding, *window.stride, *window.dilation, multiplier, draw.fused())
        return node_of(self.kind, name, attributes, inputs, (draw.dtype(),))
