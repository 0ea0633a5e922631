from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.concatenation import Concatenation
from tests.ops.cases import DTYPES, SHAPES, activation, constant, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """One to four inputs along any axis, counted from either end; some are constant."""
    shape, dtype = draw(SHAPES.filter(bool)), draw(DTYPES)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    inputs = [
        draw(st.sampled_from((activation, activation, constant)))(
            [size if a == axis % len(shape) else s for a, s in enumerate(shape)], dtype
        )
        for size in sizes
    ]
    return node_of("CONCATENATION", Concatenation(axis), inputs, (dtype,))
