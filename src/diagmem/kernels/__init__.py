"""Kernel libraries: which loop order each of them uses for an operation.

Overlap depends on the kernel's loops, so a plan is made for one library on one kind of core. A library is a table; an
operation that is not in it may not overlap.
"""

from __future__ import annotations

from diagmem.errors import PlanError, one_line
from diagmem.kernels._cmsis_nn import CMSIS_NN, CMSIS_NN_MVE
from diagmem.kernels._diagmem import DIAGMEM
from diagmem.kernels._library import Library, OrderRule
from diagmem.kernels._tflm import TFLM_REFERENCE
from diagmem.kernels._tflm_any import TFLM
from diagmem.kernels._traced import PREFIX, signature, traced_library

__all__ = ["LIBRARIES", "Library", "OrderRule", "library", "signature"]

LIBRARIES = {library.name: library for library in (DIAGMEM, TFLM, TFLM_REFERENCE, CMSIS_NN, CMSIS_NN_MVE)}


def library(name: str) -> Library:
    """The library of that name, or `traced:FILE.json`."""
    if name.startswith(PREFIX):
        return traced_library(name)
    try:
        return LIBRARIES[name]
    except KeyError:
        known = ", ".join((*LIBRARIES, f"{PREFIX}FILE.json"))
        raise PlanError(f"kernel library '{one_line(name)}' is not known; known: {known}") from None
