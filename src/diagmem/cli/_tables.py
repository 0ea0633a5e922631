"""Tables that fit a terminal without cutting anything off: what can be done without is left out first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

NOTHING = ("", "-")
GAP = 2
"""Blanks between columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: 0 for what is never left out; of the others, the highest goes first."""

    heading: str
    rank: int = 0
    is_number: bool = False


def number(heading: str, rank: int = 0) -> Column:
    return Column(heading, rank, is_number=True)


def print_table(
    out: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str | None] = ()
) -> None:
    """Prints rows of cells. `styles`: of each row. Columns that say nothing are left out, then those that do not fit;
    names are never cut off: if even the rest is too wide, the terminal wraps its lines."""
    from rich.markup import escape
    from rich.table import Table

    widths = [max(len(column.heading), *(len(row[n]) for row in rows), 0) for n, column in enumerate(columns)]
    kept = [n for n, column in enumerate(columns) if not column.rank or any(row[n] not in NOTHING for row in rows)]
    while sum(widths[n] + GAP for n in kept) - GAP > out.width and any(columns[n].rank for n in kept):
        kept.remove(max(kept, key=lambda n: columns[n].rank))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for n in kept:
        table.add_column(
            columns[n].heading, justify="right" if columns[n].is_number else "left", no_wrap=True, min_width=widths[n]
        )
    for row, style in zip(rows, [*styles, *[None] * (len(rows) - len(styles))], strict=True):
        table.add_row(*(escape(row[n]) for n in kept), style=style)
    needed = sum(widths[n] + GAP for n in kept)
    out.print(table, width=max(out.width, needed), crop=False, soft_wrap=needed - GAP > out.width)
