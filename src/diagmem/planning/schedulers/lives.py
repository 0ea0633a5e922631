"""From when to when each row must exist, and what rows can share, in a sequence of steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from diagmem.model.schedule import PUSH
from diagmem.planning.footprint import most_covered
from diagmem.planning.rows import RowGraph

RowStep = tuple[int, int]
"""A step in plain numbers: an op and its turn (0 where it runs whole); op PUSH and a row of the streamed input."""

Row = tuple[int, int]
"""A tensor and a row of it."""


class Life(NamedTuple):
    """The steps [first, end) during which a row must exist; one that is there before the run starts at step 0."""

    tensor: int
    row: int
    first: int
    end: int


def rows_read(rows: RowGraph, step: RowStep) -> list[Row]:
    op, turn = step
    if op == PUSH:
        return []
    needs = rows.ops[op].needs
    return [(need.tensor, row) for need in needs for row in range(need.first[turn], need.end[turn])]


def rows_made(rows: RowGraph, step: RowStep) -> list[Row]:
    op, turn = step
    if op == PUSH:
        return [(rows.graph.inputs[0], turn)]
    made = rows.ops[op].makes_at(turn)
    makes = rows.ops[op].makes
    return [(tensor, row) for tensor in makes for row in (range(rows.rows[tensor]) if made is None else made)]


def row_lives(rows: RowGraph, steps: Sequence[RowStep]) -> list[Life]:
    """The lives of all rows that the steps touch, by tensor and row. A row that is made again lives again."""
    found: list[tuple[Row, list[int]]] = []
    now: dict[Row, list[int]] = {}

    def born(row: Row, at: int) -> list[int]:
        now[row] = [at, at + 1]
        found.append((row, now[row]))
        return now[row]

    for at, step in enumerate(steps):
        for row in rows_read(rows, step):
            (now.get(row) or born(row, 0))[1] = at + 1
        for row in rows_made(rows, step):
            born(row, at)
    return sorted(Life(*row, *span) for row, span in found)


def sum_lives(rows: RowGraph, steps: Sequence[tuple[int, int | None]]) -> list[tuple[int, int, int]]:
    """(op, first, end) for each accumulator: the steps [first, end) during which it holds its sums. One that runs whole
    (turn None) holds none."""
    span: dict[int, tuple[int, int]] = {}
    for at, (op, turn) in enumerate(steps):
        if op != PUSH and turn is not None and rows.ops[op].accumulator_bytes:
            span[op] = (span.get(op, (at, at))[0], at + 1)
    return [(op, first, end) for op, (first, end) in span.items()]


def shared_bytes(rows: RowGraph, step: RowStep, dying: Collection[Row]) -> int:
    """The most bytes that the row made at a step can share with those that die there."""
    index, turn = step
    if index == PUSH or rows.ops[index].makes_at(turn) is None:
        return 0
    op = rows.ops[index]
    above = [
        (apart, rows.row_bytes[need.tensor])
        for need in op.needs
        for row, apart in enumerate(need.apart[turn], need.first[turn])
        if (need.tensor, row) in dying
    ]
    return most_covered(rows.row_bytes[op.makes[0]], above)
