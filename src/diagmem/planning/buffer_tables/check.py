"""Whether offsets keep the buffers of a table apart: read off the table, moment by moment, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.model.errors import one_line
from diagmem.planning.buffer_tables.table import Table


def conflicts(table: Table, offsets: Sequence[int]) -> Iterator[str]:
    """What is wrong with the offsets, a line each."""
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
