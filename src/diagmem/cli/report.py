"""`diagmem report`: a page that shows a model's plan, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from diagmem.cli._shared import (
    console,
    json_option,
    model_argument,
    naming_model,
    planning_options,
    size_text,
    source_of,
    working,
    write_files,
    write_json,
)


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
    from diagmem import pipeline

    with naming_model(model), working("planning and drawing"):
        made = pipeline.plan(source_of(model), **options)
        files = pipeline.report_of(made)
    output.mkdir(parents=True, exist_ok=True)
    write_files({output / name: content for name, content in files.items()})
    if json_path:
        write_json(json_path, made.to_json())
    if json_path == "-":
        return
    out = console()
    out.print(f"before  {size_text(made.baseline_bytes)}", f"after  {size_text(made.arena_bytes)}", sep="\n")
    out.print(f"wrote   {output / 'report.html'}: {size_text(len(files['report.html']))}", markup=False, soft_wrap=True)
