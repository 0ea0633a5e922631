"""TensorFlow Lite Micro where it is not known which kernels it was built with: the safest of all."""

from __future__ import annotations

from diagmem.kernels._cmsis_nn import CMSIS_NN, CMSIS_NN_MVE
from diagmem.kernels._library import Library
from diagmem.kernels._tflm import ALIGN_BYTES, TFLM_REFERENCE
from diagmem.model.graph import Node
from diagmem.ops.orders import Order

PARTS = (TFLM_REFERENCE, CMSIS_NN, CMSIS_NN_MVE)

_SAFEST_LAST = (
    Order.IM2COL,
    Order.REFERENCE,
    Order.QUADS,
    Order.ROWS,
    Order.CHANNEL_BLOCKS,
    Order.ACCUMULATE,
    Order.MEMCPY,
)
"""Orders that kernels of one operation differ in: each asks for at least the separation of those before it."""

_KNOWN = frozenset(_SAFEST_LAST)


def _safest_order(node: Node) -> Order | None:
    """None unless all of its parts may overlap, and it is known which of them asks for most."""
    found = {part.order(node) for part in PARTS}
    if len(found) == 1:
        return found.pop()
    return next((order for order in reversed(_SAFEST_LAST) if order in found), None) if found <= _KNOWN else None


def _most_scratch(node: Node) -> int:
    return max(part.scratch_bytes(node) for part in PARTS)


TFLM = Library(
    "tflm",
    "TensorFlow Lite Micro with reference or CMSIS-NN kernels, on any core: safe for each of these",
    {},
    _safest_order,
    dict.fromkeys({kind for part in PARTS for kind in part.scratch}, _most_scratch),
    ALIGN_BYTES,
    keeps_variables=True,
)
