"""What a kernel library is: a table from operation to loop order, and what its kernels take from the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diagmem.graph import Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses

OrderRule = str | Callable[[Node], str | None]
"""A loop order by name, or a function that picks it for a node (None: may not overlap)."""

ScratchRule = Callable[[Node], int]


@dataclass(frozen=True, slots=True)
class Library:
    """`orders`: TFLite's name of an operation -> one of that kind's `orders`. `scratch`: likewise -> what its kernel
    takes from the arena while it runs. `align_bytes`: the alignment that its tensors get unless told otherwise.
    `keeps_variables`: its runtime holds variables elsewhere than among the tensors that are planned.
    `addresses_views`: its kernels can read and write a part of a tensor."""

    name: str
    summary: str
    orders: Mapping[str, OrderRule]
    scratch: Mapping[str, ScratchRule] = field(default_factory=dict)
    align_bytes: int = 1
    keeps_variables: bool = False
    addresses_views: bool = False

    def order(self, node: Node) -> str | None:
        """The loop order that this library uses for the node; None: not known, may not overlap."""
        rule = self.orders.get(node.op.kind)
        return rule(node) if callable(rule) else rule

    def accesses(self, node: Node) -> Accesses | None:
        """What its kernel for the node touches; None: not known, may not overlap."""
        kind, order = kind_of(node.op.kind), self.order(node)
        return None if kind is None or order is None else kind.accesses(node, order)

    def separation(self, node: Node, position: int, output: int) -> int | None:
        """separation(output below, input above) in bytes for its kernel; None: not known, may not overlap."""
        kind, order = kind_of(node.op.kind), self.order(node)
        return None if kind is None or order is None else kind.separation(node, position, order, output)

    def scratch_bytes(self, node: Node) -> int:
        """Bytes of the arena that the kernel needs while it runs, besides its inputs and outputs."""
        rule = self.scratch.get(node.op.kind)
        return rule(node) if rule else 0
