from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from tests.ops.cases import DTYPES, SHAPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any permutation of up to six axes; sometimes it is not known."""
    shape, dtype = draw(SHAPES), draw(DTYPES)
    permutation = draw(st.permutations(range(len(shape))))
    known = not shape or draw(st.integers(0, 4)) > 0
    out = tuple(shape[a] for a in permutation)
    second = ints(permutation) if known else activation((len(shape),))
    return node_of("TRANSPOSE", None, [activation(shape, dtype), second], (dtype,), (out,))
