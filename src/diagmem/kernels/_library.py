"""What a kernel library is: where its loop orders differ from those of our own kernels, and what its kernels take from
the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diagmem.model.graph import Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses
from diagmem.ops.orders import Order

OrderRule = Order | Callable[[Node], Order | None] | None
"""A loop order, or a function that picks it for a node. None: it has no such kernel, or its kernel may not overlap."""

ScratchRule = Callable[[Node], int]


def own_order(node: Node) -> Order | None:
    """The order of our own kernel."""
    kind = kind_of(node.op.kind)
    return None if kind is None else kind.default_order(node)


@dataclass(frozen=True, slots=True)
class Library:
    """`exceptions`: TFLite's name of an operation -> the order that this library's kernel has. `otherwise`: what gives
    the order of all other operations. `scratch`: an operation -> what its kernel takes from the arena while it runs.
    `align_bytes`: the alignment that its tensors get unless told otherwise. `keeps_variables`: its runtime holds
    variables elsewhere than among the tensors that are planned. `addresses_views`: its kernels can read and write a
    part of a tensor."""

    name: str
    summary: str
    exceptions: Mapping[str, OrderRule] = field(default_factory=dict)
    otherwise: Callable[[Node], Order | None] = own_order
    scratch: Mapping[str, ScratchRule] = field(default_factory=dict)
    align_bytes: int = 1
    keeps_variables: bool = False
    addresses_views: bool = False

    def order(self, node: Node) -> Order | None:
        """The loop order that this library uses for the node, one of its kind's. None: not known, may not overlap."""
        kind = kind_of(node.op.kind)
        if kind is None:
            return None
        rule = self.exceptions.get(node.op.kind, self.otherwise)
        found = rule(node) if callable(rule) else rule
        return found if found in kind.orders else None

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
