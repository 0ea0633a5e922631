"""`diagmem report`: a page that shows a model's plan, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._shared import (
    console,
    json_option,
    load_model,
    model_argument,
    naming_model,
    planning_options,
    size_text,
    write_drawing,
    write_file,
    write_json,
)

if TYPE_CHECKING:
    from diagmem.plans import Plan


@click.command(short_help="A page with everything about a plan.")
@model_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory to write to; made if it is not there.",
)
@planning_options
@json_option
def command(model: str, output: Path, json_path: str | None, **options: Any) -> None:
    """Write a page about MODEL's plan to DIR: report.html, plan.json, and the pictures as SVG and PNG.

    The page shows the arena before and after, step by step, the overlap of each op by every method, and which
    micro-controllers it fits. It is one file, needs no network, and can be mailed.

    \b
    Examples:
      diagmem report model.tflite -o report
      diagmem report zoo:vww_96_int8 --kernels tflm-reference -o vww
    """
    from diagmem.pipeline import ladder
    from diagmem.reports.arena import before_after_drawing
    from diagmem.reports.live import live_drawing
    from diagmem.reports.report import report_page
    from diagmem.targets import TARGETS

    before, after = _plans(model, options)
    output.mkdir(parents=True, exist_ok=True)
    page = report_page(before, after, TARGETS, ladder(after)).encode()
    write_file(output / "report.html", page)
    write_json(str(output / "plan.json"), after.to_json())
    for name, drawing in (("arena", before_after_drawing(before, after)), ("live", live_drawing(before, after))):
        write_drawing(output / name, drawing)
    if json_path:
        write_json(json_path, after.to_json())
    if json_path == "-":
        return
    out = console()
    out.print(f"before  {size_text(before.arena_bytes)}", f"after  {size_text(after.arena_bytes)}", sep="\n")
    out.print(f"wrote   {output / 'report.html'}: {size_text(len(page))}", markup=False, soft_wrap=True)


def _plans(model: str, options: dict[str, Any]) -> tuple[Plan, Plan]:
    """The best plan of the model as it is, without overlap in file order, and the plan asked for."""
    from diagmem.pipeline import plan

    graph = load_model(model)
    plainly = {"overlap": False, "schedule": "file", "allocator": "best", "input_rows": False, "remove": ()}
    with naming_model(model):
        return plan(graph, **{**options, **plainly}), plan(graph, **options)
