"""`diagmem diff`: what a change does to RAM, flash and work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._cores import CORES
from diagmem.cli._shared import ModelParameter, console, json_option, planning_options, working, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from diagmem.reports.difference import Difference


@click.command(short_help="What changed between two models or plans.")
@click.argument("before", type=ModelParameter())
@click.argument("after", type=ModelParameter())
@click.option("--on", "core", type=click.Choice(CORES), help="Count instructions on this core, too.")
@click.option("--markdown", "is_markdown", is_flag=True, help="As Markdown, for a pull request.")
@planning_options
@json_option
def command(
    before: str, after: str, core: str | None, is_markdown: bool, json_path: str | None, **options: Any
) -> None:
    """Show what changed from BEFORE to AFTER: RAM, flash, multiply-accumulates, and which ops are behind it.

    Each is a model, which is planned with these options, or a plan from `diagmem plan --json`.

    \b
    Examples:
      diagmem diff old.tflite new.tflite
      diagmem diff old.tflite new.tflite --on cortex-m4 --markdown >> "$GITHUB_STEP_SUMMARY"
      diagmem diff main.json branch.json
    """
    from diagmem import pipeline
    from diagmem.reports.difference import markdown

    with working("planning both"):
        found = pipeline.diff(before, after, on=core, **options)
    if json_path:
        write_json(json_path, found.to_json())
    if json_path == "-":
        return
    if is_markdown:
        click.echo(markdown(found), nl=False)
        return
    out = console()
    for table in _tables(found):
        out.print(table)


def _tables(found: Difference) -> list[Table]:
    from rich.markup import escape
    from rich.table import Table

    from diagmem.reports.difference import FIGURES, OP_FIGURES, change_text, index_text

    sums = Table(box=None, header_style="bold", pad_edge=False)
    sums.add_column("")
    for heading in ("before", "after", "change"):
        sums.add_column(heading, justify="right", no_wrap=True)
    for figure, old, new in found.figures():
        sums.add_row(FIGURES[figure], *("" if v is None else f"{v:,}" for v in (old, new)), change_text(old, new))
    ops = Table(box=None, header_style="bold", pad_edge=False)
    ops.add_column(f"{len(found.changed)} of {len(found.ops)} ops", no_wrap=True)
    ops.add_column("kind", no_wrap=True)
    shown = [
        f
        for f in OP_FIGURES
        if any(getattr(c, f) is not None for side in (found.before, found.after) for c in side.ops)
    ]
    for figure in shown:
        ops.add_column(OP_FIGURES[figure], justify="right", no_wrap=True)
        ops.add_column("change", justify="right", no_wrap=True)
    for pair in found.changed:
        known = pair.after or pair.before
        cells: list[str] = []
        for figure in shown:
            old, new = getattr(pair.before, figure, None), getattr(pair.after, figure, None)
            value = old if new is None else new
            cells += ["" if value is None else f"{value:,}", change_text(old, new)]
        ops.add_row(index_text(pair), escape(getattr(known, "kind", "")), *cells)
    return [sums, *([Table.grid(), ops] if found.changed else [])]
