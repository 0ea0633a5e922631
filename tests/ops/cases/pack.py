from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.pack import Pack
from tests.ops.cases import DTYPES, SHAPES, activation, constant, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """One to four tensors along any axis, counted from either end; some that are stacked are constant."""
    shape, dtype, count = draw(SHAPES), draw(DTYPES), draw(st.integers(1, 4))
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    if draw(st.booleans()):
        kinds = [draw(st.sampled_from((activation, activation, constant))) for _ in range(count)]
        return node_of("PACK", Pack(axis, count), [kind(shape, dtype) for kind in kinds], (dtype,))
    at = axis % (len(shape) + 1)
    return node_of("UNPACK", Pack(axis, count), [activation((*shape[:at], count, *shape[at:]), dtype)], (dtype,))
