"""How the tests draw the operations of `normalisation/softmax.py`."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import QUANTISED_OR_FLOAT
from diagmem.ops.normalisation.softmax import (
    _MIDDLE,
    _OUTPUT_BITS,
    L2Normalization,
    L2NormalizationKind,
    Softmax,
    SoftmaxKind,
    _is_widening,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of


class SoftmaxSamples(Samples, of=SoftmaxKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Rows of any rank; the output's elements may be wider or narrower than the input's."""
        data = activation(draw.many(1, 5, draw.size), draw.dtype())
        attributes = Softmax(draw.choice((1.0, 0.5)) if name == "SOFTMAX" else 1.0)
        return node_of(self.kind, name, attributes, [data], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        if node.op.kind == "LOG_SOFTMAX":
            return Fitting((DType.INT8, DType.FLOAT32), fixed={DType.INT8: (1 / 16, 127)})
        if _is_widening(node):
            return Fitting((DType.INT8,), fixed={DType.INT8: (1 / 65536, -(2**15))}, draws_output_types=True)
        fixed = {DType.INT8: (1 / 256, -128), DType.UINT8: (1 / 256, 0), DType.INT16: (1 / 32768, 0)}
        return Fitting(QUANTISED_OR_FLOAT, fixed=fixed)


class L2NormalizationSamples(Samples, of=L2NormalizationKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Rows of any rank."""
        data = activation(draw.many(1, 5, draw.size), draw.dtype())
        return node_of(self.kind, name, L2Normalization(), [data], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        fixed = {dtype: (1 / 2**_OUTPUT_BITS, zero_point) for dtype, zero_point in _MIDDLE.items()}
        return Fitting((*_MIDDLE, DType.FLOAT32), fixed=fixed)
