from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.reshape import Reshape
from tests.ops.cases import DTYPES, SHAPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """The new shape as an input, as an option, or known to the file alone."""
    shape, dtype = draw(SHAPES), draw(DTYPES)
    data = activation(shape, dtype)
    name = draw(st.sampled_from(("RESHAPE", "SQUEEZE", "EXPAND_DIMS")))
    if name == "SQUEEZE":
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        dims = draw(st.sets(st.sampled_from(ones))) if ones else set()
        return node_of(name, Reshape(squeeze_dims=tuple(dims)), [data], (dtype,))
    if name == "EXPAND_DIMS":
        return node_of(name, Reshape(), [data, ints(draw(st.integers(-len(shape) - 1, len(shape))))], (dtype,))
    new, inferred = list(draw(st.permutations(shape))), draw(st.booleans())
    if new and inferred:
        new[draw(st.integers(0, len(new) - 1))] = -1
        return node_of(name, Reshape(), [data, ints(new)], (dtype,))
    if draw(st.booleans()):
        return node_of(name, Reshape(), [data, activation((len(new),))], (dtype,), (tuple(new),))
    return node_of(name, Reshape(new_shape=tuple(new)), [data], (dtype,))
