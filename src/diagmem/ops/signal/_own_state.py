"""What operations on sound remember, in no tensor of the file."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.kind import OpKind


def state(name: str, shape: Shape, dtype: DType) -> Tensor:
    return Tensor(0, name, shape, dtype, is_variable=True)


def remembering(kind: OpKind, node: Node) -> Node:
    """A drawn node with its variables, as if a file had been read."""
    first = 1 + max(t.index for t in (*node.outputs, node.input(0)))
    added = tuple(replace(t, index=first + n) for n, t in enumerate(kind.own_states(node)))
    op = replace(node.op, inputs=(*node.op.inputs, *(t.index for t in added)))
    return replace(node, op=op, inputs=(*node.inputs, *added))
