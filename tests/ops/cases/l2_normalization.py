from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.normalisation.l2_normalization import L2Normalization
from tests.ops.cases import DTYPES, SIZES, activation, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Rows of any rank."""
    data = activation(draw(st.lists(SIZES, min_size=1, max_size=4)), draw(DTYPES))
    return node_of("L2_NORMALIZATION", L2Normalization(), [data], (draw(DTYPES),))
