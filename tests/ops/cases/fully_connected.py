from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.matrix.fully_connected import FullyConnected
from tests.ops.cases import DTYPES, SIZES, SMALL, activation, node_of, operand


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """One or more rows; the data may have any shape that the weights divide."""
    outputs, size = draw(SIZES), draw(SIZES)
    attributes = FullyConnected(keep_num_dims=draw(st.booleans()))
    data = activation((*draw(st.lists(SMALL, max_size=3)), size), draw(DTYPES))
    inputs = [data, draw(operand((outputs, size))), draw(st.none() | operand((outputs,)))]
    return node_of("FULLY_CONNECTED", attributes, inputs, (draw(DTYPES),))
