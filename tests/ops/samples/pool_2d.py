"""How the tests draw the operations of `pooling/pool_2d.py`."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import QUANTISED_OR_FLOAT
from diagmem.ops.pooling.pool_2d import Pool2D, Pool2DKind
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of


class Pool2DSamples(Samples, of=Pool2DKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any padding, stride and window."""
        window = draw.window(dilated=False)
        image = activation((draw.small(), *window.image, draw.small()), draw.dtype())
        attributes = Pool2D(window.padding, *window.stride, *window.kernel, draw.fused())
        return node_of(self.kind, name, attributes, [image], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return Fitting((DType.FLOAT32,)) if node.op.kind == "L2_POOL_2D" else Fitting(QUANTISED_OR_FLOAT)
