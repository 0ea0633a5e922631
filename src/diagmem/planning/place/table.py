"""Buffers as a table in MiniMalloc's CSV format: read, written, placed, and checked against offsets.

Columns: id, lower, upper (alive in [lower, upper)), size; and if wanted alignment, hint, gaps, offset. A gap
`3-7` says that the buffer is not used in [3, 7), `3-7@0:16` that only its bytes [0, 16) are. In files of an older kind
the column `end` stands for the last moment of use. See https://github.com/google/minimalloc.
"""

from __future__ import annotations

import csv
import io
import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagmem.model.errors import DiagmemError, one_line
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import optimal
from diagmem.planning.place.fit import Placement

MOST_PAIRS = 4_000_000
"""Of buffers alive at once: more do not fit into memory."""

MOST_BUFFERS = 50_000
MOST_BYTES = 1 << 40
MOST_TIME = 1 << 62

NAMES = {"begin": "lower", "start": "lower", "end": "upper", "buffer": "id", "buffer_id": "id"}
"""Other names of the columns."""

REQUIRED = ("id", "lower", "upper", "size")
KNOWN = (*REQUIRED, "alignment", "hint", "gaps", "offset")

GAP = re.compile(r"(-?\d{1,20})-(-?\d{1,20})(?:@(\d{1,20}):(\d{1,20}))?")
NUMBER = re.compile(r"[+-]?\d{1,20}")


class TableError(DiagmemError):
    """A table that cannot be read; the message names the line."""


@dataclass(frozen=True, slots=True)
class Gap:
    """In [lower, upper) only the bytes [low, high) are used; none if these are equal."""

    lower: int
    upper: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Row:
    """A buffer of the table. `offset`: where the table says that it lies."""

    id: str
    lower: int
    upper: int
    size_bytes: int
    align_bytes: int = 1
    gaps: tuple[Gap, ...] = ()
    offset: int | None = None
    fields: tuple[str, ...] = ()

    def window_at(self, time: int) -> tuple[int, int]:
        """The bytes [low, high) in use at a moment of its life."""
        for gap in self.gaps:
            if gap.lower <= time < gap.upper:
                return gap.low, gap.high
        return 0, self.size_bytes


