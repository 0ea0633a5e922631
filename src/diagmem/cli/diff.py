"""`diagmem diff`: what a change does to RAM, flash and work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from diagmem.cli._models import ModelParameter
from diagmem.cli._options import CORES, json_option, plan_options
from diagmem.cli._show import Column, Table, number, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.planning.options import Options
    from diagmem.reports.difference import Difference


@click.command(short_help="What changed between two models or plans.")
@click.argument("before", type=ModelParameter())
@click.argument("after", type=ModelParameter())
@click.option("--on", "core", type=click.Choice(CORES), help="Also count instructions on this core.")
@click.option("--markdown", "is_markdown", is_flag=True, help="As Markdown, for a pull request.")
@plan_options("diff")
@json_option
def command(
    before: str, after: str, core: str | None, is_markdown: bool, json_path: str | None, options: Options
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
        found = pipeline.diff(before, after, on=core, options=options)
    show(json_path, found.to_json, markdown(found).splitlines() if is_markdown else _tables(found))


def _tables(found: Difference) -> Iterator[str | Table]:
    from diagmem.reports.difference import FIGURES, OP_FIGURES, change_text, index_text

    headings = (Column(""), number("before"), number("after"), number("change"))
    sums = [
        (FIGURES[figure], *("" if v is None else f"{v:,}" for v in (old, new)), change_text(old, new))
        for figure, old, new in found.figures()
    ]
    yield Table(headings, sums)
    if not found.changed:
        return
    yield ""
    sides = [op for side in (found.before, found.after) for op in side.ops]
    shown = [figure for figure in OP_FIGURES if any(getattr(op, figure) is not None for op in sides)]
    rows = []
    for pair in found.changed:
        cells = [index_text(pair), getattr(pair.after or pair.before, "kind", "")]
        for figure in shown:
            old, new = getattr(pair.before, figure, None), getattr(pair.after, figure, None)
            value = old if new is None else new
            cells += ["" if value is None else f"{value:,}", change_text(old, new)]
        rows.append(cells)
    figures = [column for figure in shown for column in (number(OP_FIGURES[figure]), number("change"))]
    yield Table((Column(f"{len(found.changed)} of {len(found.ops)} ops"), Column("kind"), *figures), rows)
