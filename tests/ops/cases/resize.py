from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import DType, Node
from diagmem.ops.resizing.resize import KIND, Resize
from tests.ops.cases import DTYPES, SIZES, SMALL, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Larger and smaller, by every rule; integers and floats round differently. The size may come at run time."""
    name = draw(st.sampled_from(KIND.names))
    rules = [Resize(), Resize(align_corners=True), Resize(half_pixel_centers=True)]
    image = activation((draw(SMALL), draw(SIZES), draw(SIZES), draw(SMALL)), draw(DTYPES))
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    size = draw(st.sampled_from((ints([height, width]), activation((2,), DType.INT32))))
    out_shape = (image.shape[0], height, width, image.shape[3])
    return node_of(name, draw(st.sampled_from(rules)), [image, size], (draw(DTYPES),), (out_shape,))
