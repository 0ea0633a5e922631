"""Windows in numpy: for each tap of a window, the image of all input pixels under it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import Window1D

Array = npt.NDArray[Any]


def tap_images(image: Array, rows: Window1D, cols: Window1D, fill: float) -> Iterator[tuple[int, int, Array]]:
    """(row tap, column tap, what the output pixels read there): NHWC arrays of the output's height and width. Pixels
    outside the image read `fill`; taps that are outside for all outputs are left out, but for one if all are."""
    batch, _, _, depth = image.shape
    for k_y, k_x in itertools.product(_taps_inside(rows), _taps_inside(cols)):
        (to_y, from_y), (to_x, from_x) = _places(rows, k_y), _places(cols, k_x)
        pixels = np.full((batch, rows.size_out, cols.size_out, depth), fill, image.dtype)
        pixels[:, to_y, to_x] = image[:, from_y, from_x]
        yield k_y, k_x, pixels


def tap_counts(rows: Window1D, cols: Window1D) -> Array:
    """For each output pixel (row, column), how many taps lie inside the image."""
    inside_y, inside_x = (np.maximum(0, axis.end_taps() - axis.first_taps()) for axis in (rows, cols))
    counts: Array = np.multiply.outer(inside_y, inside_x)
    return counts


def _taps_inside(axis: Window1D) -> range:
    """The taps that lie inside the image for any output. The windows of a hostile file have billions of others."""
    reach = (axis.size_out - 1) * axis.stride
    first = max(0, -((reach - axis.pad_before) // axis.dilation))
    end = min(axis.kernel, (axis.size_in - 1 + axis.pad_before) // axis.dilation + 1)
    return range(first, end) if first < end else range(1)


def _places(axis: Window1D, tap: int) -> tuple[slice, slice]:
    """The outputs for which the tap lies inside the image, and what they read there."""
    at = tap * axis.dilation - axis.pad_before
    first = max(0, -(at // axis.stride))
    end = max(first, min(axis.size_out, (axis.size_in - 1 - at) // axis.stride + 1))
    start = at + first * axis.stride
    return slice(first, end), slice(start, start + (end - first) * axis.stride, axis.stride)
