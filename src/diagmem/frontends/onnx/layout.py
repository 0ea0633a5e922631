"""Where the axes of an ONNX tensor lie.

ONNX counts the axes of an image as batch, channels, height, width; our kernels want channels last. No data moves for
that: each stored tensor remembers which axis of the file's tensor each of its own axes is. Axes of size one lie
anywhere, so they are left out. Transposing relabels, and so does reshaping where the axes that it joins or splits lie
side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Quantisation, Rounding, Shape, Tensor

Dims = tuple[int | None, ...]
"""For each axis of a stored tensor the axis of the file's tensor that it is; None: it has size one."""

CHANNELS_LAST: Dims = (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class Scale:
    """real = scale * (stored - zero_point), for all elements or for each index along `axis`. Stored values of 8 bits
    without a sign are taken 128 lower, so that they have one."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0
    is_unsigned: bool = False

    @property
    def quantisation(self) -> Quantisation:
        rounding = Rounding.ONNX_UNSIGNED if self.is_unsigned else Rounding.ONNX
        return Quantisation(self.scales, self.zero_points, self.axis, rounding)


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor whose values are known, in the order of the file. `stored`: the integers that stand for them, and how,
    where the file has those."""

    array: npt.NDArray[Any]
    stored: tuple[npt.NDArray[Any], Scale] | None = None

    @property
    def shape(self) -> Shape:
        return self.array.shape


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of `shape` in the file; ours holds its elements, axis by axis as `dims` says. `is_real`: the file means
    the real numbers for which the tensor's quantised values stand."""

    tensor: Tensor
    dims: Dims
    shape: Shape
    is_real: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of more than one element, as they are stored."""
        return tuple(axis for axis in self.dims if axis is not None and self.shape[axis] > 1)

    @property
    def dtype(self) -> DType:
        """As the file sees it."""
        return DType.FLOAT32 if self.is_real else self.tensor.dtype


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A tensor of `shape` in the file that is `source` reshaped, where the axes that this joins do not lie side by
    side. Weights can follow that order; for all else it is brought into the file's."""

    source: Stored
    shape: Shape

    @property
    def is_real(self) -> bool:
        return self.source.is_real

    @property
    def dtype(self) -> DType:
        return self.source.dtype

    def columns(self) -> npt.NDArray[np.int64] | None:
        """For each element of a stored row the column of the file's matrix that it is; None where rows differ."""
        rows, columns = self.shape[0], math.prod(self.shape[1:])
        source = self.source
        places = np.arange(math.prod(source.shape)).reshape([n for n in source.shape if n > 1] or [1])
        ranks = {axis: place for place, axis in enumerate(a for a, n in enumerate(source.shape) if n > 1)}
        stored = places.transpose([ranks[axis] for axis in source.order]).reshape(rows, columns) if ranks else places
        first = stored[:1] % columns
        same = (stored == first + columns * np.arange(rows)[:, None]).all()
        return first[0] if same else None


Value = Constant | Stored | Shuffled


def stored_as(shape: Shape, dims: Sequence[int | None]) -> Dims:
    """The same places with axes of size one left out."""
    return tuple(None if axis is None or shape[axis] == 1 else axis for axis in dims)


def sizes(shape: Shape, dims: Dims) -> Shape:
    return tuple(1 if axis is None else shape[axis] for axis in dims)


def in_file_order(shape: Shape) -> Dims:
    return stored_as(shape, range(len(shape)))


def transposed(value: Stored, axes: Sequence[int]) -> Stored:
    """The file's axes in another order: only their labels change."""
    place = {axis: number for number, axis in enumerate(axes)}
    dims = tuple(None if axis is None else place[axis] for axis in value.dims)
    return replace(value, dims=dims, shape=tuple(value.shape[axis] for axis in axes))


def relabelled(value: Stored, shape: Shape) -> Stored | None:
    """The tensor under a shape that only adds or removes axes of size one; None if the new shape does more."""
    old, new = ([a for a, n in enumerate(s) if n > 1] for s in (value.shape, shape))
    if [value.shape[a] for a in old] != [shape[a] for a in new]:
        return None
    names: dict[int | None, int] = dict(zip(old, new, strict=True))
    return replace(value, dims=tuple(names.get(axis) for axis in value.dims), shape=shape)


def reshaped_order(value: Stored, shape: Shape) -> tuple[int, ...] | None:
    """The axes of the new shape as they are stored, if reshaping needs no copy; else None."""
    made: dict[int, list[int]] = {}
    inside: set[int] = set()
    order = list(value.order)
    for old, new in _groups(value.shape, shape):
        places = [order.index(axis) for axis in old]
        if places != list(range(places[0], places[0] + len(places))):
            return None
        made[old[0]] = new
        inside |= set(old[1:])
    return tuple(axis for first in order if first not in inside for axis in made[first])


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The smallest groups of axes, axes of size one left out, that hold as many elements in both shapes."""
    sides = [[(axis, size) for axis, size in enumerate(shape) if size > 1] for shape in (old, new)]
    places = [0, 0]
    while places[0] < len(sides[0]):
        groups: list[list[int]] = [[], []]
        counts = [1, 1]
        while counts[0] != counts[1] or not groups[0]:
            side = 0 if counts[0] <= counts[1] else 1
            axis, size = sides[side][places[side]]
            groups[side].append(axis)
            counts[side] *= size
            places[side] += 1
        yield groups[0], groups[1]
