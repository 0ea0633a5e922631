"""The placement problem of a graph that runs row by row.

A tensor that only row steps touch is kept as a table of rows, each a buffer of its own, placed anywhere. A tensor that
must lie in one piece is one buffer whose window moves: it grows as rows are made and shrinks from the front as rows
die, so others may use the space before and behind. Both become separations, and the allocators need not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from diagmem.footprint import Footprint, Store
from diagmem.graph import IntArray
from diagmem.ops._base import SUM_BYTES
from diagmem.problem import BEFORE_RUN, Buffer, Problem
from diagmem.rows import RowGraph
from diagmem.schedule import PUSH, Schedule
from diagmem.schedulers.rows import Turn, row_lives, sum_lives


@dataclass(frozen=True, slots=True)
class _Windowed:
    """A buffer in one piece, and its window [low, high) in bytes at each of its steps from `first_step` on."""

    index: int
    buffer: Buffer
    low: IntArray
    high: IntArray

    def at(self, window: IntArray, begin: int, end: int) -> IntArray:
        """A part of `low` or `high`, for the steps [begin, end)."""
        return window[begin - self.buffer.first_step : end - self.buffer.first_step]


def row_problem(needs: Footprint, rows: RowGraph, schedule: Schedule) -> Problem:
    """Buffers and separations under a schedule of single rows. A streamed input has no store in one piece."""
    turns = tuple((step.op, step.rows.start if step.rows is not None else 0) for step in schedule.steps)
    whole = rows.in_one_piece(input_rows=any(op == PUSH for op, _ in turns))
    lives: dict[int, list[tuple[int, int]]] = {}
    for tensor, first, last in row_lives(rows, turns):
        lives.setdefault(tensor, []).append((first, last))
    buffers: list[Buffer] = []
    pieces: list[_Windowed] = []
    for store in needs.stores:
        if len(store.tensors) == 1 and store.tensors[0] not in whole:
            buffers += _table(store, rows, lives[store.tensors[0]])
        elif not store.is_scratch:
            pieces.append(_piece(len(buffers), store, rows, lives, len(turns)))
            buffers.append(pieces[-1].buffer)
    buffers += _sums(rows, turns)
    overlaps = dict(_moving_windows(buffers, pieces))
    unit = needs.unit_bytes
    pressure = _pressure(buffers, pieces, unit, len(turns))
    return Problem(tuple(buffers), overlaps, unit, pressure, max(pressure, default=0))


def _table(store: Store, rows: RowGraph, lives: list[tuple[int, int]]) -> Iterator[Buffer]:
    tensor = store.tensors[0]
    for row, (first, last) in enumerate(lives):
        name, size = f"{store.name}[{row}]", rows.row_bytes[tensor]
        yield Buffer(name, size, first, last + 1, store.align_bytes, (tensor,), rows=range(row, row + 1))


def _piece(
    index: int, store: Store, rows: RowGraph, lives: Mapping[int, list[tuple[int, int]]], steps: int
) -> _Windowed:
    """A store in one piece. Its window moves only if it holds a single tensor; else it is whole from its start on."""
    touched = [span for tensor in store.tensors for span in lives.get(tensor, [])]
    first = BEFORE_RUN if store.maker is None else min(span[0] for span in touched)
    last = steps if store.is_kept else max((span[1] for span in touched), default=first)
    buffer = Buffer(store.name, store.size_bytes, first, last + 1, store.align_bytes, store.tensors)
    low = np.zeros(last + 1 - first, dtype=np.int64)
    high = np.full(last + 1 - first, store.size_bytes, dtype=np.int64)
    if len(store.tensors) == 1:
        tensor = store.tensors[0]
        spans, size = lives.get(tensor, []), rows.row_bytes[tensor]
        if not store.is_kept:
            for row, (_, died) in enumerate(spans):
                # Rows die in order or late: what lies before a row that still lives is not given up.
                if all(d <= died for _, d in spans[:row]):
                    low[died + 1 - first :] = (row + 1) * size
        if store.maker is not None:
            high[:] = 0
            for row, (made, _) in enumerate(spans):
                high[made - first :] = np.maximum(high[made - first :], (row + 1) * size)
    return _Windowed(index, buffer, low, high)


def _sums(rows: RowGraph, turns: tuple[Turn, ...]) -> Iterator[Buffer]:
    for op, first, last in sum_lives(rows, turns):
        size = rows.ops[op].accumulator_bytes
        yield Buffer(f"sums of op {op}", size, first, last + 1, SUM_BYTES, scratch_of=op)


def _moving_windows(buffers: list[Buffer], pieces: list[_Windowed]) -> Iterator[tuple[tuple[int, int], int]]:
    """separation(below, above) for each pair in which a window moves."""
    moving = {piece.index: piece for piece in pieces}
    for piece in pieces:
        for other, buffer in enumerate(buffers):
            begin = max(piece.buffer.first_step, buffer.first_step)
            end = min(piece.buffer.end_step, buffer.end_step)
            if other == piece.index or begin >= end:
                continue
            low, high = piece.at(piece.low, begin, end), piece.at(piece.high, begin, end)
            near = moving.get(other)
            if near is None:
                yield (piece.index, other), int(high.max())
                yield (other, piece.index), buffer.size_bytes - int(low.min())
            elif other > piece.index:
                yield (piece.index, other), int((high - near.at(near.low, begin, end)).max())
                yield (other, piece.index), int((near.at(near.high, begin, end) - low).max())


def _pressure(buffers: list[Buffer], pieces: list[_Windowed], unit: int, steps: int) -> tuple[int, ...]:
    """Bytes that live at each step: rows and sums in whole units, windows by their bytes."""
    live = np.zeros(steps + 2, dtype=np.int64)
    windowed = {piece.index: piece for piece in pieces}
    for index, buffer in enumerate(buffers):
        span = slice(buffer.first_step + 1, buffer.end_step + 1)
        if index in windowed:
            live[span] += (windowed[index].high - windowed[index].low) // unit * unit
        else:
            live[span] += -(-buffer.size_bytes // unit) * unit
    given, after = live[0], live[-1]
    during = live[1:-1].copy()
    if len(during):
        during[0], during[-1] = max(during[0], given), max(during[-1], after)
    return tuple(during.tolist())
