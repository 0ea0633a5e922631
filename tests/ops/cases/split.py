from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.split import Split
from tests.ops.cases import DTYPES, SHAPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Equal parts and given sizes, along any axis, counted from either end."""
    shape, dtype = list(draw(SHAPES.filter(bool))), draw(DTYPES)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    if draw(st.booleans()):
        parts = draw(st.integers(1, 4))
        shape[axis] = parts * draw(st.integers(1, 2))
        return node_of("SPLIT", Split(parts), [ints(axis), activation(shape, dtype)], (dtype,))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    shape[axis] = sum(sizes)
    if draw(st.booleans()):
        sizes[draw(st.integers(0, len(sizes) - 1))] = -1
    return node_of("SPLIT_V", Split(len(sizes)), [activation(shape, dtype), ints(sizes), ints(axis)], (dtype,))
