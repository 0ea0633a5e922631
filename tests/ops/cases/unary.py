from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import DType, Node
from diagmem.ops.elementwise.unary import KIND, Unary
from tests.ops.cases import SHAPES, activation, node_of

SIZES_APART = st.sampled_from((DType.BOOL, DType.INT16, DType.FLOAT32, DType.INT64))


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any two element sizes, also from a small one to a large one."""
    name = draw(st.sampled_from(KIND.names))
    return node_of(name, Unary(), [activation(draw(SHAPES), draw(SIZES_APART))], (draw(SIZES_APART),))
