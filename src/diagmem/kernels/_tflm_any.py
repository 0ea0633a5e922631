"""TensorFlow Lite Micro where it is not known which kernels it was built with: the safest of all."""

from __future__ import annotations

from diagmem.graph import Node
from diagmem.kernels._cmsis_nn import CMSIS_NN, CMSIS_NN_MVE
from diagmem.kernels._library import Library
from diagmem.kernels._tflm import ALIGN_BYTES, TFLM_REFERENCE

PARTS = (TFLM_REFERENCE, CMSIS_NN, CMSIS_NN_MVE)

_SAFEST_LAST = ("im2col", "reference", "quads", "rows", "channel_blocks", "accumulate", "memcpy")
"""Orders that kernels of one operation differ in: each asks for at least the separation of those before it."""


def _safest_order(node: Node) -> str | None:
    found = {part.order(node) for part in PARTS}
    if len(found) == 1:
        return found.pop()
    return None if None in found else max((order for order in found if order), key=_SAFEST_LAST.index)


def _most_scratch(node: Node) -> int:
    return max(part.scratch_bytes(node) for part in PARTS)


TFLM = Library(
    "tflm",
    "TensorFlow Lite Micro with reference or CMSIS-NN kernels, on any core: safe for each of these",
    dict.fromkeys(TFLM_REFERENCE.orders, _safest_order),
    dict.fromkeys({kind for part in PARTS for kind in part.scratch}, _most_scratch),
    ALIGN_BYTES,
    keeps_variables=True,
)
