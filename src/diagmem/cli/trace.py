"""`diagmem trace`: what compiled kernels do to memory, the safe overlap that follows, and pictures of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._shared import (
    ModelParameter,
    PlanChoice,
    console,
    json_option,
    load_runnable,
    progress,
    running_options,
    shape_option,
    write_json,
)
from diagmem.cli._trace_plan import traced_model
from diagmem.cli._traced import Traced
from diagmem.model.errors import UnsafePlanError

if TYPE_CHECKING:
    from diagmem.model.graph import Graph

KERNEL_ALIGN_BYTES = 4
"""Alignment to plan for, for kernels of which nothing else is known: they may load words."""


@click.command(short_help="Overlap and pictures from compiled kernels.")
@click.argument("model", type=ModelParameter(), required=False)
@shape_option
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
@running_options
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
    choice: PlanChoice,
    json_path: str | None,
    png_path: Path | None,
    svg_path: Path | None,
) -> None:
    """Trace the loads and stores of compiled kernels: those of MODEL's generated C, or any kernel in an ELF file.

    O_s follows from what the code really does, so no source is needed. Code whose pattern depends on data is refused.
    A trace written with --json can be planned with: diagmem plan MODEL --kernels traced:FILE.json.

    A whole model is also run as planned, before and after overlap: its peak must be the plan's arena, and no value may
    be lost. That is what --png and --svg draw. With --schedule rows it runs row by row, and every row is compared.

    \b
    Arguments of a call:
      input int8[16, 16, 8]      pointer to an input; also output, scratch, constant
      constant int32[4] = {1, 2, 3, 4}
      int32 7, float 0.5, null   numbers, a null pointer
      struct(int32 1, input int8[64], int16 0 * 8)    pointer to a struct

    \b
    Examples:
      diagmem trace model.tflite --png before_after.png
      diagmem trace model.tflite --schedule rows --input-rows --svg rows.svg
      diagmem trace zoo:kws_dscnn_int8 --op 2 --on cortex-m4 --png op2.png
      diagmem trace --elf relu.o --call 'relu(input int8[64], output int8[64], int32 64)'
      diagmem trace --elf vendor.elf --call calls.toml --json vendor.json
    """
    from diagmem.tracing.capture.kernel import NATIVE, PLACES

    if on is not None and on not in PLACES:
        raise click.BadParameter(f"'{on}' is not one of {', '.join(PLACES)}.", param_hint="'--on'")
    if bool(elf_paths) == (model is not None) or bool(elf_paths) != bool(calls):
        raise click.UsageError("Give a MODEL, or --elf FILE and --call CALL.")
    if choice != PlanChoice() and (model is None or op_index is not None):
        raise click.UsageError("--schedule, --input-rows and --recompute are for a whole MODEL.")
    with_picture = bool(png_path or svg_path)
    if model is None:
        traced = _kernels(elf_paths, calls, on, with_picture)
    elif op_index is not None:
        traced = _op(load_runnable(model), op_index, on or NATIVE, with_picture)
    else:
        traced = traced_model(load_runnable(model), choice, on or NATIVE)
    _hand_out(traced, json_path, png_path, svg_path)


def _hand_out(traced: Traced, json_path: str | None, png_path: Path | None, svg_path: Path | None) -> None:
    """Writes and shows what was traced. A plan that loses a value is shown too, and then is an error."""
    if json_path:
        write_json(json_path, traced.to_json())
    traced.draw(png_path, svg_path)
    if json_path != "-":
        out = console()
        for table in traced.tables():
            out.print(table)
        for line in traced.summary:
            out.print(line, markup=False)
    if traced.fault:
        raise UnsafePlanError(f"{traced.name}: {traced.fault}")


def _kernels(elf_paths: tuple[Path, ...], calls: tuple[str, ...], on: str | None, with_picture: bool) -> Traced:
    from diagmem.reports.trace import call_panel
    from diagmem.tracing.analysis.traced_pairs import call_rows
    from diagmem.tracing.capture.kernel import kernel_program, read_calls
    from diagmem.tracing.capture.run import trace_call

    traced = Traced(elf_paths[0].name, on or "", [], [], align_bytes=KERNEL_ALIGN_BYTES)
    for kernel in progress([k for text in calls for k in read_calls(text)], "tracing"):
        with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
            program, traced.on = kernel_program(kernel.call, elf_paths, on, Path(place))
            trace = trace_call(program, kernel.call)
            traced.rows += call_rows(trace, kernel.node)
            if with_picture:
                traced.panels.append(call_panel(program, trace))
    return traced


def _op(graph: Graph, index: int, on: str, with_picture: bool) -> Traced:
    from diagmem.reports.trace import op_panel
    from diagmem.tracing.analysis.model import alone, build_model
    from diagmem.tracing.analysis.model_trace import trace_ops

    if index >= len(graph.ops):
        raise click.BadParameter(f"the model's ops are 0 to {len(graph.ops) - 1}.", param_hint="'--op'")
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        model = build_model(alone(graph.nodes[index]), on, Path(place))
        rows = trace_ops(model, (graph.nodes[index],))
        panels = [op_panel(model, rows[0])] if with_picture and rows else []
    return Traced(graph.name, on, rows, panels)
