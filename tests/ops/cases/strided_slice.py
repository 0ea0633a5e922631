from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.strided_slice import StridedSlice
from tests.ops.cases import DTYPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Boxes, with steps forward and backward, axes dropped and axes added."""
    shape, dtype = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)), draw(DTYPES)
    data = activation(shape, dtype)
    if draw(st.booleans()):
        begin = [draw(st.integers(0, size - 1)) for size in shape]
        size = [draw(st.sampled_from((-1, *range(1, s - b + 1)))) for s, b in zip(shape, begin, strict=True)]
        return node_of("SLICE", None, [data, ints(begin), ints(size)], (dtype,))
    taken = [draw(_taken(size)) for size in shape[: draw(st.integers(1, len(shape)))]]
    shrink = sum(1 << i for i, (b, e, s) in enumerate(taken) if e == b + 1 and s == 1 and draw(st.booleans()))
    new = draw(st.integers(0, len(taken) - 1)) if draw(st.booleans()) else None
    if new is not None:
        taken.insert(new, (0, 1, 1))
        shrink = (shrink & ((1 << new) - 1)) | (shrink >> new << new + 1)
    attributes = StridedSlice(new_axis_mask=0 if new is None else 1 << new, shrink_axis_mask=shrink)
    bounds = [ints([t[i] for t in taken]) for i in range(3)]
    return node_of("STRIDED_SLICE", attributes, [data, *bounds], (dtype,))


@st.composite
def _taken(draw: st.DrawFn, size: int) -> tuple[int, int, int]:
    """(begin, end, stride) that take at least one element."""
    first, last = draw(st.integers(0, size - 1)), draw(st.integers(0, size - 1))
    stride = draw(st.integers(1, 3)) * (1 if first <= last else -1)
    end = last + (1 if stride > 0 else -1)
    return (first, end if end >= 0 else -size - 1, stride)
