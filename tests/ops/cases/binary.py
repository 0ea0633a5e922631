from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.elementwise.binary import KIND, Binary
from tests.ops.cases import DTYPES, SHAPES, activation, constant, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Both inputs may be repeated, each along its own axes; one may be constant."""
    name, shape = draw(st.sampled_from(KIND.names)), draw(SHAPES)
    inputs = [
        kind(_shrunk(draw, shape), draw(DTYPES))
        for kind in draw(st.sampled_from(((activation, activation), (activation, constant), (constant, activation))))
    ]
    return node_of(name, Binary(), inputs, (draw(DTYPES),))


def _shrunk(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that can be repeated to make `shape`: some axes are 1, some in front are left out."""
    kept = tuple(size if draw(st.booleans()) else 1 for size in shape)
    return kept[draw(st.integers(0, len(kept))) if draw(st.booleans()) else 0 :]
