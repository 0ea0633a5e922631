"""Events as a grid of cells, time across and offset up: what a picture of a run is painted from."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import IntArray
from diagmem.tracing.capture.events import ALWAYS, Flags, Kind, TouchedBytes, Value


class Cell(enum.IntEnum):
    """What happened in a cell."""

    NOTHING = 0
    IN_USE = 1
    LOADED = 2
    STORED = 3
    UPDATED = 4


class Raster:
    """Cells of a run in [start, end) instructions over `space_bytes`. A cell knows whether anything in it was loaded,
    stored or updated, and whether any of its bytes was in use: held a value that is read later."""

    def __init__(self, space_bytes: int, start: int, end: int, columns: int = 1000, rows: int = 480) -> None:
        self.space_bytes, self.start, self.end = space_bytes, start, max(end, start + 1)
        self.columns, self.rows = min(columns, self.end - start), min(rows, space_bytes)
        shape = self.rows, self.columns
        self.loaded, self.stored, self.updated = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        self._uses = np.zeros((self.rows, self.columns + 1), dtype=np.int64)

    def add(self, touches: TouchedBytes) -> None:
        """Marks touches, and how long the values that they replaced were in use."""
        kind = touches.events["kind"][touches.event]
        column = self._column(touches.events["time"].astype(np.int64))[touches.event]
        row = self._row(touches.byte)
        updates = touches.is_update[touches.event]
        for grid, chosen in (
            (self.loaded, kind == Kind.LOAD),
            (self.stored, (kind == Kind.STORE) & ~updates),
            (self.updated, updates),
        ):
            grid[row[chosen], column[chosen]] = True
        self._use(touches.dead_byte, touches.dead_birth, touches.dead_last_read)

    def finish(self, values: Value, kept: Iterable[range]) -> None:
        """The run is over: `values` is what the bytes hold now, `kept` the bytes that the caller reads."""
        until = values.last_read.copy()
        for place in kept:
            until[place.start : place.stop] = self.end - 1
        byte = np.flatnonzero((until != ALWAYS) & (until >= values.birth))
        self._use(byte, values.birth[byte], until[byte])

    @property
    def in_use(self) -> Flags:
        return np.cumsum(self._uses, axis=1)[:, :-1] > 0

    @property
    def cells(self) -> npt.NDArray[np.uint8]:
        """For each cell its most telling `Cell`, the lowest offsets first."""
        found = np.zeros((self.rows, self.columns), dtype=np.uint8)
        for cell, grid in (
            (Cell.IN_USE, self.in_use),
            (Cell.LOADED, self.loaded),
            (Cell.STORED, self.stored),
            (Cell.UPDATED, self.updated),
        ):
            found[grid] = cell
        return found

    def _use(self, byte: IntArray, birth: IntArray, last_read: IntArray) -> None:
        row = self._row(byte)
        np.add.at(self._uses, (row, self._column(birth)), 1)
        np.add.at(self._uses, (row, self._column(last_read) + 1), -1)

    def _column(self, time: IntArray) -> IntArray:
        return np.clip((time - self.start) * self.columns // (self.end - self.start), 0, self.columns - 1)

    def _row(self, byte: IntArray) -> IntArray:
        return byte * self.rows // self.space_bytes
