from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from tests.ops.cases import DTYPES, SHAPES, activation, constant, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Slopes for each element, each channel, or one for all; in RAM or constant."""
    shape, dtype = draw(SHAPES), draw(DTYPES)
    slopes = tuple(size if draw(st.booleans()) else 1 for size in shape)
    kind = draw(st.sampled_from((activation, constant)))
    return node_of("PRELU", None, [activation(shape, dtype), kind(slopes, dtype)], (dtype,))
