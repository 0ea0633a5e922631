"""Operations whose results are known before a model runs: all that they look at is constant."""

from __future__ import annotations

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.kind import Array, OpKind

ALWAYS_FOLDED_BYTES = 4096
LARGEST_GROWTH = 4
"""A result is held in flash if it is small, or at most so many times what it is made of: dequantised weights are."""

DAMAGE = (IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError, ZeroDivisionError)
"""What numbers that make no sense can raise where something is computed from them."""


def folded(node: Node) -> tuple[Array, ...] | None:
    """The outputs of an operation, if they are known and not too large to be held; else None. Only what `reference`
    computes is known."""
    kind = kind_of(node.op.kind)
    if kind is None or not node.outputs or kind.states(node) or not _is_known(node, kind) or not _is_small(node):
        return None
    values = [None if t is None else _values(t) for t in node.inputs]
    try:
        with np.errstate(all="ignore"):
            found = kind.reference(node, values)
    except (ModelError, *DAMAGE):
        return None
    wanted = [(t.shape, t.dtype.numpy) for t in node.outputs]
    return found if [(a.shape, a.dtype) for a in found] == wanted else None


def _values(tensor: Tensor) -> Array:
    return np.broadcast_to(np.int8(0), tensor.shape) if tensor.data is None else tensor.data


def _is_known(node: Node, kind: OpKind) -> bool:
    if kind.reads_only_shapes:
        return all(t is not None and min(t.shape, default=1) >= 0 for t in node.inputs)
    return all(t is None or (t.is_constant and t.data is not None) for t in node.inputs)


def _is_small(node: Node) -> bool:
    made = sum(t.size_bytes for t in node.outputs)
    return made <= max(ALWAYS_FOLDED_BYTES, LARGEST_GROWTH * sum(t.size_bytes for t in node.inputs if t is not None))
