"""A table of buffers as a placement problem, and its placement."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import optimal
from diagmem.planning.place.fit import Placement
from diagmem.planning.place.table import Row, Table, TableError, conflicts

MOST_PAIRS = 4_000_000
"""Of buffers alive at once: more do not fit into memory."""

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Posed:
    """`members`: the rows that are the problem's buffers. Others never live, and may lie anywhere."""

    problem: Problem
    members: tuple[int, ...]

    def offsets(self, placed: Sequence[int], rows: int) -> tuple[int, ...]:
        """One for each row."""
        found = [0] * rows
        for member, offset in zip(self.members, placed, strict=True):
            found[member] = offset
        return tuple(found)


def table_problem(table: Table) -> Posed:
    """The buffers that ever live, in whole units."""
    members = tuple(place for place, row in enumerate(table.rows) if row.lower < row.upper)
    number = {place: index for index, place in enumerate(members)}
    rows = [table.rows[place] for place in members]
    times = sorted({t for row in rows for t in _moments(row)})
    alive = _alive(rows, times)
    given = {(number[a], number[b]): v for (a, b), v in table.separations.items() if a in number and b in number}
    overlaps = {**_between_windows(rows, alive), **_of_live_pairs(rows, given)}
    whole = math.gcd(*(row.size_bytes for row in rows), *overlaps.values()) or 1
    aligns = [row.align_bytes for row in rows]
    # Pushed down, buffers lie at multiples of what all sizes and separations are multiples of.
    if all(whole % align == 0 for align in aligns):
        unit, aligns = whole, [whole] * len(rows)
    else:
        unit = math.gcd(whole, *aligns)
    # Where bytes may be shared the pressure says when, step by step; else how long buffers live is worth knowing.
    step = {time: number for number, time in enumerate(times)} if overlaps else {time: time for time in times}
    buffers = tuple(
        Buffer(row.id, row.size_bytes, step[row.lower], step[row.upper], align)
        for row, align in zip(rows, aligns, strict=True)
    )
    asked: dict[int, dict[int, int]] = {}
    for (below, above), apart in given.items():
        asked.setdefault(below, {})[above] = apart
    pressure = tuple(_pressure(rows, live, time, asked) for time, live in zip(times, alive, strict=False))
    bound = -(-max(pressure, default=0) // unit) * unit
    return Posed(Problem(buffers, overlaps, unit, pressure if overlaps else (), bound), members)


def _moments(row: Row) -> Iterator[int]:
    yield from (row.lower, row.upper)
    for gap in row.gaps:
        yield from (gap.lower, gap.upper)


def _alive(rows: Sequence[Row], times: Sequence[int]) -> list[list[int]]:
    """The rows alive from each moment to the next."""
    begins: list[list[int]] = [[] for _ in times]
    for index, row in enumerate(rows):
        begins[bisect_left(times, row.lower)].append(index)
    alive: list[list[int]] = []
    live: list[int] = []
    pairs = 0
    for time, born in zip(times[:-1], begins, strict=False):
        live = [index for index in live if rows[index].upper > time]
        pairs += len(born) * len(live) + len(born) * (len(born) - 1) // 2
        if pairs > MOST_PAIRS:
            raise TableError(f"more than {MOST_PAIRS} pairs of buffers are alive at once; place them in parts")
        live = [*live, *born]
        alive.append(live)
    return alive


def _between_windows(rows: Sequence[Row], alive: Sequence[Sequence[int]]) -> dict[Pair, int]:
    """The separations of pairs of which one has gaps, where they are less than the lower one's size."""
    found: dict[Pair, int] = {}
    partners: dict[int, set[int]] = {index: set() for index, row in enumerate(rows) if row.gaps}
    for live in alive if partners else ():
        for index in live:
            if index in partners:
                partners[index].update(live)
    for index, others in partners.items():
        for other in sorted(others - {index}):
            if other not in partners or other > index:
                up, down = _apart(rows[index], rows[other]), _apart(rows[other], rows[index])
                if up is None or down is None:
                    up = down = 0
                found[index, other], found[other, index] = up, down
    return {(a, b): apart for (a, b), apart in found.items() if apart < rows[a].size_bytes}


def _apart(below: Row, above: Row) -> int | None:
    """The most that the window of the one reaches above that of the other, while both are in use; None: never."""
    first, end = max(below.lower, above.lower), min(below.upper, above.upper)
    times = {first, *(t for row in (below, above) for t in _moments(row) if first <= t < end)}
    found = []
    for time in times:
        (low, high), (low_above, high_above) = below.window_at(time), above.window_at(time)
        if low < high and low_above < high_above:
            found.append(high - low_above)
    return max(found, default=None)


def _of_live_pairs(rows: Sequence[Row], given: Mapping[Pair, int]) -> dict[Pair, int]:
    return {
        (a, b): apart
        for (a, b), apart in given.items()
        if rows[a].lower < rows[b].upper and rows[b].lower < rows[a].upper and apart < rows[a].size_bytes
    }


def _pressure(rows: Sequence[Row], live: Sequence[int], time: int, asked: Mapping[int, Mapping[int, int]]) -> int:
    """Bytes that no placement can do without at a moment. `asked`: separations by the lower row, then the upper one.

    Where nobody has gaps: in order of their offsets, each starts at least its least separation above the one before, if
    those are left out that may start at or below another one's start. Else those that have separations are left out.
    """
    held = {}
    for index in live:
        low, high = rows[index].window_at(time)
        held[index] = high - low
    has_gaps = any(rows[index].gaps for index in live) if asked else False
    for below in live:
        for above, apart in asked.get(below, {}).items():
            if above in held:
                held[below] = 0 if has_gaps else max(0, min(held[below], apart))
                held[above] = 0 if has_gaps else held[above]
    return sum(held.values())


def table_placement(table: Table, effort: Effort, capacity: int | None = None) -> tuple[tuple[int, ...], Placement]:
    """Offsets of all rows, and the placement of those that ever live. What the table says itself is kept if nothing
    smaller is found."""
    given = [row.offset for row in table.rows if row.offset is not None]
    wrong = next(conflicts(table, given), None) if len(given) == len(table.rows) else None
    if wrong is not None:
        raise TableError(f"its offsets are no placement: {wrong}; remove the column to have them found")
    posed = table_problem(table)
    if not posed.members:
        return (0,) * len(table.rows), Placement((), 0, 0)
    found = optimal(posed.problem, effort, capacity)
    if len(given) == len(table.rows):
        own = max(given[member] + table.rows[member].size_bytes for member in posed.members)
        if own < found.arena_bytes:
            kept = tuple(given[member] for member in posed.members)
            return tuple(given), Placement(kept, own, min(own, found.lower_bound_bytes))
    return posed.offsets(found.offsets, len(table.rows)), found
