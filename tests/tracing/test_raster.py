"""The grid that pictures are painted from."""

from __future__ import annotations

import numpy as np

from diagmem.tracing.analysis import Cell, Raster
from diagmem.tracing.recording import EVENT, Kind, Recorder


def painted(*records: tuple[int, int, int, int], columns: int = 8, rows: int = 4) -> list[str]:
    """Rows of cells, the highest offset first: load, store, update, # in use, . nothing."""
    raster = Raster(4, 0, 8, columns, rows)
    recorder = Recorder(4, lambda _: None, raster.add)
    recorder.feed(np.array([(0, 0, 0, Kind.START), *records, (8, 0, 0, Kind.END)], dtype=EVENT))
    raster.finish(recorder.values, [range(3, 4)])
    signs = {Cell.NOTHING: ".", Cell.IN_USE: "#", Cell.LOADED: "l", Cell.STORED: "s", Cell.UPDATED: "u"}
    return ["".join(signs[Cell(cell)] for cell in row) for row in raster.cells[::-1]]


def test_values_are_in_use_from_birth_to_last_read() -> None:
    """A value read later is in use, one that is overwritten unread is not; what the caller reads lives to the end."""
    assert painted(
        (1, 0, 1, Kind.LOAD),
        (2, 1, 1, Kind.STORE),
        (5, 1, 1, Kind.LOAD),
        (3, 2, 1, Kind.STORE),
        (6, 2, 1, Kind.STORE),
        (4, 3, 1, Kind.STORE),
    ) == [
        "....s###",
        "...s..s.",
        "..s##l..",
        "#l......",
    ]


def test_updates_are_told_from_stores() -> None:
    """A store over a value that the operation wrote and read back is an update."""
    assert (
        painted((1, 0, 1, Kind.STORE), (3, 0, 1, Kind.LOAD), (4, 0, 1, Kind.STORE), (6, 0, 1, Kind.LOAD))[3]
        == ".s#lu#l."
    )


def test_coarse_cells_keep_every_event() -> None:
    """However few cells there are, a touch leaves its mark."""
    assert painted((7, 3, 1, Kind.LOAD), columns=2, rows=2) == ["#l", ".."]
