"""How the tests draw the operations of `elementwise/comparison.py`."""

from __future__ import annotations

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.elementwise.comparison import _SCALED, _TYPES, ComparisonKind, LogicalKind, SelectKind
from diagmem.ops.kind import Array
from diagmem.ops.loops.broadcast import broadcast_shape
from diagmem.ops.numerics.quantised import zero_point_of
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of

_EQUALITIES = ("EQUAL", "NOT_EQUAL")


class ComparisonSamples(Samples, of=ComparisonKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        return node_of(self.kind, name, None, draw.pair(), (DType.BOOL,))

    def fitting(self, node: Node) -> Fitting:
        types = (*_TYPES, DType.BOOL) if node.op.kind in _EQUALITIES else _TYPES
        return Fitting(types, gain=1, scaled=_SCALED, draws_output_types=True)

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Mostly one number, so that many are equal, and its neighbours; what is no number; where it is asked which is
        larger, now and then any numbers."""
        if tensor.dtype is DType.BOOL or (node.op.kind not in _EQUALITIES and rng.integers(2)):
            return None
        found: Array = rng.choice([0, 1, 1, 1, 1, 2], tensor.shape)
        if tensor.dtype is DType.FLOAT32:
            return np.where(rng.integers(0, 16, tensor.shape) == 0, np.nan, (found - 1) * 1.1)
        if tensor.quantisation is None:
            return found
        limits = np.iinfo(tensor.dtype.numpy)
        near: Array = np.clip(found - 1 + zero_point_of(tensor), limits.min, limits.max)
        return near


class LogicalSamples(Samples, of=LogicalKind):
    needs = Fitting((DType.BOOL,), scaled=())

    def sample(self, name: str, draw: Draw) -> Node:
        """Both inputs may be repeated, each along its own axes; one may be constant."""
        return node_of(self.kind, name, None, draw.pair(DType.BOOL), (DType.BOOL,))


class SelectSamples(Samples, of=SelectKind):
    needs = Fitting(data=1)

    def sample(self, name: str, draw: Draw) -> Node:
        """All inputs may be repeated, each along its own axes; the numbers may be constant."""
        dtype = draw.dtype()
        if name == "SELECT":
            shape = draw.shape()
            inputs = [activation(shape, DType.BOOL), activation(shape, dtype), activation(shape, dtype)]
            return node_of(self.kind, name, None, inputs, (dtype,))
        yes, no = draw.pair(dtype)
        condition = activation(draw.shrunk(broadcast_shape(yes.shape, no.shape)), DType.BOOL)
        return node_of(self.kind, name, None, [condition, yes, no], (dtype,))
