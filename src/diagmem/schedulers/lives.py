"""From when to when each row must exist, and what rows can share, in a sequence of turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from diagmem.footprint import most_covered
from diagmem.rows import RowGraph
from diagmem.schedule import PUSH

Turn = tuple[int, int]
"""An op and its turn; op PUSH and a row of the streamed input."""

Row = tuple[int, int]
"""A tensor and a row of it."""


class Life(NamedTuple):
    """The turns, both included, between which a row must exist; one that is there before starts at turn 0."""

    tensor: int
    row: int
    first: int
    last: int


def rows_read(rows: RowGraph, turn: Turn) -> list[Row]:
    if turn[0] == PUSH:
        return []
    needs = rows.ops[turn[0]].needs
    return [(need.tensor, row) for need in needs for row in range(need.first[turn[1]], need.end[turn[1]])]


def rows_made(rows: RowGraph, turn: Turn) -> list[Row]:
    if turn[0] == PUSH:
        return [(rows.graph.inputs[0], turn[1])]
    op = rows.ops[turn[0]]
    made = op.makes_at(turn[1])
    return [(tensor, row) for tensor in op.makes for row in (range(rows.rows[tensor]) if made is None else made)]


def row_lives(rows: RowGraph, turns: Sequence[Turn]) -> list[Life]:
    """The lives of all rows that the turns touch, by tensor and row. A row that is made again lives again."""
    found: list[tuple[Row, list[int]]] = []
    now: dict[Row, list[int]] = {}

    def born(row: Row, at: int) -> list[int]:
        now[row] = [at, at]
        found.append((row, now[row]))
        return now[row]

    for at, turn in enumerate(turns):
        for row in rows_read(rows, turn):
            (now.get(row) or born(row, 0))[1] = at
        for row in rows_made(rows, turn):
            born(row, at)
    return sorted(Life(*row, *span) for row, span in found)


def sum_lives(rows: RowGraph, turns: Sequence[tuple[int, int | None]]) -> list[tuple[int, int, int]]:
    """(op, first, last) for each accumulator: the turns, both included, during which it holds its sums. One that runs
    whole (turn None) holds none."""
    span: dict[int, tuple[int, int]] = {}
    for at, (index, turn) in enumerate(turns):
        if index != PUSH and turn is not None and rows.ops[index].accumulator_bytes:
            span[index] = (span.get(index, (at, at))[0], at)
    return [(op, first, last) for op, (first, last) in span.items()]


def shared_bytes(rows: RowGraph, turn: Turn, dying: Collection[Row]) -> int:
    """The most bytes that the row made at a turn can share with those that die there."""
    if turn[0] == PUSH or rows.ops[turn[0]].makes_at(turn[1]) is None:
        return 0
    op = rows.ops[turn[0]]
    above = [
        (apart, rows.row_bytes[need.tensor])
        for need in op.needs
        for row, apart in enumerate(need.apart[turn[1]], need.first[turn[1]])
        if (need.tensor, row) in dying
    ]
    return most_covered(rows.row_bytes[op.makes[0]], above)
