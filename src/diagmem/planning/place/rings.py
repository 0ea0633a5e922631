"""Rows that can follow a rule need no table: tensors moved into rings, or into one piece, where there is space for it.

The arena does not grow. A ring of `period` rows holds row r in slot r % period; no two rows that share a slot may be in
each other's way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets

NOBODY = -1


def with_rings(problem: Problem, offsets: Offsets) -> Offsets:
    """The placement with as many tensors by a rule as fit, those with most rows first."""
    found, arena_bytes = np.array(offsets, dtype=np.int64), problem.arena_bytes(offsets)
    for rows in sorted(_tables(problem), key=lambda rows: (-len(rows), rows)):
        met = _Met.of(problem, rows)
        period, pitch = met.period(len(rows)), _pitch(problem, rows[0])
        base = met.lowest_base(period, pitch, found, problem.buffers[rows[0]].align_bytes)
        if base + period * pitch <= arena_bytes:
            found[rows] = base + np.arange(len(rows)) % period * pitch
    return tuple(found.tolist())


def _tables(problem: Problem) -> Iterator[list[int]]:
    """The buffers of each tensor whose rows are placed one by one, by row."""
    tensors: dict[int, list[tuple[int, int]]] = {}
    for index, buffer in enumerate(problem.buffers):
        if buffer.rows is not None:
            tensors.setdefault(buffer.tensors[0], []).append((buffer.rows.start, index))
    for rows in tensors.values():
        yield [index for _, index in sorted(rows)]


def _pitch(problem: Problem, buffer: int) -> int:
    size, align = problem.buffers[buffer].size_bytes, problem.buffers[buffer].align_bytes
    return -(-size // align) * align


class _Met(NamedTuple):
    """What the rows of a tensor meet: for each such pair the row, by its number, the other one's number, NOBODY if it
    is no row of the tensor, that buffer, and where the row must not start (see Near)."""

    row: IntArray
    other_row: IntArray
    other: IntArray
    below: IntArray
    above: IntArray

    @classmethod
    def of(cls, problem: Problem, rows: Sequence[int]) -> _Met:
        near_from, near, below, above = problem.near
        own, numbers = np.array(rows, dtype=np.int64), np.arange(len(rows), dtype=np.int64)
        counts = near_from[own + 1] - near_from[own]
        which = np.arange(int(counts.sum())) + np.repeat(near_from[own] - np.cumsum(counts) + counts, counts)
        number_of = np.full(len(problem.buffers), NOBODY, dtype=np.int64)
        number_of[own] = numbers
        return cls(np.repeat(numbers, counts), number_of[near[which]], near[which], below[which], above[which])

    def period(self, rows: int) -> int:
        """The least number of slots."""
        inside = self.other_row != NOBODY
        apart = set(np.abs(self.other_row - self.row)[inside].tolist())
        return next(period for period in range(1, rows + 1) if not any(gap % period == 0 for gap in apart))

    def lowest_base(self, period: int, pitch: int, offsets: IntArray, align_bytes: int) -> int:
        """The lowest start of a ring that keeps all its rows clear of everything else."""
        outside = self.other_row == NOBODY
        start = (offsets[self.other] - self.row % period * pitch)[outside]
        low, high = start - self.below[outside], start + self.above[outside]
        order = np.argsort(low)
        # Where a ring may start behind the first of them, and behind the first two, and so on.
        behind = -(-np.maximum.accumulate(np.append(0, high[order])) // align_bytes) * align_bytes
        clear = np.append(behind[:-1] <= low[order], True)
        return int(behind[np.argmax(clear)])