@dataclass(frozen=True, slots=True)
class Table:
    """`columns`: the table's header. `separations`: (lower row, upper row) -> bytes from start to start."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    separations: Mapping[tuple[int, int], int]

    def with_offsets(self, offsets: Sequence[int]) -> str:
        """The table as CSV, as it was read, with a last column for the offsets."""
        kept = [place for place, column in enumerate(self.columns) if column != "offset"]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*(self.columns[place] for place in kept), "offset"])
        for row, offset in zip(self.rows, offsets, strict=True):
            writer.writerow([*(row.fields[place] for place in kept), offset])
        return text.getvalue()


def parse_table(text: str, separations: str | None = None) -> Table:
    """Reads a table, and the separations of some of its pairs: CSV with the columns below, above, bytes."""
    lines = _lines(text)
    columns = tuple(field.strip().lower() for field in next(lines, (0, []))[1])
    names = [NAMES.get(column, column) for column in columns]
    if len(set(names)) < len(names):
        raise TableError("line 1: a column name appears twice")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise TableError(f"line 1: column '{missing[0]}' is missing; needed: {', '.join(REQUIRED)}")
    rows: dict[str, Row] = {}
    for number, fields in lines:
        if len(rows) == MOST_BUFFERS:
            raise TableError(f"line {number}: more than {MOST_BUFFERS} buffers; place them in parts")
        if len(fields) != len(names):
            raise TableError(f"line {number}: {len(fields)} fields, the header has {len(names)}")
        row = _row(f"line {number}", dict(zip(names, fields, strict=True)), int("end" in columns), tuple(fields))
        if row.id in rows:
            raise TableError(f"line {number}: id '{one_line(row.id)}' is not unique")
        rows[row.id] = row
    if not rows:
        raise TableError("the table has no buffers")
    return Table(columns, tuple(rows.values()), _separations(separations, list(rows.values())) if separations else {})


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and fields, without empty lines."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise TableError(f"line {reader.line_num}: not CSV ({error})") from error


def _row(where: str, fields: Mapping[str, str], added: int, raw: tuple[str, ...]) -> Row:
    lower = _integer(where, fields, "lower", -MOST_TIME, MOST_TIME)
    upper = _integer(where, fields, "upper", -MOST_TIME, MOST_TIME) + added
    size = _integer(where, fields, "size", 0, MOST_BYTES)
    align = _integer(where, fields, "alignment", 1, MOST_BYTES) if "alignment" in fields else 1
    if lower > upper:
        raise TableError(f"{where}: upper is {upper}, below lower, which is {lower}")
    if "hint" in fields:
        _integer(where, fields, "hint", -1, MOST_BYTES)
    offset = _integer(where, fields, "offset", 0, MOST_BYTES) if "offset" in fields else None
    gaps = tuple(_gaps(where, fields.get("gaps", ""), added))
    for gap in gaps:
        if not (lower <= gap.lower <= gap.upper <= upper and gap.low <= gap.high <= size):
            raise TableError(f"{where}: gap {gap.lower}-{gap.upper} is not within the buffer")
    if any(one.upper > other.lower for one, other in pairwise(gaps)):
        raise TableError(f"{where}: gaps must follow each other")
    return Row(fields["id"].strip(), lower, upper, size, align, gaps, offset, raw)


def _gaps(where: str, text: str, added: int) -> Iterator[Gap]:
    for word in text.split():
        found = GAP.fullmatch(word)
        if not found:
            raise TableError(f"{where}: gap '{one_line(word)}' is not like 3-7 or 3-7@0:16")
        lower, upper, low, high = (int(value or 0) for value in found.groups())
        yield Gap(lower, upper + added, low, high)


def _integer(where: str, fields: Mapping[str, str], column: str, least: int, most: int) -> int:
    text = fields[column].strip()
    if not NUMBER.fullmatch(text):
        raise TableError(f"{where}: {column} '{one_line(text, 40)}' is not an integer")
    if not least <= int(text) <= most:
        raise TableError(f"{where}: {column} {text} is not in {least} to {most}")
    return int(text)


def _separations(text: str, rows: Sequence[Row]) -> dict[tuple[int, int], int]:
    place = {row.id: number for number, row in enumerate(rows)}
    lines = _lines(text)
    names = [field.strip().lower() for field in next(lines, (0, []))[1]]
    if sorted(names) != ["above", "below", "bytes"]:
        raise TableError("separations, line 1: the columns must be below, above, bytes")
    found: dict[tuple[int, int], int] = {}
    for number, values in lines:
        where = f"separations, line {number}"
        if len(values) != 3:
            raise TableError(f"{where}: {len(values)} fields, the header has 3")
        fields = dict(zip(names, (value.strip() for value in values), strict=True))
        unknown = [fields[side] for side in ("below", "above") if fields[side] not in place]
        if unknown:
            raise TableError(f"{where}: there is no buffer '{one_line(unknown[0])}'")
        below, above = place[fields["below"]], place[fields["above"]]
        if below == above or (below, above) in found:
            raise TableError(f"{where}: a pair of two buffers, each pair once")
        most, least = rows[below].size_bytes, -rows[above].size_bytes
        found[below, above] = _integer(where, fields, "bytes", least, most)
    return found


def conflicts(table: Table, offsets: Sequence[int]) -> Iterator[str]:
    """What is wrong with the offsets, a line each: read off the table, moment by moment, and nothing else."""
    for row, offset in zip(table.rows, offsets, strict=True):
        if offset < 0 or offset % row.align_bytes:
            yield f"buffer '{one_line(row.id)}' at {offset}, which is no multiple of its alignment, {row.align_bytes}"
    times = sorted({t for row in table.rows for t in (row.lower, *(e for g in row.gaps for e in (g.lower, g.upper)))})
    by_start = sorted(range(len(table.rows)), key=lambda index: table.rows[index].lower)
    live: list[int] = []
    following = 0
    for time in times:
        live = [index for index in live if table.rows[index].upper > time]
        while following < len(by_start) and table.rows[by_start[following]].lower <= time:
            if table.rows[by_start[following]].upper > time:
                live.append(by_start[following])
            following += 1
        yield from _at(table, offsets, time, live)


def _at(table: Table, offsets: Sequence[int], time: int, live: Sequence[int]) -> Iterator[str]:
    """Overlaps at a moment. Each is compared with those that start before it ends."""
    spans = []
    for index in live:
        low, high = table.rows[index].window_at(time)
        if low < high:
            spans.append((offsets[index] + low, offsets[index] + high, index))
    spans.sort()
    for place, (_, end, index) in enumerate(spans):
        for start, _, other in spans[place + 1 :]:
            if start >= end:
                break
            if not _may_overlap(table, offsets, index, other):
                names = " and ".join(f"'{one_line(table.rows[which].id)}'" for which in (index, other))
                yield f"buffers {names} overlap at time {time}, at byte {start}"


def _may_overlap(table: Table, offsets: Sequence[int], one: int, other: int) -> bool:
    """Whether a separation that was given allows it."""
    rise = offsets[other] - offsets[one]
    up, down = table.separations.get((one, other)), table.separations.get((other, one))
    return (up is not None and rise >= up) or (down is not None and -rise >= down)


@dataclass(frozen=True, slots=True)
class BuiltProblem:
    """`members`: the rows that are the problem's buffers. Others never live, and may lie anywhere."""

    problem: Problem
    members: tuple[int, ...]

    def offsets(self, placed: Sequence[int], rows: int) -> tuple[int, ...]:
        """One for each row."""
        found = [0] * rows
        for member, offset in zip(self.members, placed, strict=True):
            found[member] = offset
        return tuple(found)


def table_problem(table: Table) -> BuiltProblem:
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
    return BuiltProblem(Problem(buffers, overlaps, unit, pressure if overlaps else (), bound), members)


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


def _between_windows(rows: Sequence[Row], alive: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """The separations of pairs of which one has gaps, where they are less than the lower one's size."""
    found: dict[tuple[int, int], int] = {}
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


def _of_live_pairs(rows: Sequence[Row], given: Mapping[tuple[int, int], int]) -> dict[tuple[int, int], int]:
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
        raise TableError(f"its offsets are not a valid placement: {wrong}; remove the column to compute them")
    built = table_problem(table)
    if not built.members:
        return (0,) * len(table.rows), Placement((), 0, 0)
    found = optimal(built.problem, effort, capacity)
    if len(given) == len(table.rows):
        own = max(given[member] + table.rows[member].size_bytes for member in built.members)
        if own < found.arena_bytes:
            kept = tuple(given[member] for member in built.members)
            return tuple(given), Placement(kept, own, min(own, found.lower_bound_bytes))
    return built.offsets(found.offsets, len(table.rows)), found
