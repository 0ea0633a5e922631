"""`diagmem check`: whether a plan is safe, wherever it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._models import model_argument, naming_model
from diagmem.cli._options import Command, json_option, plan_path_option
from diagmem.cli._show import ANSWER_IS_NO, count_text, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.source import Source


@click.command(short_help="Check that a plan is safe, by replaying it.", cls=Command)
@model_argument
@plan_path_option("The plan, as `diagmem plan -o PLAN.json` writes it.", required=True)
@json_option
def command(source: Source, plan_path: Path, json_path: str | None) -> None:
    """Replay a plan of MODEL on shadow memory, byte by byte, and say whether it is safe.

    It does not matter who made the plan: what each step must find in memory follows from the model and from what the
    kernels access. `emit c --plan` and `verify --plan` refuse whatever this refuses.

    \b
    Exit status: 0 the plan is safe; 1 it is not, with a line for each thing
    that is wrong; 2 it is not a plan of this model.

    \b
    Examples:
      diagmem plan model.tflite -o plan.json
      diagmem check model.tflite --plan plan.json
      diagmem emit c model.tflite -o firmware --plan plan.json
    """
    from diagmem import pipeline

    with naming_model(source.label), working("replaying"):
        plan = pipeline.read_plan(source, plan_path)
        findings = [str(finding) for finding in pipeline.check(source, plan)]
    steps = f"{len(plan.schedule.steps)} steps in {plan.arena_bytes:,} bytes for kernels {plan.options.kernels}"
    verdict = f"NOT safe: {count_text(len(findings), 'finding')}" if findings else "safe"
    found = {"model": source.label, "plan": str(plan_path), "ok": not findings, "findings": findings}
    show(json_path, lambda: found, (*findings, f"{verdict}: {steps}"), status=ANSWER_IS_NO if findings else 0)
