from __future__ import annotations

from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops.moving.pad import MirrorPad, Pad
from tests.ops.cases import DTYPES, activation, ints, node_of


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Margins on any axes, by a constant, a value in RAM, or a mirror; sometimes not known."""
    name, dtype = draw(st.sampled_from(("PAD", "PADV2", "MIRROR_PAD"))), draw(DTYPES)
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    attributes = MirrorPad(draw(st.sampled_from(("reflect", "symmetric")))) if name == "MIRROR_PAD" else Pad()
    widest = [2 if name != "MIRROR_PAD" else s - (attributes == MirrorPad()) for s in shape]
    pads = [[draw(st.integers(0, w)), draw(st.integers(0, w))] for w in widest]
    value = [activation((1,), dtype)] if name == "PADV2" else []
    known = draw(st.integers(0, 4)) > 0
    paddings = ints(pads) if known else activation((len(shape), 2))
    out = tuple(s + sum(p) for s, p in zip(shape, pads, strict=True))
    return node_of(name, attributes, [activation(shape, dtype), paddings, *value], (dtype,), (out,))
