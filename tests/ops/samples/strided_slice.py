"""How the tests draw the operations of `moving/strided_slice.py`."""

from __future__ import annotations

from diagmem.model.graph import Node
from diagmem.ops.moving.strided_slice import StridedSlice, StridedSliceKind
from tests.ops.sampling import Draw, Samples, activation, ints, node_of


class StridedSliceSamples(Samples, of=StridedSliceKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Boxes, with steps forward and backward, axes dropped and axes added."""
        shape, dtype = draw.many(1, 5, lambda: draw.integer(1, 6)), draw.dtype()
        data = activation(shape, dtype)
        if name == "SLICE":
            begin = [draw.integer(0, size) for size in shape]
            size = [draw.choice((-1, *range(1, s - b + 1))) for s, b in zip(shape, begin, strict=True)]
            return node_of(self.kind, name, None, [data, ints(begin), ints(size)], (dtype,))
        taken = [_drawn_range(size, draw) for size in shape[: draw.integer(1, len(shape) + 1)]]
        shrink = sum(1 << i for i, (b, e, s) in enumerate(taken) if e == b + 1 and s == 1 and draw.boolean())
        new = draw.integer(0, len(taken)) if draw.boolean() else None
        if new is not None:
            taken.insert(new, (0, 1, 1))
            shrink = (shrink & ((1 << new) - 1)) | (shrink >> new << new + 1)
        attributes = StridedSlice(new_axis_mask=0 if new is None else 1 << new, shrink_axis_mask=shrink)
        bounds = [ints([t[i] for t in taken]) for i in range(3)]
        return node_of(self.kind, name, attributes, [data, *bounds], (dtype,))


def _drawn_range(size: int, draw: Draw) -> tuple[int, int, int]:
    """(begin, end, stride) that take at least one element."""
    first, last = draw.integer(0, size), draw.integer(0, size)
    stride = draw.small() * (1 if first <= last else -1)
    end = last + (1 if stride > 0 else -1)
    return (first, end if end >= 0 else -size - 1, stride)
