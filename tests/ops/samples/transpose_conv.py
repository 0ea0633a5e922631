"""How the tests draw the operations of `convolution/transpose_conv.py`."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import Node, Window1D
from diagmem.ops.convolution.transpose_conv import IMAGE, TransposeConv, TransposeConvKind
from tests.ops.sampling import Draw, Fitting, Samples, activation, ints, node_of, weighted_fitting


class TransposeConvSamples(Samples, of=TransposeConvKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any padding, stride and window; strides above the window leave output pixels that nothing reaches."""
        window = draw.window(dilated=False)
        sizes = zip(window.image, window.kernel, window.stride, strict=True)
        image = [Window1D.resolve(out, kernel, stride, 1, window.padding).size_out for out, kernel, stride in sizes]
        batch, depth_in, depth_out = draw.small(), draw.small(), draw.small()
        inputs = [
            ints([batch, *window.image, depth_out]),
            draw.operand((depth_out, *window.kernel, depth_in)),
            activation((batch, *image, depth_in), draw.dtype()),
            draw.choice((None, draw.operand((depth_out,)))),
        ]
        attributes = TransposeConv(window.padding, *window.stride, draw.fused())
        return node_of(self.kind, name, attributes, inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return replace(weighted_fitting(self.kind, node, axis=0), data=IMAGE)
