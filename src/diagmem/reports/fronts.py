"""How far an operation has got with its input and its output: the two fronts that may never cross.

While it runs, bytes [0, written) of the output hold results, and of the input only bytes from `needed` on will be read
again. Pictures need few points of each front, so they are taken at a few steps, straight from the runs.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from diagmem.kernels import Library
from diagmem.model.graph import DType, IntArray, Node
from diagmem.ops import kind_of
from diagmem.ops.accesses import Accesses, Runs

SAMPLES = 64

TOLERANCE = 0.01

Front = tuple[tuple[float, int], ...]
"""Points (share of the operation's steps done, bytes), from 0 to 1; between them it is a straight line."""


def sort_of(node: Node) -> Hashable:
    """The same for operations that touch their tensors alike: many of a network's do, and each sort need be looked at
    only once."""
    tensors = tuple((t.shape, t.dtype, t.is_constant, t.strides) if t else None for t in (*node.inputs, *node.outputs))
    reads_values = any(t is not None and t.data is not None and t.dtype is DType.INT32 for t in node.inputs)
    return node.op.kind, node.op.attributes, tensors, node.op.index if reads_values else None


@dataclass(frozen=True, slots=True)
class Fronts:
    """`written[o]`: end of what is written of output o. `needed[i]`: start of what will still be read of input i, None
    for constants."""

    written: tuple[Front, ...]
    needed: tuple[Front | None, ...]


def fronts(node: Node, library: Library, samples: int = SAMPLES, tolerance: float | None = TOLERANCE) -> Fronts | None:
    """The fronts of an operation as the library runs it; None where its loops are not known.

    `tolerance`: how far a drawn line may pass from a point that is left out, as a part of the buffer; None: none is.
    """
    kind, order = kind_of(node.op.kind), library.order(node)
    if kind is None or order is None or kind.is_alias:
        return None
    accesses = kind.accesses(node, order)
    steps = np.unique(np.linspace(0, accesses.steps - 1, min(samples, accesses.steps)).astype(np.int64))
    return Fronts(
        tuple(
            _front(accesses, steps, _written(runs, steps) * tensor.dtype.size_bytes, 0, tolerance)
            for runs, tensor in zip(accesses.writes, node.outputs, strict=True)
        ),
        tuple(
            None
            if runs is None or tensor is None
            else _front(accesses, steps, *_needed_bytes(runs, steps, tensor.elems, tensor.dtype.size_bytes), tolerance)
            for runs, tensor in zip(accesses.reads, node.inputs, strict=True)
        ),
    )


def _front(accesses: Accesses, steps: IntArray, size_bytes: IntArray, at_start: int, tolerance: float | None) -> Front:
    """Points after each of the steps, and the one before the first; those on a straight line are left out."""
    done = (steps + 1) / accesses.steps
    points = [(0.0, at_start), *zip(done.tolist(), size_bytes.tolist(), strict=True)]
    if tolerance is None:
        return tuple(points)
    return tuple(simplified(points, tolerance * max(value for _, value in points)))


def simplified(points: list[tuple[float, int]], tolerance: float) -> list[tuple[float, int]]:
    """The fewest of the points such that the line through them passes within `tolerance` bytes of the others."""
    if len(points) < 3:
        return points
    (t0, b0), (t1, b1) = points[0], points[-1]
    off = [abs(b - (b0 + (b1 - b0) * (t - t0) / (t1 - t0))) for t, b in points]
    worst = max(range(len(points)), key=off.__getitem__)
    if off[worst] <= tolerance:
        return [points[0], points[-1]]
    return simplified(points[: worst + 1], tolerance)[:-1] + simplified(points[worst:], tolerance)


def _written(runs: Runs, steps: IntArray) -> IntArray:
    """The end of everything written up to and including each of the steps, in elements."""
    found = np.zeros(len(steps), dtype=np.int64)
    stride = np.maximum(runs.stride, 1)
    for place, step in enumerate(steps):
        begun = runs.step <= step
        count = np.where(runs.stride > 0, (step - runs.step) // stride + 1, runs.length)
        last = np.minimum(count, runs.length) - 1
        ends = runs.start + np.maximum(0, last * runs.pitch) + 1
        found[place] = ends[begun].max(initial=0)
    return found


def _needed_bytes(runs: Runs, steps: IntArray, elems: int, size_bytes: int) -> tuple[IntArray, int]:
    needed = _needed(runs, np.append(-1, steps), elems) * size_bytes
    return needed[1:], int(needed[0])


def _needed(runs: Runs, steps: IntArray, elems: int) -> IntArray:
    """The first element that is read after each of the steps; `elems` if none is."""
    if not len(runs.start):
        return np.full(len(steps), elems, dtype=np.int64)
    # A run's elements are read for the last time from `first` to `last`, one after the other.
    first = runs.step + runs.hold - 1
    last = first + (runs.length - 1) * runs.stride
    lowest = runs.start + np.minimum(0, (runs.length - 1) * runs.pitch)
    order = np.argsort(first, kind="stable")
    still_whole = np.append(np.minimum.accumulate(lowest[order][::-1])[::-1], elems)
    found = still_whole[np.searchsorted(first[order], steps, side="right")]
    for place, step in enumerate(steps):
        under_way = np.flatnonzero((first <= step) & (step < last))
        if len(under_way):
            passed = (step - first[under_way]) // np.maximum(1, runs.stride[under_way]) + 1
            ahead = runs.start[under_way] + passed * np.maximum(0, runs.pitch[under_way])
            falling = runs.pitch[under_way] < 0
            found[place] = min(found[place], np.where(falling, lowest[under_way], ahead).min())
    return found
