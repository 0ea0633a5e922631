"""Where the elements of a tensor lie when it is part of another one.

A tensor's elements are counted in row-major order of its own shape, their places in elements of the tensor that holds
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def distinct(values: IntArray) -> IntArray:
    """The values, each once, ascending. `np.unique` would load all of masked arrays first, which takes as long as
    planning a small model."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


Strides = tuple[int, ...]
"""Elements between neighbours along each axis."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor without bytes of its own: its first element is element `offset_elems` of the tensor `base`, which is no
    view itself; along each axis its neighbours lie `strides` apart."""

    base: int
    offset_elems: int
    strides: Strides


def row_major_strides(shape: Sequence[int]) -> Strides:
    """The strides of a tensor that lies in one piece."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def in_one_piece(shape: Sequence[int], strides: Strides) -> bool:
    """Whether elements in row-major order are neighbours. Along an axis of size 1 there are none."""
    dense = row_major_strides(shape)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, dense, strict=True)) or 0 in shape


def span(shape: Sequence[int], strides: Strides) -> int:
    """Elements from the first to the last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def places(shape: Sequence[int], strides: Strides) -> IntArray:
    """The place of every element, counted from the first."""
    found = np.zeros(1, dtype=np.int64)
    for size, stride in zip(shape, strides, strict=True):
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The stretches of neighbours that a tensor falls into, all of one length, in the order of its elements. `starts`
    are counted from the first element."""

    starts: IntArray
    length: int

    def places_of(self, elements: IntArray) -> IntArray:
        """The places of some elements, counted from the first."""
        return self.starts[elements // self.length] + elements % self.length


@lru_cache(maxsize=256)
def pieces(shape: tuple[int, ...], strides: Strides) -> Pieces:
    """As few as possible."""
    if 0 in shape:
        return Pieces(np.zeros(0, dtype=np.int64), 0)
    length, outer = 1, len(shape)
    while outer and (shape[outer - 1] == 1 or strides[outer - 1] == length):
        outer -= 1
        length *= shape[outer]
    return Pieces(places(shape[:outer], strides[:outer]), length)


def strides_of(shape: Sequence[int], found: IntArray) -> Strides | None:
    """The strides of a tensor whose elements lie at the places `found`; None if no strides express them."""
    if not found.size:
        return row_major_strides(shape)
    at = found.reshape(shape)
    strides = tuple(
        int(np.take(at, 1, axis).flat[0] - at.flat[0]) if size > 1 else math.prod(shape[axis + 1 :])
        for axis, size in enumerate(shape)
    )
    return strides if (places(shape, strides) + found[0] == found).all() else None


def share(a: Pieces, a_offset: int, b: Pieces, b_offset: int) -> bool:
    """Whether any element is in both."""
    if not len(a.starts) or not len(b.starts):
        return False
    low, high = np.sort(a.starts) + a_offset, b.starts + b_offset
    below = np.searchsorted(low, high + b.length) - 1
    return bool(((below >= 0) & (low[below] + a.length > high)).any())
