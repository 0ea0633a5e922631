from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.normalisation.softmax import KIND, Softmax
from tests.ops.cases import DTYPES, SIZES, activation, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Rows of any rank; the output's elements may be wider or narrower than the input's."""
    data = activation(draw(st.lists(SIZES, min_size=1, max_size=4)), draw(DTYPES))
    return node_of(draw(st.sampled_from(KIND.names)), Softmax(), [data], (draw(DTYPES),))
