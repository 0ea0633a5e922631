from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from diagmem.model.graph import DType, Node
from diagmem.ops.moving.gather import Gather
from tests.ops.cases import DTYPES, SHAPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Indices of any rank, in any order, repeated, with and without batch axes; sometimes they are not known."""
    shape, dtype = draw(SHAPES.filter(bool)), draw(DTYPES)
    axis = draw(st.integers(0, len(shape) - 1))
    batch_dims = draw(st.integers(0, axis))
    picked = (*shape[:batch_dims], *draw(st.lists(st.integers(1, 3), max_size=2)))
    attributes = Gather(axis - len(shape) if draw(st.booleans()) else axis, batch_dims)
    if draw(st.integers(0, 4)) == 0:
        return node_of("GATHER", attributes, [activation(shape, dtype), activation(picked, DType.INT32)], (dtype,))
    count = math.prod(picked)
    values = draw(st.lists(st.integers(0, shape[axis] - 1), min_size=count, max_size=count))
    return node_of("GATHER", attributes, [activation(shape, dtype), ints(np.array(values).reshape(picked))], (dtype,))
