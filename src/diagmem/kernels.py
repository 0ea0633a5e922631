"""Kernel libraries: which loop order each of them uses for an operation.

Overlap depends on the kernel's loops, so a plan is made for one library on one kind of core. A library is a table; an
operation that is not in it may not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diagmem.errors import PlanError
from diagmem.graph import Node

OrderRule = str | Callable[[Node], str | None]
"""A loop order by name, or a function that picks it for a node (None: may not overlap)."""


@dataclass(frozen=True, slots=True)
class Library:
    """`orders`: TFLite's name of an operation -> one of that kind's `orders`."""

    name: str
    summary: str
    orders: Mapping[str, OrderRule]

    def order(self, node: Node) -> str | None:
        """The loop order that this library uses for the node; None: not known, may not overlap."""
        rule = self.orders.get(node.op.kind)
        return rule(node) if callable(rule) else rule


DIAGMEM = Library(
    "diagmem",
    "the C kernels that `diagmem emit c` writes",
    {"CONV_2D": "reference"},
)

LIBRARIES = {library.name: library for library in (DIAGMEM,)}


def library(name: str) -> Library:
    try:
        return LIBRARIES[name]
    except KeyError:
        raise PlanError(f"kernel library '{name}' is not known; known: {', '.join(LIBRARIES)}") from None
