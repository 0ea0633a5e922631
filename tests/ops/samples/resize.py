"""How the tests draw the operations of `resizing/resize.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import QUANTISED_OR_FLOAT
from diagmem.ops.kind import Array
from diagmem.ops.resizing.resize import Resize, ResizeKind
from tests.ops.sampling import Draw, Fitting, Samples, activation, ints, node_of


class ResizeSamples(Samples, of=ResizeKind):
    needs = Fitting(QUANTISED_OR_FLOAT)

    def sample(self, name: str, draw: Draw) -> Node:
        """Larger and smaller, by every rule; integers and floats round differently. The size may come at run time."""
        rule = draw.choice((Resize(), Resize(align_corners=True), Resize(half_pixel_centers=True)))
        image = activation((draw.small(), draw.size(), draw.size(), draw.small()), draw.dtype())
        height, width = draw.integer(1, 10), draw.integer(1, 10)
        size = draw.choice((ints([height, width]), activation((2,), DType.INT32)))
        out_shape = (image.shape[0], height, width, image.shape[3])
        return node_of(self.kind, name, rule, [image, size], (draw.dtype(),), (out_shape,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        return np.array(node.output.shape[1:3]) if position == 1 else None
