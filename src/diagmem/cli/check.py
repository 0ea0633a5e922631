"""`diagmem check`: whether a plan is safe, wherever it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import ANSWER_IS_NO, count_text, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.source import Source


@command_of("check")
def command(source: Source, plan_path: Path, json_path: str | None) -> None:
    from diagmem import pipeline

    with naming_model(source.label), working("replaying"):
        plan = pipeline.read_plan(source, plan_path)
        findings = [str(finding) for finding in pipeline.check(source, plan)]
    steps = f"{len(plan.schedule.steps)} steps in {plan.arena_bytes:,} bytes for kernels {plan.options.kernels}"
    verdict = f"NOT safe: {count_text(len(findings), 'finding')}" if findings else "safe"
    found = {"model": source.label, "plan": str(plan_path), "ok": not findings, "findings": findings}
    show(json_path, lambda: found, (*findings, f"{verdict}: {steps}"), status=ANSWER_IS_NO if findings else 0)
