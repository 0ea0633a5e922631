"""`diagmem report`: a page that shows a model's plan, and its pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import cost_lines, show, size_text
from diagmem.cli._work import working
from diagmem.model.errors import DiagmemError, content_of, one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.planning.options import Options
    from diagmem.reports.report import Counted

PAGE = "report.html"


@command_of("report")
def command(
    source: Source,
    output: Path,
    profile_path: str | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    from diagmem import pipeline

    is_page = output.suffix.lower() == ".html" and not output.is_dir()
    if not is_page and output.exists() and not output.is_dir():
        raise DiagmemError(f"{one_line(str(output))} is a file: give a directory, or a page whose name ends in .html")
    with naming_model(source.label), working("planning and drawing"):
        counted, of = (None, None) if profile_path is None else _read(Path(profile_path))
        # Without a core or kernels of its own, the plan is for those that were profiled.
        options = pipeline.asked_for(options, {}, counted and counted.on)
        made = (
            pipeline.planned(source, options, is_measured=True)
            if plan_path is None
            else pipeline.with_baseline(source, plan_path)
        )
        if of not in (None, (made.model.name, {op.number: op.kind for op in made.plan.graph.ops})):
            raise DiagmemError(f"{one_line(str(profile_path))} is of another model, or was made with other options")
        files = pipeline.report_of(made, counted)
    page = output if is_page else output / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    written = {page: files[PAGE]} if is_page else {output / name: content for name, content in files.items()}
    size = size_text(len(files[PAGE]))
    sizes = (f"before  {size_text(made.baseline_bytes)}", f"after   {size_text(made.arena_bytes)}")
    lines = (*sizes, *cost_lines(made.costs.on()), f"wrote   {page}: {size}")
    show(json_path, lambda: json.loads(files["plan.json"]), lines, files=written)


def _read(path: Path) -> tuple[Counted, tuple[str, dict[int, str]]]:
    """The instructions of a profile; its model and the kinds of its ops."""
    from diagmem.reports.report import Counted

    try:
        told = json.loads(content_of(path))
        kinds = {int(op["index"]): str(op["kind"]) for op in told["ops"]}
        instructions = {int(op["index"]): int(op["instructions"]) for op in told["ops"]}
        return Counted(str(told["on"]), int(told["instructions"]), instructions), (str(told["model"]), kinds)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DiagmemError(f"{one_line(str(path))} is not a profile, as `diagmem profile --json` writes it") from error
