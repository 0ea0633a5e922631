"""`diagmem trace`: what compiled kernels do to memory, the safe overlap that follows, and pictures of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import Column, Table, number, show, size_text
from diagmem.cli._work import progress, working
from diagmem.model.errors import UnsafePlanError
from diagmem.planning.options import AUTO, BEST, ROWS, Options

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.model.graph import Graph
    from diagmem.planning.plan import Plan
    from diagmem.reports.trace import Panel
    from diagmem.tracing.analysis import ModelTrace, TracedRow, TracedTurns

KERNEL_ALIGN_BYTES = 4
"""Alignment to plan for, for kernels of which nothing else is known: they may load words."""


@command_of("trace")
def command(
    source: Source | None,
    op_index: int | None,
    on: str | None,
    elf_paths: tuple[Path, ...],
    calls: tuple[str, ...],
    options: Options,
    json_path: str | None,
    png_path: Path | None,
    svg_path: Path | None,
) -> None:
    from diagmem.tracing.kernel import NATIVE, PLACES

    if on is not None and on not in PLACES:
        raise click.BadParameter(f"'{on}' is not one of {', '.join(PLACES)}.", param_hint="'--on'")
    if bool(elf_paths) == (source is not None) or bool(elf_paths) != bool(calls):
        raise click.UsageError("Give a MODEL, or --elf FILE and --call CALL.")
    if options != Options() and (source is None or op_index is not None):
        raise click.UsageError("--schedule, --input-rows and --recompute are for a whole MODEL.")
    with_picture = bool(png_path or svg_path)
    if source is None:
        traced = _kernels(elf_paths, calls, on, with_picture)
    else:
        with naming_model(source.label):
            graph = source.runnable
        if op_index is not None:
            traced = _op(graph, op_index, on or NATIVE, with_picture)
        else:
            traced = _model(graph, options, on or NATIVE)
    show(json_path, traced.to_json, (*traced.tables(), *traced.summary), files=traced.drawn(png_path, svg_path))
    if traced.fault:
        raise UnsafePlanError(f"{traced.name}: {traced.fault}")


def _kernels(elf_paths: tuple[Path, ...], calls: tuple[str, ...], on: str | None, with_picture: bool) -> _Traced:
    from diagmem.reports.trace import call_panel
    from diagmem.tracing.analysis import call_rows
    from diagmem.tracing.kernel import kernel_program, read_calls
    from diagmem.tracing.recording import trace_call

    traced = _Traced(elf_paths[0].name, on or "", [], [], align_bytes=KERNEL_ALIGN_BYTES)
    for kernel in progress([k for text in calls for k in read_calls(text)], "tracing"):
        with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
            program, traced.on = kernel_program(kernel.call, elf_paths, on, Path(place))
            trace = trace_call(program, kernel.call)
            traced.rows += call_rows(trace, kernel.node)
            if with_picture:
                traced.panels.append(call_panel(program, trace))
    return traced


def _op(graph: Graph, index: int, on: str, with_picture: bool) -> _Traced:
    from diagmem.reports.trace import op_panel
    from diagmem.tracing.analysis import trace_ops
    from diagmem.tracing.model import build_model, side_by_side

    if index >= len(graph.ops):
        raise click.BadParameter(f"the model's ops are 0 to {len(graph.ops) - 1}.", param_hint="'--op'")
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        model = build_model(side_by_side([graph.nodes[index]]), on, Path(place))
        rows = trace_ops(model, (graph.nodes[index],))
        panels = [op_panel(model, rows[0])] if with_picture and rows else []
    return _Traced(graph.name, on, rows, panels)


def _model(graph: Graph, options: Options, on: str) -> _Traced:
    """Traces the model with all buffers apart, then its plan without overlap, and the plan asked for."""
    from diagmem import pipeline
    from diagmem.backends.c.program import Program
    from diagmem.frontends.source import Source
    from diagmem.reports.trace import plan_panel
    from diagmem.tracing.analysis import run_plan, trace_plan
    from diagmem.tracing.model import apart, build_model

    with working("planning"):
        # Run whole, every op of the model has its row in the table, so none is removed.
        order = BEST if options.schedule == AUTO else options.schedule
        whole = replace(options, schedule=order, skip="all")
        made = pipeline.planned(Source(graph), options if order == ROWS else whole)
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
    traced = _Traced(graph.name, on, list(found.rows), panels, list(found.turns))
    traced.plan = {
        "arena_bytes": after.arena_bytes,
        "baseline_bytes": before.arena_bytes,
        "traced_peak_bytes": runs["after"].peak_bytes,
        "traced_baseline_peak_bytes": runs["before"].peak_bytes,
        "pairs": [asdict(pair) for pair in found.pairs],
        "lost": [{"first": lost.first, "second": lost.second, "byte": lost.byte} for lost in found.lost],
    }
    what = "times a row lies over one that it is made of" if after.runs_by_rows else "ops overlap"
    traced.summary = [
        "",
        f"peak before   {size_text(runs['before'].peak_bytes)} touched, {size_text(before.arena_bytes)} planned",
        f"peak after    {size_text(runs['after'].peak_bytes)} touched, {size_text(after.arena_bytes)} planned",
        f"separations   {len(found.pairs)} {what}, {_kept(found)} by no more than was traced; "
        f"values lost among all {len(after.buffers)} buffers: {len(found.lost) or 'none'}",
    ]
    traced.fault = str(found.lost[0]) if found.lost else None
    return traced


def _title(plan: Plan) -> str:
    if not plan.runs_by_rows:
        return "after overlap"
    return "row by row, input streamed" if plan.input_rows else "row by row"


def _kept(found: ModelTrace) -> str:
    kept = sum(pair.distance >= pair.separation for pair in found.pairs)
    return "all" if kept == len(found.pairs) else str(kept)


@dataclass
class _Traced:
    """What was traced, ready to be written. `plan`: what else the JSON says; `fault`: why the answer is no."""

    name: str
    on: str
    rows: list[TracedRow]
    panels: list[Panel]
    turns: list[TracedTurns] = field(default_factory=list)
    align_bytes: int = 1
    plan: dict[str, Any] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    fault: str | None = None

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.name, "on": self.on, "align_bytes": self.align_bytes, **self.plan}
        turns = {"turns": [turns.to_json() for turns in self.turns]} if self.turns else {}
        return {**about, "rows": [row.to_json() for row in self.rows], **turns}

    def tables(self) -> Iterator[Table]:
        """Ops that ran whole, then those that ran a row at a time."""
        if self.rows or not self.turns:
            yield _table(self.rows)
        if self.turns:
            yield _table_of_turns(self.turns)

    def drawn(self, png_path: Path | None, svg_path: Path | None) -> dict[Path, bytes]:
        from diagmem.reports.trace import trace_drawing

        if not (svg_path or png_path):
            return {}
        drawing = trace_drawing(self.panels, f"Memory trace of {self.name} on {self.on}", bool(self.plan))
        svg = {svg_path: drawing.svg().encode()} if svg_path else {}
        return svg | ({png_path: drawing.png()} if png_path else {})


def _table(rows: list[TracedRow]) -> Table:
    cells = [
        (
            "-" if row.node is None else str(row.node.op.number),
            row.kind,
            str(row.input_bytes),
            str(row.output_bytes),
            "-" if row.exact is None else str(row.exact),
            str(row.overlap.monotone),
            str(row.overlap.largest),
            *map(str, row.counts.to_json().values()),
            "" if row.agrees else "DIFFERS",
        )
        for row in rows
    ]
    columns = _columns("in bytes", "out bytes", "exact", "traced", "largest")
    return Table(columns, cells, [n for n, row in enumerate(rows) if not row.agrees])


def _table_of_turns(found: list[TracedTurns]) -> Table:
    cells = [
        (
            str(turns.node.op.number),
            turns.node.op.kind,
            *(str(n) for n in (turns.turns, turns.pairs, turns.pairs - turns.differing)),
            *map(str, turns.counts.to_json().values()),
            "DIFFERS" if turns.differing else "",
        )
        for turns in found
    ]
    columns = _columns("rows", "row pairs", "as exact")
    return Table(columns, cells, [n for n, turns in enumerate(found) if turns.differing])


def _columns(*headings: str) -> tuple[Column, ...]:
    counts = ("instructions", "loads", "stores", "updates")
    return number("op"), Column("kind"), *map(number, headings), *(number(count, 2) for count in counts), Column("", 1)
