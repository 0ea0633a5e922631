"""Tables written shorter: the steps of a run as stretches that repeat, and offsets of rows in pieces that repeat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_LENGTH = 512
"""Of a stretch that is repeated: networks that halve their images five times repeat themselves within that."""

MOST_LENGTHS_TRIED = 4
"""At one place: longer ones are as a rule some short one several times over."""

MOST_TIMES = 65_535

REPEAT_BYTES = 4
"""Length and times, 16 bits each."""

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


class _Stretch(NamedTuple):
    """A stretch of a sequence: how many items it covers, and how many are stored for it. Of two that take the same
    bytes the one with the lower `rank` is taken."""

    rank: tuple[int, ...]
    covers: int
    stores: int


_SINGLE = _Stretch((1, 1), 1, 1)
"""An item that is not repeated; neighbours share what a stretch takes beside its items."""


def _cheapest(
    choices: Sequence[Sequence[_Stretch]], item_bytes: int, stretch_bytes: int
) -> Iterator[tuple[int, _Stretch]]:
    """The stretches that take the fewest bytes, and where they begin. `choices`: those from each item on."""
    count = len(choices)
    # From the back: the least bytes for what is left and how it begins, behind an item that stands alone, and else.
    alone = [(0, _SINGLE)] * (count + 1)
    fresh = list(alone)
    for at in range(count - 1, -1, -1):
        after = item_bytes + alone[at + 1][0]
        repeated = [(stretch_bytes + item_bytes * s.stores + fresh[at + s.covers][0], s) for s in choices[at]]
        alone[at] = min([(after, _SINGLE), *repeated])
        fresh[at] = min([(stretch_bytes + after, _SINGLE), *repeated])
    at, is_alone = 0, False
    while at < count:
        _, found = (alone if is_alone else fresh)[at]
        yield at, found
        at, is_alone = at + found.covers, found == _SINGLE


def _run(same: npt.NDArray[np.bool_]) -> Ints:
    """How many are true from each place on."""
    count = len(same)
    breaks = np.where(same, count, np.arange(count))
    run: Ints = np.minimum.accumulate(breaks[::-1])[::-1] - np.arange(count)
    return run


@dataclass(frozen=True, slots=True)
class Repeat:
    """`items`, `times` over."""

    items: tuple[int, ...]
    times: int


def repeats(items: Sequence[int], item_bytes: int) -> tuple[Repeat, ...]:
    """The sequence as repeats that take the fewest bytes."""
    found: list[Repeat] = []
    single: list[int] = []
    for at, stretch in _cheapest(_repeats_from_each(np.array(items, dtype=np.int64)), item_bytes, REPEAT_BYTES):
        if stretch == _SINGLE:
            single.append(items[at])
        else:
            length, times = stretch.rank
            found += [*_once(single), Repeat(tuple(items[at : at + length]), times)]
            single = []
    return (*found, *_once(single))


def repeats_bytes(found: Sequence[Repeat], item_bytes: int) -> int:
    return sum(REPEAT_BYTES + item_bytes * len(repeat.items) for repeat in found)


def _once(items: Sequence[int]) -> Iterator[Repeat]:
    """In pieces whose length 16 bits can hold."""
    for begin in range(0, len(items), MOST_TIMES):
        yield Repeat(tuple(items[begin : begin + MOST_TIMES]), 1)


def _repeats_from_each(items: Ints) -> list[list[_Stretch]]:
    """For each place the shortest stretches that are repeated from there on; their rank is length and times."""
    found: list[list[_Stretch]] = [[] for _ in items]
    for length in range(1, min(MOST_LENGTH, len(items) // 2) + 1):
        run = _run(items[:-length] == items[length:])
        for at in np.flatnonzero(run >= length).tolist():
            if len(found[at]) < MOST_LENGTHS_TRIED:
                times = min(MOST_TIMES, 1 + int(run[at]) // length)
                found[at].append(_Stretch((length, times), length * times, length))
    return found


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
    shorter = {key: found[key] for key in found if saved[key] > 0}
    return shorter if sum(saved[key] for key in shorter) >= LEAST_SAVED_BYTES else {}


def pieces_bytes(found: Sequence[Piece], entry_bytes: int) -> int:
    return sum(PIECE_BYTES + entry_bytes * len(piece.entries) for piece in found)


def pieces(table: tuple[int, ...], entry_bytes: int) -> tuple[Piece, ...]:
    """A table as pieces that take few bytes."""
    places = np.array(table, dtype=np.int64)
    found: list[Piece] = []
    single: list[int] = []
    for at, stretch in _cheapest(_pieces_from_each(places), entry_bytes, PIECE_BYTES):
        if stretch == _SINGLE:
            single.append(table[at])
            continue
        rows, period, moves = stretch.rank
        first = places[at : at + period]
        drift = places[at + period : at + 2 * period] - first if moves else first[:0]
        found += [Piece(len(single), tuple(single))] if single else []
        found.append(Piece(rows, tuple(first.tolist()), tuple(drift.tolist())))
        single = []
    return (*found, Piece(len(single), tuple(single))) if single else tuple(found)


def _pieces_from_each(places: Ints) -> list[list[_Stretch]]:
    """For each row the pieces that begin there, shortest periods first; their rank is rows, period, and whether they
    move on."""
    found: list[list[_Stretch]] = [[] for _ in places]
    for period in range(1, min(MOST_PERIOD, len(places) // 2) + 1):
        further = places[period:] - places[:-period]
        stays = _run(further == 0)
        moves = _run((further[period:] == further[:-period]) & (further[period:] >= 0))
        for at in np.flatnonzero(stays >= period).tolist():
            if len(found[at]) < MOST_TRIED:
                rows = period + int(stays[at])
                found[at].append(_Stretch((rows, period, 0), rows, period))
        for at in np.flatnonzero(moves >= period).tolist():
            if len(found[at]) < MOST_TRIED and stays[at] < moves[at] + period:
                rows = 2 * period + int(moves[at])
                found[at].append(_Stretch((rows, period, 1), rows, 2 * period))
    return found
