"""Sparse constants: a file stores only the numbers that are not 0, and where they stand.

The axes are walked level by level, in an order that the file gives, where some may be cut into blocks which are axes of
their own. A level is dense, with all of its indices, or sparse: then each entry of the level before has a segment of
the indices that there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, IntArray, Tensor

_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class _Level:
    """`size`: of a dense one; 0 for a sparse one, where entry e has `indices[segments[e]:segments[e + 1]]`."""

    size: int
    segments: IntArray
    indices: IntArray


def dense_values(sparsity: Any, stored: npt.NDArray[np.uint8], tensor: Tensor) -> npt.NDArray[Any]:
    """All values of a constant, of which the file stores those in `stored`."""
    if tensor.dtype is DType.INT4 or stored.size % tensor.dtype.size_bytes:
        raise ModelError(f"tensor '{tensor.label}': {tensor.dtype.value} elements cannot be sparse; supported: others")
    values = stored.view(tensor.dtype.numpy.newbyteorder("<"))
    order = [sparsity.TraversalOrder(n) for n in range(_count(sparsity.TraversalOrderLength()))]
    blocked = [sparsity.BlockMap(n) for n in range(_count(sparsity.BlockMapLength()))]
    levels = [_level(sparsity.DimMetadata(n)) for n in range(_count(sparsity.DimMetadataLength()))]
    rank = len(tensor.shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise _damage(tensor)
    found, entries = _walked(levels, tensor)
    by_axis = [found[order.index(axis)] for axis in range(len(order))]
    for place, axis in enumerate(blocked, rank):
        size = levels[order.index(place)].size
        by_axis[axis] = by_axis[axis] * size + by_axis[place]
    if len(entries) > values.size or any(np.any(at >= size) for at, size in zip(by_axis, tensor.shape, strict=False)):
        raise _damage(tensor)
    dense: npt.NDArray[Any] = np.zeros(tensor.shape, tensor.dtype.numpy)
    dense[tuple(by_axis[:rank])] = values[entries]
    return dense


def _walked(levels: Sequence[_Level], tensor: Tensor) -> tuple[list[IntArray], IntArray]:
    """For each level the index of every stored number along it, and which one it is among those stored."""
    found: list[IntArray] = []
    entries: IntArray = np.zeros(1, np.int64)
    for level in levels:
        if level.size:
            counts = np.full(len(entries), level.size)
        else:
            if len(entries) and entries.max() + 1 >= len(level.segments):
                raise _damage(tensor)
            counts = level.segments[entries + 1] - level.segments[entries]
        if counts.min(initial=0) < 0 or counts.sum() > max(1, tensor.elems):
            raise _damage(tensor)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        first = entries * level.size if level.size else level.segments[entries]
        entries = np.repeat(first, counts) + within
        if not level.size and len(entries) and (entries.min() < 0 or entries.max() >= len(level.indices)):
            raise _damage(tensor)
        found = [*(np.repeat(at, counts) for at in found), within if level.size else level.indices[entries]]
    return found, entries


def _level(table: Any) -> _Level:
    if table.Format() == tflite.DimensionType.DENSE:
        return _Level(max(1, int(table.DenseSize())), np.empty(0, np.int64), np.empty(0, np.int64))
    segments = _vector(table.ArraySegmentsType(), table.ArraySegments())
    return _Level(0, segments, _vector(table.ArrayIndicesType(), table.ArrayIndices()))


def _vector(code: int, union: Any) -> IntArray:
    if code not in _VECTORS or union is None:
        raise ModelError("a sparse constant has no indices; the file is damaged")
    vector = _VECTORS[code]()
    vector.Init(union.Bytes, union.Pos)
    return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1) if vector.ValuesLength() else np.empty(0, np.int64)


def _count(found: int) -> int:
    if found > _MOST_LEVELS:
        raise ModelError(f"a sparse constant of {found} levels is beyond the limit of {_MOST_LEVELS}")
    return found


def _damage(tensor: Tensor) -> ModelError:
    return ModelError(f"tensor '{tensor.label}': where its numbers stand does not suit its shape; the file is damaged")
