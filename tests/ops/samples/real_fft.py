"""How the tests draw the operations of `signal/real_fft.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.signal.real_fft import _TYPES, FORWARD, RealFft, RealFftKind
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of


class RealFftSamples(Samples, of=RealFftKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Powers of two; samples may be fewer."""
        size, dtype = 4 << draw.integer(0, 5), draw.choice(_TYPES)
        last = draw.choice((size, draw.integer(1, size + 1))) if name == FORWARD else size + 2
        data = activation((*draw.many(0, 2, draw.small), last), dtype)
        return node_of(self.kind, name, RealFft(size), [data], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        if tensor.dtype is DType.FLOAT32:
            return None
        largest = 1 << (tensor.dtype.bits - 1)
        found: Array = rng.integers(-largest, largest, tensor.shape)
        return found
