"""What operations do to the state of a network."""

from __future__ import annotations

from diagmem.model.graph import Node
from diagmem.ops import kind_of


def changed_variables(node: Node) -> tuple[int, ...]:
    """The variables that an operation writes. One that nobody knows may write all that it is given."""
    kind = kind_of(node.op.kind)
    inputs = [t for t in node.inputs if t is not None] if kind is None else [node.input(p) for p in kind.states(node)]
    return tuple(dict.fromkeys(t.index for t in (*inputs, *node.outputs) if t.is_variable))
