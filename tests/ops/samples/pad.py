"""How the tests draw the operations of `moving/pad.py`."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.moving.pad import MirrorPad, Pad, PadKind
from tests.ops.sampling import Draw, Samples, activation, constant, ints, node_of


class PadSamples(Samples, of=PadKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Margins on any axes, by a constant, a value in RAM, or a mirror; sometimes not known."""
        dtype, is_image = draw.dtype(), draw.boolean()
        shape = draw.image() if is_image else tuple(draw.many(1, 5, draw.small))
        attributes = MirrorPad(draw.choice(("reflect", "symmetric"))) if name == "MIRROR_PAD" else Pad()
        widest = [2 if name != "MIRROR_PAD" else s - (attributes == MirrorPad()) for s in shape]
        widest[0] = 0 if is_image else widest[0]
        pads = [[draw.integer(0, w + 1), draw.integer(0, w + 1)] for w in widest]
        value = [draw.choice((activation, constant, constant))((1,), dtype)] if name == "PADV2" else []
        is_known = draw.integer(0, 5) > 0
        paddings = ints(pads) if is_known else activation((len(shape), 2), DType.INT32)
        out = tuple(s + sum(p) for s, p in zip(shape, pads, strict=True))
        return node_of(self.kind, name, attributes, [activation(shape, dtype), paddings, *value], (dtype,), (out,))
