"""`diagmem trace MODEL`: all ops of a model, and its plans as they really run."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from diagmem.cli._shared import PlanChoice, progress, size_text, working
from diagmem.cli._traced import Traced

if TYPE_CHECKING:
    from diagmem.model.graph import Graph
    from diagmem.planning.plan import Plan
    from diagmem.planning.planner import Planned
    from diagmem.tracing.analysis.model_trace import ModelTrace


def traced_model(graph: Graph, choice: PlanChoice, on: str) -> Traced:
    """Traces the model with all buffers apart, then its plan without overlap, and the plan asked for."""
    from diagmem.backends.c.program import Program
    from diagmem.reports.trace import plan_panel
    from diagmem.tracing.analysis.model import apart, build_model
    from diagmem.tracing.analysis.model_trace import run_plan, trace_plan

    with working("planning"):
        made = _plan(graph, choice)
        before, after = made.baseline, made.plan
    titles = {"before": "before overlap", "after": _title(after)}
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        with working("tracing"):
            found = trace_plan(build_model(apart(after), on, Path(place)), after)
        runs = {
            words: run_plan(build_model(Program.running(plan), on, Path(place)), plan)
            for words, plan in progress((("before", before), ("after", after)), "running the plans")
        }
    panels = [plan_panel(run, titles[words]) for words, run in runs.items()]
    traced = Traced(graph.name, on, list(found.rows), panels, list(found.turns))
    traced.plan = {
        "arena_bytes": after.arena_bytes,
        "baseline_bytes": before.arena_bytes,
        "traced_peak_bytes": runs["after"].peak_bytes,
        "traced_baseline_peak_bytes": runs["before"].peak_bytes,
        "pairs": [asdict(pair) for pair in found.pairs],
        "lost": [{"first": lost.first, "second": lost.second, "byte": lost.byte} for lost in found.lost],
    }
    traced.summary = [
        "",
        f"peak before   {size_text(runs['before'].peak_bytes)} touched, {size_text(before.arena_bytes)} planned",
        f"peak after    {size_text(runs['after'].peak_bytes)} touched, {size_text(after.arena_bytes)} planned",
        f"separations   {len(found.pairs)} {_overlapping(after)}, {_kept(found)} by no more than was traced; "
        f"values lost among all {len(after.buffers)} buffers: {len(found.lost) or 'none'}",
    ]
    traced.fault = str(found.lost[0]) if found.lost else None
    return traced


def _plan(graph: Graph, choice: PlanChoice) -> Planned:
    """Run whole, every op of the model has its rows, so none is removed."""
    from diagmem import pipeline
    from diagmem.planning.options import ROWS

    if choice.schedule == ROWS:
        return pipeline.plan(graph, **choice.options)
    return pipeline.plan(graph, **choice.options, remove=())


def _title(plan: Plan) -> str:
    if not plan.runs_by_rows:
        return "after overlap"
    return "row by row, input streamed" if plan.input_rows else "row by row"


def _overlapping(plan: Plan) -> str:
    return "times a row lies over one that it is made of" if plan.runs_by_rows else "ops overlap"


def _kept(found: ModelTrace) -> str:
    kept = sum(pair.distance >= pair.separation for pair in found.pairs)
    return "all" if kept == len(found.pairs) else str(kept)
