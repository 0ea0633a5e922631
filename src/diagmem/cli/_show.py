"""What commands show: lines and tables for people, JSON for programs, sizes as both write them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import click

from diagmem.cli._files import write_files
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.costs import Cost, Layer
    from diagmem.model.graph import Graph

ANSWER_IS_NO, BAD_INPUT = 1, 2
"""Exit statuses."""

EMPTY = ("", "-")
GAP = "  "
"""Between columns."""

PIPE_WIDTH = 160
"""Columns where there is no terminal: wide enough for any table."""


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: 0 for what is never left out; of the others, the highest goes first."""

    heading: str
    rank: int = 0
    is_number: bool = False


def number(heading: str, rank: int = 0) -> Column:
    return Column(heading, rank, is_number=True)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells. `marked`: rows shown in red. Empty columns are left out, then those that do not fit; no cell is
    ever cut off: if even the rest is too wide, the terminal wraps its lines."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    marked: Collection[int] = ()

    def lines(self, width: int) -> Iterator[str]:
        columns, rows = self.columns, self.rows
        widths = [max(map(_width, (column.heading, *(row[n] for row in rows)))) for n, column in enumerate(columns)]
        kept = [n for n, column in enumerate(columns) if not column.rank or any(row[n] not in EMPTY for row in rows)]
        while sum(widths[n] + len(GAP) for n in kept) - len(GAP) > width and any(columns[n].rank for n in kept):
            kept.remove(max(kept, key=lambda n: columns[n].rank))
        for place, cells in enumerate(([column.heading for column in columns], *rows), -1):
            padded = (self._padded(n, cells[n], widths[n]) for n in kept)
            line = one_line(GAP.join(padded).rstrip(), sys.maxsize)
            is_marked = place in self.marked
            yield click.style(line, fg="red" if is_marked else None, bold=True) if is_marked or place < 0 else line

    def _padded(self, n: int, cell: str, width: int) -> str:
        blanks = " " * (width - _width(cell))
        return blanks + cell if self.columns[n].is_number else cell + blanks


def _width(text: str) -> int:
    """Columns of a terminal."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def show(
    json_path: str | None,
    data: Callable[[], Any],
    parts: Iterable[str | Table],
    output: Path | None = None,
    status: int = 0,
    files: Mapping[Path, bytes] | None = None,
) -> None:
    """Writes files, and the result as JSON where that is asked for, and shows it to people unless the JSON is on
    standard output. All of it is made before any of it is written. A status other than 0 then ends the command."""
    paths = list(dict.fromkeys(str(path) for path in (output, json_path) if path))
    text = json.dumps(data(), indent=2, ensure_ascii=True) + "\n" if paths else ""
    shown = [] if json_path == "-" else [*parts]
    write_files({**(files or {}), **{Path(path): text.encode() for path in paths if path != "-"}})
    if "-" in paths:
        click.echo(text, nl=False)
    say(shown)
    if status:
        click.get_current_context().exit(status)


def say(parts: Iterable[str | Table]) -> None:
    """Shows lines and tables. Whatever a line quotes is shown as it is, in one line."""
    color = False if os.environ.get("NO_COLOR") else None
    for part in parts:
        shown = [one_line(part, sys.maxsize)] if isinstance(part, str) else part.lines(terminal_width())
        for line in shown:
            click.echo(line, color=color)


def terminal_width() -> int:
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if is_known else PIPE_WIDTH


def op_text(graph: Graph, op: int) -> str:
    """`op 7 DEPTHWISE_CONV_2D 'block3/dw'`, short enough for a line."""
    found = graph.ops[op]
    name = f" '{one_line(graph.short_names[found.outputs[0]], 36)}'" if found.outputs else ""
    return f"op {found.number} {one_line(found.kind)}{name}"


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"


def size_text(size_bytes: int) -> str:
    """`36,880 B (36.0 KB)`; KB is 1024 bytes, as in the paper."""
    return f"{size_bytes:,} B" + (f" ({size_bytes / 1024:,.1f} KB)" if size_bytes >= 1024 else "")


def cost_lines(cost: Cost) -> Iterator[str]:
    """What is known of a plan's cost; a bound and an estimate are called so."""
    from diagmem.kernels.work import shares_text

    for what, size, parts in (
        ("RAM", cost.ram.total_bytes, cost.ram.parts),
        ("flash", cost.flash.total_bytes, cost.flash.parts),
    ):
        each = (f"{name} {part:,}" if len(parts) > 1 else name for name, part in parts.items())
        yield f"{what:<6}{'not known' if size is None else size_text(size)}: {', '.join(each)}"
    yield f"work  {cost.macs:,} multiply-accumulates, {shares_text(cost.shares)}"
    if cost.float32:
        yield f"float {cost.float32}"
    if cost.cycles is not None:
        energy = "" if cost.uj is None else f", {cost.uj:,.0f} uJ"
        yield f"time  {cost.time_text}: {cost.cycles_text}{energy}"


def count_text(count: int, what: str) -> str:
    """`1 op`, `2 ops`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def layer_table(layers: Sequence[Layer]) -> Table:
    """A line for each layer, in the order in which they begin."""
    from diagmem.costs import ms_text

    columns = (
        *(number("op"), Column("kind"), Column("output", 2), number("MACs"), number("weights", 1)),
        *(number("live RAM"), number("instructions", 3), number("cycles", 2), number("ms"), number("share")),
    )
    rows = [
        (
            *(str(layer.index), one_line(layer.kind), shape_text(layer.shape), f"{layer.macs:,}"),
            "-" if layer.weights_bytes is None else f"{layer.weights_bytes:,}",
            f"{layer.live_bytes:,}",
            "-" if layer.instructions is None else f"{layer.instructions:,}",
            "-" if layer.cycles is None else f"{layer.cycles:,}",
            "-" if layer.ms is None else ms_text(layer.ms),
            f"{100 * layer.share:.1f} %",
        )
        for layer in layers
    ]
    return Table(columns, rows)
