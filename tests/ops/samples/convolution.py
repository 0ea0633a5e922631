"""How the tests draw the operations of `convolution/_convolution.py`."""

from __future__ import annotations

from diagmem.model.graph import Node
from diagmem.ops.convolution._convolution import ConvolutionKind
from tests.ops.sampling import Fitting, Samples, weighted_fitting


class ConvolutionSamples(Samples, of=ConvolutionKind):
    def fitting(self, node: Node) -> Fitting:
        return weighted_fitting(self.kind, node, self.kind.axis)
