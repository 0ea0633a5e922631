"""Where rows lie, written shorter: the table of their places in pieces, each gone over again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

MOST_PERIOD = 256
"""Rows after which places repeat themselves: networks over time do so within that."""

MOST_TRIED = 6
"""Periods from one row on: longer ones are as a rule some short one several times over."""

PIECE_BYTES = 10
"""Five numbers of 16 bits each."""

LEAST_ROWS = 24
"""Below that a table is short enough."""

LEAST_SAVED_BYTES = 200
"""By all tables of a program: about as much code goes over pieces."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Piece:
    """The next `rows` rows. The first of them lie at `offsets`; from then on each lies where the one so many rows
    before it does, or `drift` bytes further on."""

    rows: int
    offsets: tuple[int, ...]
    drift: tuple[int, ...] = ()

    def offset(self, row: int) -> int:
        """Of a row, counted from the first of the piece."""
        times, at = divmod(row, len(self.offsets))
        return self.offsets[at] + (times * self.drift[at] if self.drift else 0)

    def moved(self, offset: int) -> Piece:
        """All of it so many bytes further on."""
        return replace(self, offsets=tuple(at + offset for at in self.offsets))

    @property
    def entries(self) -> tuple[int, ...]:
        """What the table holds for it."""
        return (*self.offsets, *self.drift)


def shorter_tables(tables: Mapping[int, tuple[int, ...]], entry_bytes: int) -> dict[int, tuple[Piece, ...]]:
    """The pieces of tables that take less in pieces; none at all where that is not worth the code."""
    found = {key: pieces(table, entry_bytes) for key, table in tables.items() if len(table) >= LEAST_ROWS}
    saved = {key: len(tables[key]) * entry_bytes - pieces_bytes(cut, entry_bytes) for key, cut in found.items()}
    worth = {key: found[key] for key in found if saved[key] > 0}
    return worth if sum(saved[key] for key in worth) >= LEAST_SAVED_BYTES else {}


def pieces_bytes(found: Sequence[Piece], entry_bytes: int) -> int:
    return sum(PIECE_BYTES + entry_bytes * len(piece.entries) for piece in found)


def pieces(table: tuple[int, ...], entry_bytes: int) -> tuple[Piece, ...]:
    """A table as pieces that take few bytes."""
    places, count = np.array(table, dtype=np.int64), len(table)
    choices = _choices(places)
    # From the back: the least bytes for what is left, and how it begins, behind a row that stands for itself, and else.
    alone: list[tuple[int, int, int, int]] = [(0, 1, 1, 0)] * (count + 1)
    fresh = list(alone)
    for at in range(count - 1, -1, -1):
        after = entry_bytes + alone[at + 1][0]
        repeated = [
            (PIECE_BYTES + entry_bytes * period * (1 + moves) + fresh[at + rows][0], rows, period, moves)
            for rows, period, moves in choices[at]
        ]
        alone[at] = min([(after, 1, 1, 0), *repeated])
        fresh[at] = min([(PIECE_BYTES + after, 1, 1, 0), *repeated])
    found: list[Piece] = []
    single: list[int] = []
    at, is_alone = 0, False
    while at < count:
        _, rows, period, moves = (alone if is_alone else fresh)[at]
        is_alone = rows == 1
        if is_alone:
            single.append(table[at])
        else:
            first = places[at : at + period]
            drift = places[at + period : at + 2 * period] - first if moves else first[:0]
            found += [Piece(len(single), tuple(single))] if single else []
            found.append(Piece(rows, tuple(first.tolist()), tuple(drift.tolist())))
            single = []
        at += rows
    return (*found, Piece(len(single), tuple(single))) if single else tuple(found)


def _choices(places: Ints) -> list[list[tuple[int, int, int]]]:
    """For each row (rows, period, whether they move on) of pieces that begin there, shortest periods first."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in places]
    for period in range(1, min(MOST_PERIOD, len(places) // 2) + 1):
        further = places[period:] - places[:-period]
        stays = _run(further == 0)
        moves = _run((further[period:] == further[:-period]) & (further[period:] >= 0))
        for at in np.flatnonzero(stays >= period).tolist():
            if len(found[at]) < MOST_TRIED:
                found[at].append((period + int(stays[at]), period, 0))
        for at in np.flatnonzero(moves >= period).tolist():
            if len(found[at]) < MOST_TRIED and stays[at] < moves[at] + period:
                found[at].append((2 * period + int(moves[at]), period, 1))
    return found


def _run(same: npt.NDArray[np.bool_]) -> Ints:
    """How many are true from each place on."""
    count = len(same)
    breaks = np.where(same, count, np.arange(count))
    run: Ints = np.minimum.accumulate(breaks[::-1])[::-1] - np.arange(count)
    return run
