"""How the tests draw the operations of `moving/space_batch.py`."""

from __future__ import annotations

import math

from diagmem.model.graph import Node
from diagmem.ops.moving.space_batch import SpaceBatchKind
from tests.ops.sampling import Draw, Samples, activation, ints, node_of


class SpaceBatchSamples(Samples, of=SpaceBatchKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Blocks along one or two axes, padded or cropped, with and without channels."""
        dtype, block = draw.dtype(), draw.many(1, 3, draw.small)
        batch, depth = draw.small(), draw.many(0, 2, draw.small)
        spread = [draw.small() * b for b in block]
        margins = [_drawn_margins(size, draw) for size in spread]
        if name == "SPACE_TO_BATCH_ND":
            inner = [size - sum(m) for size, m in zip(spread, margins, strict=True)]
            shape = (batch, *inner, *depth)
        else:
            shape = (batch * math.prod(block), *(s // b for s, b in zip(spread, block, strict=True)), *depth)
        return node_of(self.kind, name, None, [activation(shape, dtype), ints(block), ints(margins)], (dtype,))


def _drawn_margins(size: int, draw: Draw) -> list[int]:
    """(before, after) that leave at least one of `size`."""
    before = draw.integer(0, min(3, size))
    return [before, draw.integer(0, min(3, size - before))]
