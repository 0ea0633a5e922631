from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.space_depth import SpaceDepth
from tests.ops.cases import DTYPES, activation, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Blocks of one to three pixels a side, either way."""
    small, dtype, block = st.integers(1, 3), draw(DTYPES), draw(st.integers(1, 3))
    batch, height, width, depth = (draw(small) for _ in range(4))
    if draw(st.booleans()):
        shape = (batch, height * block, width * block, depth)
        return node_of("SPACE_TO_DEPTH", SpaceDepth(block), [activation(shape, dtype)], (dtype,))
    shape = (batch, height, width, depth * block**2)
    return node_of("DEPTH_TO_SPACE", SpaceDepth(block), [activation(shape, dtype)], (dtype,))
