"""`diagmem place`: the allocator alone, for buffers from anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import command_of
from diagmem.cli._files import write_file
from diagmem.cli._models import naming_model
from diagmem.cli._show import ANSWER_IS_NO, show, size_text
from diagmem.cli._work import working
from diagmem.model.errors import DiagmemError, UnsafePlanError, content_of

if TYPE_CHECKING:
    from diagmem.planning.place.effort import Effort
    from diagmem.planning.place.fit import Placement
    from diagmem.planning.place.table import Table

MOST_FILE_BYTES = 256 << 20


@command_of("place")
def command(
    buffers: str,
    capacity: int | None,
    separations_path: str | None,
    output: str | None,
    effort: str,
    time_limit: float | None,
    json_path: str | None,
) -> None:
    from diagmem.planning.place.effort import Effort

    if json_path == "-" and output == "-":
        raise click.UsageError("--json - and -o - cannot both have standard output.")
    with naming_model(buffers):
        table = _read(buffers, separations_path)
        begin = time.perf_counter()
        with working(f"placing {len(table.rows)} buffers"):
            offsets, found = _placed(table, Effort.named(effort, time_limit), capacity)
        seconds = time.perf_counter() - begin
    fits = capacity is None or found.arena_bytes <= capacity
    if output and fits:
        content = table.with_offsets(offsets)
        click.echo(content, nl=False) if output == "-" else write_file(Path(output), content.encode())
    chosen = {"effort": effort, "time_limit_seconds": time_limit}
    rows = len(table.rows)
    said = () if output == "-" else _lines(found, seconds, rows, capacity, time_limit)
    show(json_path, lambda: _json(found, seconds, rows, capacity) | chosen, said, status=0 if fits else ANSWER_IS_NO)


def _read(buffers: str, separations_path: str | None) -> Table:
    from diagmem.planning.place.table import parse_table

    texts = []
    for path in (buffers, separations_path):
        if path is not None:
            try:
                texts.append(content_of(path, MOST_FILE_BYTES).decode())
            except UnicodeDecodeError as error:
                raise DiagmemError(f"not text: byte {error.start} is not UTF-8; a CSV file is needed") from error
    return parse_table(*texts)


def _placed(table: Table, effort: Effort, capacity: int | None) -> tuple[tuple[int, ...], Placement]:
    """Offsets of all rows, checked; and the placement of those that ever live."""
    from diagmem.planning.place.table import conflicts, table_placement

    offsets, found = table_placement(table, effort, capacity)
    wrong = next(conflicts(table, offsets), None)
    if wrong is not None:
        raise UnsafePlanError(f"the placement is not safe: {wrong}; this is a bug, please report it")
    return offsets, found


def _json(found: Placement, seconds: float, rows: int, capacity: int | None) -> dict[str, Any]:
    limits = {} if capacity is None else {"capacity_bytes": capacity, "fits": found.arena_bytes <= capacity}
    return {
        "arena_bytes": found.arena_bytes,
        "lower_bound_bytes": found.lower_bound_bytes,
        "optimal": found.is_optimal,
        "seconds": round(seconds, 3),
        "buffers": rows,
        **limits,
    }


def _lines(
    found: Placement, seconds: float, rows: int, capacity: int | None, time_limit: float | None
) -> Iterator[str]:
    yield f"buffers      {rows}, placed in {seconds:.2f} s"
    yield f"arena        {size_text(found.arena_bytes)}, {found.gap.words}"
    yield f"lower bound  {size_text(found.lower_bound_bytes)}"
    if capacity is not None:
        over = found.arena_bytes - capacity
        known = "impossible" if found.lower_bound_bytes > capacity else "not found"
        yield f"capacity     {size_text(capacity)}: " + (f"{known}, {over:,} B too much" if over > 0 else "fits")
    if time_limit is not None:
        yield "             limited by time: another run may give another result"
