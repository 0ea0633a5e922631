"""Windows in numpy: for each tap of a window, the image of all input pixels under it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import Window1D

Array = npt.NDArray[Any]


def tap_images(image: Array, rows: Window1D, cols: Window1D, fill: float) -> Iterator[tuple[int, int, Array]]:
    """(row tap, column tap, what the output pixels read there): NHWC arrays of the output's height and width. Taps
    outside the image read `fill`."""
    padded = np.pad(image, ((0, 0), _margins(rows), _margins(cols), (0, 0)), constant_values=fill)
    for k_y in range(rows.kernel):
        for k_x in range(cols.kernel):
            yield k_y, k_x, padded[:, _places(rows, k_y), _places(cols, k_x)]


def tap_counts(rows: Window1D, cols: Window1D) -> Array:
    """For each output pixel (row, column), how many taps lie inside the image."""
    inside_y, inside_x = (np.maximum(0, axis.end_taps() - axis.first_taps()) for axis in (rows, cols))
    counts: Array = np.multiply.outer(inside_y, inside_x)
    return counts


def _margins(axis: Window1D) -> tuple[int, int]:
    last = (axis.size_out - 1) * axis.stride - axis.pad_before + (axis.kernel - 1) * axis.dilation
    return axis.pad_before, max(0, last - (axis.size_in - 1))


def _places(axis: Window1D, tap: int) -> slice:
    first = tap * axis.dilation
    return slice(first, first + (axis.size_out - 1) * axis.stride + 1, axis.stride)
