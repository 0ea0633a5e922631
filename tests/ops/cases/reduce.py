from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.reductions.reduce import KIND, Reduce
from tests.ops.cases import DTYPES, SIZES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any axes, none, all, named twice or from the end."""
    shape = draw(st.lists(SIZES, min_size=1, max_size=4))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=4))
    inputs = [activation(shape, draw(DTYPES)), ints(axes)]
    return node_of(draw(st.sampled_from(KIND.names)), Reduce(draw(st.booleans())), inputs, (draw(DTYPES),))
