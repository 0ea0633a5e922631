"""When two results are the same: bit for bit, but that what is no number is like any other that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def differing(got: Array, wanted: Array) -> npt.NDArray[np.bool_]:
    """Which elements of two flat arrays of one type differ. IEEE 754 leaves open which bits a NaN has that comes out of
    an operation, and processors differ in it: where both are NaN they are equal."""
    size = got.dtype.itemsize
    bits = (got.view(np.uint8) != wanted.view(np.uint8)).reshape(len(got), size).any(axis=1)
    if got.dtype.kind == "f":
        bits &= ~(np.isnan(got) & np.isnan(wanted))
    found: npt.NDArray[np.bool_] = bits
    return found
