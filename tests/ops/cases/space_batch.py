from __future__ import annotations

import math

from hypothesis import strategies as st

from diagmem.model.graph import Node
from tests.ops.cases import DTYPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Blocks along one or two axes, padded or cropped, with and without channels."""
    small, dtype = st.integers(1, 3), draw(DTYPES)
    block = draw(st.lists(small, min_size=1, max_size=2))
    batch, depth = draw(small), draw(st.lists(small, max_size=1))
    spread = [draw(small) * b for b in block]
    margins = [draw(_margins(size)) for size in spread]
    inner = [size - sum(m) for size, m in zip(spread, margins, strict=True)]
    if draw(st.booleans()):
        return node_of(
            "SPACE_TO_BATCH_ND",
            None,
            [activation((batch, *inner, *depth), dtype), ints(block), ints(margins)],
            (dtype,),
        )
    sizes = [size // b for size, b in zip(spread, block, strict=True)]
    shape = (batch * math.prod(block), *sizes, *depth)
    return node_of("BATCH_TO_SPACE_ND", None, [activation(shape, dtype), ints(block), ints(margins)], (dtype,))


@st.composite
def _margins(draw: st.DrawFn, size: int) -> list[int]:
    """(before, after) that leave at least one of `size`."""
    before = draw(st.integers(0, min(2, size - 1)))
    return [before, draw(st.integers(0, min(2, size - 1 - before)))]
