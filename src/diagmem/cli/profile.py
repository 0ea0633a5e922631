"""`diagmem profile`: where a model's time goes, operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._cores import CORES, CPUS
from diagmem.cli._shared import (
    check_no_options,
    console,
    json_option,
    model_argument,
    naming_model,
    planning_options,
    size_text,
    source_of,
    working,
    write_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from diagmem.verification.profile import Profile


@click.command(short_help="Instructions, MACs and bytes of each op.")
@model_argument
@click.option("--on", "core", type=click.Choice(CORES), default="cortex-m4", show_default=True, help="Where to run it.")
@click.option("--mhz", type=click.FloatRange(min=0, min_open=True), help="The clock, to show milliseconds.")
@click.option("--cpu", type=click.Choice(CPUS), help="Whose kernels to run.  [default: the core's own]")
@click.option("--plan", "plan_path", metavar="FILE", help="Run this plan, from `diagmem plan --json`.")
@planning_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    core: str,
    mhz: float | None,
    cpu: str | None,
    plan_path: str | None,
    json_path: str | None,
    **options: Any,
) -> None:
    """Show what each op of MODEL costs on a core: instructions, multiply-accumulates, bytes of the arena touched.

    The C code of `diagmem emit c` runs as firmware in QEMU, which counts every instruction; marks between ops add none.
    Milliseconds are those at one instruction for each cycle: a core is never faster, and slower where its flash is.

    \b
    Examples:
      diagmem profile model.tflite --on cortex-m4 --mhz 80
      diagmem profile model.tflite --schedule rows --input-rows
      diagmem profile model.tflite --json profile.json
      diagmem report model.tflite --profile profile.json -o report
    """
    from diagmem import pipeline

    if plan_path is not None:
        check_no_options(ctx)
        options = {}
    with naming_model(model), working("planning, building and running"):
        plan = None if plan_path is None else Path(plan_path)
        found = pipeline.profile(source_of(model), on=core, plan=plan, cpu=cpu, **options)
    if json_path:
        write_json(json_path, found.to_json(mhz))
    if json_path != "-":
        out = console()
        out.print(_table(found, mhz))
        for line in _summary(found, mhz):
            out.print(line, markup=False, soft_wrap=True)


def _table(found: Profile, mhz: float | None) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("op", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    numbers = ("instructions", "share", "MACs", "per MAC", "read", "written", *([] if mhz is None else ["ms"]))
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for op in found.ops:
        is_peak = op.node.op.number == found.peak_op
        per_mac = op.instructions_per_mac
        table.add_row(
            str(op.node.op.number),
            op.node.op.kind,
            f"{op.instructions:,}",
            f"{100 * found.share(op):.1f} %",
            f"{op.macs:,}" if op.macs else "",
            "" if per_mac is None else f"{per_mac:.2f}",
            f"{op.read_bytes:,}",
            f"{op.written_bytes:,}",
            *([] if mhz is None else [f"{found.milliseconds(op.instructions, mhz):.3f}"]),
            "peak" if is_peak else "",
            style="bold red" if is_peak else None,
        )
    return table


def _summary(found: Profile, mhz: float | None) -> list[str]:
    macs = sum(op.macs for op in found.ops)
    clock = "" if mhz is None else f", {found.milliseconds(found.instructions, mhz):.2f} ms at {mhz:g} MHz at best"
    each = f", {found.instructions / macs:.2f} for each of {macs:,} MACs" if macs else ""
    return ["", f"instructions  {found.instructions:,}{each}{clock}", f"arena         {size_text(found.arena_bytes)}"]
