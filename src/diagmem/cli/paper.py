"""`diagmem paper`: every table and figure of the paper, published beside computed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._shared import console, json_option, progress, write_drawing, write_file, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.model.graph import Graph
    from diagmem.planning.planner import Planned
    from diagmem.reports.paper.document import Table
    from diagmem.reports.paper.published import PeakRow


@click.command(short_help="The paper, reproduced and corrected.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write paper.html, paper.md and figures/ to this directory; made if it is not there.",
)
@click.option("--no-png", is_flag=True, help="Write the figures as SVG only.")
@json_option
def command(output: Path | None, no_png: bool, json_path: str | None) -> None:
    """Reproduce the paper: Tables I to III as published, by its own procedure, and ours; its figures; its errata.

    Without -o the tables are printed. Figures 2 and 3 are traced from compiled code, which needs gcc and valgrind;
    where they are missing the figures are left out, and the document says so.

    \b
    Examples:
      diagmem paper
      diagmem paper -o reproduced
    """
    from diagmem.reports.paper.build import tables

    found = tables([_planned(row) for row in progress(_rows(), "planning")])
    if json_path:
        write_json(json_path, {"tables": [asdict(table) for table in found]})
    written = _write(output, found, no_png) if output else None
    if json_path == "-":
        return
    out = console()
    if written:
        out.print(f"wrote {written}", markup=False, soft_wrap=True)
    else:
        for table in found:
            _print(out, table)


def _rows() -> tuple[PeakRow, ...]:
    from diagmem.reports.paper.published import TABLE_III

    return TABLE_III


def _planned(row: PeakRow) -> tuple[PeakRow, Graph, Planned]:
    from diagmem.frontends import zoo
    from diagmem.pipeline import plan

    graph = zoo.build(row.model)
    return row, graph, plan(graph, remove=())


def _write(output: Path, found: tuple[Table, ...], no_png: bool) -> Path:
    from diagmem.reports.paper.build import document
    from diagmem.reports.paper.document import FIGURES, markdown, page
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


def _print(out: Console, table: Table) -> None:
    from rich.markup import escape
    from rich.table import Table as Grid

    grid = Grid(box=None, header_style="bold", pad_edge=False, title=escape(table.title), title_justify="left")
    for place, heading in enumerate(table.headings):
        grid.add_column(escape(heading), justify="left" if place == 0 or table.is_text else "right")
    for row in table.rows:
        grid.add_row(*map(escape, row))
    out.print(grid)
    for number, note in enumerate(table.notes, 1):
        out.print(f"[{number}] {note}", markup=False, soft_wrap=True)
    out.print()
