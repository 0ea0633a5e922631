from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.matrix.batch_matmul import BatchMatMul
from tests.ops.cases import DTYPES, SMALL, activation, node_of, operand


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Either side stored transposed; batch axes of either side broadcast or missing."""
    attributes = BatchMatMul(draw(st.booleans()), draw(st.booleans()))
    rows, depth, columns = (draw(st.integers(1, 5)) for _ in range(3))
    batch = draw(st.lists(SMALL, max_size=2))
    left, right = ([draw(st.sampled_from((1, size))) for size in batch] for _ in range(2))
    left, right = left[draw(st.integers(0, len(left))) :], right[draw(st.integers(0, len(right))) :]
    x = (*left, depth, rows) if attributes.adj_x else (*left, rows, depth)
    y = (*right, columns, depth) if attributes.adj_y else (*right, depth, columns)
    return node_of("BATCH_MATMUL", attributes, [activation(x, draw(DTYPES)), draw(operand(y))], (draw(DTYPES),))
