from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.pooling.pool_2d import KIND, Pool2D
from tests.ops.cases import DTYPES, SMALL, activation, node_of, windows


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any padding, stride and window."""
    window = draw(windows(dilated=False))
    image = activation((draw(SMALL), *window.image, draw(SMALL)), draw(DTYPES))
    attributes = Pool2D(window.padding, *window.stride, *window.kernel)
    return node_of(draw(st.sampled_from(KIND.names)), attributes, [image], (draw(DTYPES),))
