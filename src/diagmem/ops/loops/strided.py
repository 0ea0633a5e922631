"""Operations that walk the input evenly along each axis of the output: transposition, slices, blocks against depth."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

from diagmem.model.graph import Node, Shape
from diagmem.model.teamwork import Cut
from diagmem.ops.c_axes import joined_axes, outermost
from diagmem.ops.c_call import CCall, CStretch, Unsupported, kernel_call, require_types
from diagmem.ops.kind import stretch_cuts
from diagmem.ops.loops.chunks import COMPUTED, Chunks, RearrangeKind, strided
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant

MOST_AXES = 6
"""How many axes `strided.c` walks over."""


@dataclass(frozen=True, slots=True)
class Walk:
    """An output of `shape` whose neighbours along each axis lie `strides` elements apart in the input, from `offset`
    on."""

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    def chunks(self) -> Chunks:
        return strided(self.shape, self.strides, self.offset)

    def c_call(self, node: Node) -> CCall:
        element = node.output.dtype.size_bytes
        if not node.output.elems:
            raise Unsupported("an output without elements")
        sizes, strides = joined_axes(MOST_AXES, self.shape, self.strides)
        steps = tuple(stride * element for stride in strides)
        fields = {"element": element, "offset": self.offset * element, "size": sizes, "step": steps}
        axis = outermost(sizes)
        units, made = sizes[axis], math.prod(self.shape)
        stretch = CStretch(units, f"size[{axis}]", (0, made // units), {"offset": steps[axis]})
        return replace(kernel_call("strided", fields, (node.input(0), node.output)), stretch=stretch)


class StridedKind(RearrangeKind):
    """An op kind whose kernel is one walk."""

    @abstractmethod
    def walk(self, node: Node) -> Walk | None:
        """None where it depends on values that are not constant in the file."""

    def chunks(self, node: Node, order: Order) -> Chunks | None:
        walk = self.walk(node)
        return None if walk is None else walk.chunks()

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return stretch_cuts(self.c_call, node)

    def row_cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        return stretch_cuts(self.c_row_call, node)

    def c_call(self, node: Node) -> CCall:
        require_types(node.output.dtype, (node.input(0),))
        walk = self.walk(node)
        if walk is None:
            raise Unsupported(COMPUTED)
        return walk.c_call(node)
