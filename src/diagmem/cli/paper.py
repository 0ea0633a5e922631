"""`diagmem paper`: every table and figure of the paper, published beside computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from diagmem.cli import _show as shown
from diagmem.cli._commands import command_of
from diagmem.cli._files import write_drawing, write_file
from diagmem.cli._work import progress

if TYPE_CHECKING:
    from diagmem.model.graph import Graph
    from diagmem.planning.planner import Planned
    from diagmem.reports.pages import Table
    from diagmem.reports.paper.document import PeakRow


@command_of("paper")
def command(output: Path | None, no_png: bool, json_path: str | None) -> None:
    from diagmem.reports.paper.document import TABLE_III, tables

    found = tables([_planned(row) for row in progress(TABLE_III, "planning")])
    parts = [f"wrote {_write(output, found, no_png)}"] if output else _parts(found)
    shown.show(json_path, lambda: {"tables": [asdict(table) for table in found]}, parts)


def _planned(row: PeakRow) -> tuple[PeakRow, Graph, Planned]:
    from diagmem.frontends import zoo
    from diagmem.pipeline import plan

    graph = zoo.build(row.model)
    return row, graph, plan(graph, schedule="best", skip="all")


def _write(output: Path, found: tuple[Table, ...], no_png: bool) -> Path:
    from diagmem.reports.pages import FIGURES, markdown, page
    from diagmem.reports.paper.document import document
    from diagmem.reports.paper.figures import MAKERS

    figures = [maker.figure() for maker in progress(MAKERS, "drawing")]
    (output / FIGURES).mkdir(parents=True, exist_ok=True)
    made = document(found, figures)
    for figure in figures:
        if figure.drawing:
            write_drawing(output / FIGURES / figure.name, figure.drawing, with_png=not no_png)
    write_file(output / "paper.md", markdown(made).encode())
    write_file(output / "paper.html", page(made).encode())
    return output / "paper.html"


def _parts(found: tuple[Table, ...]) -> Iterator[str | shown.Table]:
    for table in found:
        columns = [
            shown.Column(heading, is_number=place > 0 and not table.is_text)
            for place, heading in enumerate(table.headings)
        ]
        yield table.title
        yield shown.Table(columns, table.rows)
        yield from (f"[{number}] {note}" for number, note in enumerate(table.notes, 1))
        yield ""
