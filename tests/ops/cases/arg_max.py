from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import DType, Node
from diagmem.ops.reductions.arg_max import KIND, ArgMax
from tests.ops.cases import DTYPES, SIZES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Any axis; the indices that come out are wider than what went in."""
    shape = draw(st.lists(SIZES, min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    out_dtype = draw(st.sampled_from((DType.INT32, DType.INT64)))
    inputs = [activation(shape, draw(DTYPES)), ints(axis)]
    return node_of(draw(st.sampled_from(KIND.names)), ArgMax(out_dtype), inputs, (out_dtype,))
