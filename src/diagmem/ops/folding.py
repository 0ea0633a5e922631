"""Operations whose results are known before a model runs: all that they look at is constant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.kind import Array, OpKind
from diagmem.ops.loops.windowed import WindowedKind

ALWAYS_FOLDED_BYTES = 4096
LARGEST_GROWTH = 4
"""A result is held in flash if it is small, or at most so many times what it is made of: dequantised weights are."""

DAMAGE = (IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError, ZeroDivisionError)
"""What numbers that make no sense can raise where something is computed from them."""

LEAST_ALLOWANCE, LARGEST_EXPANSION = 2**24, 16
"""The elements that may be made of any file, and for each byte of one that is larger."""


@dataclass
class Allowance:
    """How many elements may still be computed from the constants in a file: it bounds time and memory. An operation
    takes those that it reads, makes or multiplies, whichever are the most."""

    elems: int = LEAST_ALLOWANCE

    @classmethod
    def of(cls, size_bytes: int) -> Allowance:
        """`size_bytes`: of the file, or of all constants in it."""
        return cls(max(LEAST_ALLOWANCE, LARGEST_EXPANSION * size_bytes))

    @classmethod
    def for_constants(cls, tensors: Iterable[Tensor]) -> Allowance:
        """Those that share memory count once."""
        held = {t.data.__array_interface__["data"][0]: t.data.nbytes for t in tensors if t.data is not None}
        return cls.of(sum(held.values()))

    def take(self, elems: int) -> bool:
        """Takes so many, if they are left."""
        is_there = 0 <= elems <= self.elems
        self.elems -= elems if is_there else 0
        return is_there


def folded(node: Node, allowance: Allowance) -> tuple[Array, ...] | None:
    """The outputs of an operation, if they are known, not too large to be held, and within the allowance; else None.
    Only what `reference` computes is known."""
    kind = kind_of(node.op.kind)
    if kind is None or not node.outputs or kind.states(node) or not _is_known(node, kind) or not _is_small(node):
        return None
    values = [None if t is None else _values(t) for t in node.inputs]
    try:
        # A reference may rely on the inputs alone, and make what they ask for.
        shapes = kind.output_shapes(node.op.kind, node.attributes, node.inputs)
        is_as_said = shapes is None or list(shapes) == [t.shape for t in node.outputs]
        if not is_as_said or not allowance.take(_work(node, kind)):
            return None
        with np.errstate(all="ignore"):
            found = kind.reference(node, values)
    except (ModelError, *DAMAGE):
        return None
    wanted = [(t.shape, t.dtype.numpy) for t in node.outputs]
    return found if [(a.shape, a.dtype) for a in found] == wanted else None


def _work(node: Node, kind: OpKind) -> int:
    read, made = (sum(t.elems for t in tensors if t is not None) for tensors in (node.inputs, node.outputs))
    if isinstance(kind, WindowedKind):
        window = kind.window(node)
        made *= window.rows.kernel * window.cols.kernel
    return max(read, made, kind.macs(node))


def _values(tensor: Tensor) -> Array:
    return np.broadcast_to(np.int8(0), tensor.shape) if tensor.data is None else tensor.data


def _is_known(node: Node, kind: OpKind) -> bool:
    if kind.reads_only_shapes:
        return all(t is not None and min(t.shape, default=1) >= 0 for t in node.inputs)
    return all(t is None or (t.is_constant and t.data is not None) for t in node.inputs)


def _is_small(node: Node) -> bool:
    made = sum(t.size_bytes for t in node.outputs)
    return made <= max(ALWAYS_FOLDED_BYTES, LARGEST_GROWTH * sum(t.size_bytes for t in node.inputs if t is not None))
