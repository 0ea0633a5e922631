"""What `diagmem trace` has found, as a table, JSON and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import write_file

if TYPE_CHECKING:
    from rich.table import Table

    from diagmem.reports.trace import Panel
    from diagmem.tracing.analysis.traced_pairs import TracedRow
    from diagmem.tracing.analysis.traced_turns import TracedTurns


@dataclass
class Traced:
    """What was traced, ready to be written. `plan`: what else the JSON says; `fault`: why the answer is no."""

    name: str
    on: str
    rows: list[TracedRow]
    panels: list[Panel]
    turns: list[TracedTurns] = field(default_factory=list)
    align_bytes: int = 1
    plan: dict[str, Any] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    fault: str | None = None

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.name, "on": self.on, "align_bytes": self.align_bytes, **self.plan}
        turns = {"turns": [turns.to_json() for turns in self.turns]} if self.turns else {}
        return {**about, "rows": [row.to_json() for row in self.rows], **turns}

    def tables(self) -> Iterator[Table]:
        """Ops that ran whole, then those that ran a row at a time."""
        if self.rows or not self.turns:
            yield _table(self.rows)
        if self.turns:
            yield _table_of_turns(self.turns)

    def draw(self, png_path: Path | None, svg_path: Path | None) -> None:
        from diagmem.reports.trace import trace_drawing

        if svg_path or png_path:
            drawing = trace_drawing(self.panels, f"Memory trace of {self.name} on {self.on}", bool(self.plan))
            if svg_path:
                write_file(svg_path, drawing.svg().encode())
            if png_path:
                write_file(png_path, drawing.png())


def _headed(*headings: str) -> Table:
    """An empty table: op, kind, so many numbers, and a remark."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("op", justify="right")
    table.add_column("kind", no_wrap=True)
    for heading in (*headings, "instructions", "loads", "stores", "updates"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    return table


def _table(rows: list[TracedRow]) -> Table:
    from rich.markup import escape

    table = _headed("in bytes", "out bytes", "exact", "traced", "largest")
    for row in rows:
        table.add_row(
            "-" if row.node is None else str(row.node.op.number),
            escape(row.kind),
            str(row.input_bytes),
            str(row.output_bytes),
            "-" if row.exact is None else str(row.exact),
            str(row.overlap.monotone),
            str(row.overlap.largest),
            *(str(n) for n in (row.counts.instructions, row.counts.loads, row.counts.stores, row.counts.updates)),
            "" if row.agrees else "DIFFERS",
            style=None if row.agrees else "red",
        )
    return table


def _table_of_turns(found: list[TracedTurns]) -> Table:
    from rich.markup import escape

    table = _headed("rows", "row pairs", "as exact")
    for turns in found:
        table.add_row(
            str(turns.node.op.number),
            escape(turns.node.op.kind),
            *(str(n) for n in (turns.turns, turns.pairs, turns.pairs - turns.differing)),
            *(str(n) for n in (turns.instructions, turns.loads, turns.stores, turns.updates)),
            "DIFFERS" if turns.differing else "",
            style="red" if turns.differing else None,
        )
    return table
