"""How the tests draw the operations of `matrix/products.py`."""

from __future__ import annotations

import math
from dataclasses import replace

from diagmem.model.graph import Node
from diagmem.ops.matrix.products import _BATCH_TYPES, BatchMatMul, BatchMatmulKind, FullyConnected, FullyConnectedKind
from tests.ops.sampling import OPERAND_SIZE, Draw, Fitting, Samples, activation, node_of, weighted_fitting


class FullyConnectedSamples(Samples, of=FullyConnectedKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """One or more rows, of more outputs than a block has now and then; the data may have any shape that the weights
        divide, or be an image that is a single row of them."""
        outputs, size = draw.integer(1, 12), draw.size()
        attributes = FullyConnected(draw.fused(), keep_num_dims=draw.boolean())
        data = activation((*draw.many(0, 4, draw.small), size), draw.dtype())
        if len(data.shape) == 4 and not attributes.keep_num_dims and draw.boolean():
            data = replace(data, shape=(1, *data.shape[1:]))
            size = data.elems
        inputs = [data, draw.operand((outputs, size)), draw.choice((None, draw.operand((outputs,))))]
        return node_of(self.kind, name, attributes, inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return weighted_fitting(self.kind, node, axis=0)


class BatchMatmulSamples(Samples, of=BatchMatmulKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Either side stored transposed; batch axes of either side broadcast or missing."""
        attributes = BatchMatMul(draw.boolean(), draw.boolean())
        rows, depth, columns = (draw.integer(1, 6) for _ in range(3))
        batch = draw.many(0, 3, draw.small)
        left, right = ([draw.choice((1, size)) for size in batch] for _ in range(2))
        left, right = left[draw.integer(0, len(left) + 1) :], right[draw.integer(0, len(right) + 1) :]
        x = (*left, depth, rows) if attributes.adj_x else (*left, rows, depth)
        y = (*right, columns, depth) if attributes.adj_y else (*right, depth, columns)
        return node_of(self.kind, name, attributes, [activation(x, draw.dtype()), draw.operand(y)], (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(_BATCH_TYPES, gain=OPERAND_SIZE * math.sqrt(self.kind.macs(node) / max(1, node.output.elems)))
