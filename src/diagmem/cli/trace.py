"""`diagmem trace`: what compiled kernels do to memory, the safe overlap that follows, and pictures of it."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._shared import (
    ModelParameter,
    console,
    json_option,
    load_runnable,
    progress,
    size_text,
    write_file,
    write_json,
)
from diagmem.errors import UnsafePlanError

if TYPE_CHECKING:
    from rich.table import Table

    from diagmem.graph import Graph
    from diagmem.reports.trace import Panel
    from diagmem.tracing.model_trace import ModelTrace
    from diagmem.tracing.rows import TracedRow

KERNEL_ALIGN_BYTES = 4
"""Alignment to plan for, for kernels of which nothing else is known: they may load words."""


@click.command(short_help="Overlap and pictures from compiled kernels.")
@click.argument("model", type=ModelParameter(), required=False)
@click.option("--op", "op_index", type=click.IntRange(min=0), metavar="I", help="Only this op of the model.")
@click.option(
    "--on",
    metavar="CORE",
    help="Where the code runs: x86, cortex-m0, -m3, -m4, -m7 or -m33.  [default: x86; for ELF files what they are for]",
)
@click.option(
    "--elf",
    "elf_paths",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Trace a kernel of this ELF file, object or archive instead of a model; may be given more than once.",
)
@click.option(
    "--call",
    "calls",
    multiple=True,
    metavar="CALL",
    help="How to call the kernel: 'name(arguments)', or a TOML file of such calls. Needs --elf.",
)
@json_option
@click.option(
    "--png", "png_path", type=click.Path(dir_okay=False, path_type=Path), help="Draw it; needs diagmem[plot]."
)
@click.option("--svg", "svg_path", type=click.Path(dir_okay=False, path_type=Path), help="Draw it.")
def command(
    model: str | None,
    op_index: int | None,
    on: str | None,
    elf_paths: tuple[Path, ...],
    calls: tuple[str, ...],
    json_path: str | None,
    png_path: Path | None,
    svg_path: Path | None,
) -> None:
    """Trace the loads and stores of compiled kernels: those of MODEL's generated C, or any kernel in an ELF file.

    O_s follows from what the code really does, so no source is needed. Code whose pattern depends on data is refused.
    A trace written with --json can be planned with: diagmem plan MODEL --kernels traced:FILE.json.

    A whole model is also run as planned, before and after overlap: its peak must be the plan's arena, and no value may
    be lost. That is what --png and --svg draw.

    \b
    Arguments of a call:
      input int8[16, 16, 8]      pointer to an input; also output, scratch, constant
      constant int32[4] = {1, 2, 3, 4}
      int32 7, float 0.5, null   numbers, a null pointer
      struct(int32 1, input int8[64], int16 0 * 8)    pointer to a struct

    \b
    Examples:
      diagmem trace model.tflite --png before_after.png
      diagmem trace zoo:kws_dscnn_int8 --op 2 --on cortex-m4 --png op2.png
      diagmem trace --elf relu.o --call 'relu(input int8[64], output int8[64], int32 64)'
      diagmem trace --elf vendor.elf --call calls.toml --json vendor.json
    """
    from diagmem.tracing.kernel import NATIVE, PLACES

    if on is not None and on not in PLACES:
        raise click.BadParameter(f"'{on}' is not one of {', '.join(PLACES)}.", param_hint="'--on'")
    if bool(elf_paths) == (model is not None) or bool(elf_paths) != bool(calls):
        raise click.UsageError("Give a MODEL, or --elf FILE and --call CALL.")
    with_picture = bool(png_path or svg_path)
    if model is None:
        traced = _kernels(elf_paths, calls, on, with_picture)
    elif op_index is not None:
        traced = _op(load_runnable(model), op_index, on or NATIVE, with_picture)
    else:
        traced = _whole(load_runnable(model), on or NATIVE, with_picture)
    if json_path:
        write_json(json_path, traced.to_json())
    traced.draw(png_path, svg_path)
    if json_path != "-":
        out = console()
        out.print(_table(traced.rows))
        for line in traced.summary:
            out.print(line, markup=False)
    if traced.fault:
        raise UnsafePlanError(f"{traced.name}: {traced.fault}")


@dataclass
class _Traced:
    """What was traced, ready to be written. `plan`: what else the JSON says; `fault`: why the answer is no."""

    name: str
    on: str
    rows: list[TracedRow]
    panels: list[Panel]
    align_bytes: int = 1
    plan: dict[str, Any] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    fault: str | None = None

    def to_json(self) -> dict[str, Any]:
        about = {"model": self.name, "on": self.on, "align_bytes": self.align_bytes, **self.plan}
        return {**about, "rows": [row.to_json() for row in self.rows]}

    def draw(self, png_path: Path | None, svg_path: Path | None) -> None:
        from diagmem.reports.trace import trace_drawing

        if svg_path or png_path:
            drawing = trace_drawing(self.panels, f"Memory trace of {self.name} on {self.on}", bool(self.plan))
            if svg_path:
                write_file(svg_path, drawing.svg().encode())
            if png_path:
                write_file(png_path, drawing.png())


def _kernels(elf_paths: tuple[Path, ...], calls: tuple[str, ...], on: str | None, with_picture: bool) -> _Traced:
    from diagmem.reports.trace import call_panel
    from diagmem.tracing.kernel import kernel_program, read_calls
    from diagmem.tracing.rows import call_rows
    from diagmem.tracing.run import trace_call

    traced = _Traced(elf_paths[0].name, on or "", [], [], KERNEL_ALIGN_BYTES)
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
    from diagmem.tracing.model import alone, build_model
    from diagmem.tracing.model_trace import trace_ops

    if index >= len(graph.ops):
        raise click.BadParameter(f"the model's ops are 0 to {len(graph.ops) - 1}.", param_hint="'--op'")
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        model = build_model(alone(graph.nodes[index]), on, Path(place))
        rows = trace_ops(model, (graph.nodes[index],))
        panels = [op_panel(model, rows[0])] if with_picture and rows else []
    return _Traced(graph.name, on, rows, panels)


def _whole(graph: Graph, on: str, with_picture: bool) -> _Traced:
    from diagmem import pipeline
    from diagmem.backends.c.program import Program
    from diagmem.reports.trace import plan_panel
    from diagmem.tracing.model import apart, build_model
    from diagmem.tracing.model_trace import run_plan, trace_plan

    # Every op of the model has its rows, so none is removed.
    before, after = pipeline.plan(graph, schedule="file", overlap=False, remove=()), pipeline.plan(graph, remove=())
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        found = trace_plan(build_model(apart(after), on, Path(place)), after)
        runs = {
            words: run_plan(build_model(Program.of(plan), on, Path(place)), plan)
            for words, plan in progress((("before", before), ("after", after)), "running the plans")
        }
    traced = _Traced(graph.name, on, list(found.rows), [plan_panel(run, words) for words, run in runs.items()])
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
        f"separations   {len(found.pairs)} ops overlap, {_kept(found)} by no more than was traced; "
        f"values lost among all {len(after.buffers)} buffers: {len(found.lost) or 'none'}",
    ]
    traced.fault = str(found.lost[0]) if found.lost else None
    return traced


def _kept(found: ModelTrace) -> str:
    kept = sum(pair.distance >= pair.separation for pair in found.pairs)
    return "all" if kept == len(found.pairs) else str(kept)


def _table(rows: list[TracedRow]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("op", justify="right")
    table.add_column("kind", no_wrap=True)
    for heading in (
        "in bytes",
        "out bytes",
        "exact",
        "traced",
        "largest",
        "instructions",
        "loads",
        "stores",
        "updates",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            "-" if row.node is None else str(row.node.op.number),
            escape(row.kind),
            str(row.input_bytes),
            str(row.output_bytes),
            "-" if row.exact is None else str(row.exact),
            str(row.overlap.monotone),
            str(row.overlap.largest),
            *(str(n) for n in (row.counts.instructions, row.counts.loads, row.counts.stores, row.counts.updates)),
            "" if row.agrees else "DIFFERS",
            style=None if row.agrees else "red",
        )
    return table
