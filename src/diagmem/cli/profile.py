"""`diagmem profile`: where a model's time goes, operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._models import model_argument, naming_model
from diagmem.cli._options import Command, CoreParameter, json_option, plan_options, plan_path_option
from diagmem.cli._show import Column, Table, cost_lines, number, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.planning.options import Options
    from diagmem.verification.profile import Profile


@click.command(short_help="Instructions, MACs and bytes of each op.", cls=Command)
@model_argument
@click.option(
    "--on", "core", type=CoreParameter(), metavar="CORE", help="Where to run it.  [default: the target's, or cortex-m4]"
)
@click.option(
    "--mhz",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MHZ",
    help="Clock of the core, to show milliseconds.  [default: the target's highest, on its core]",
)
@plan_path_option("Run this plan, from `diagmem plan -o PLAN.json`.")
@plan_options("profile")
@json_option
def command(
    source: Source,
    core: str | None,
    mhz: float | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
    """Show what each op of MODEL costs on a core: instructions, cycles, multiply-accumulates, bytes read and written.

    The C code of `diagmem emit c` runs as firmware in QEMU, which counts every instruction; a table for the core and a
    model of the target's flash give the cycles, with the error that was found on boards (docs/latency.md). Without a
    target, nothing waits for flash.

    \b
    Examples:
      diagmem profile model.tflite --target NUCLEO-L4R5ZI
      diagmem profile model.tflite --on cortex-m4 --mhz 80
      diagmem profile model.tflite --schedule rows --input-rows
      diagmem profile model.tflite --json profile.json
      diagmem report model.tflite --profile profile.json -o report
    """
    from diagmem import pipeline
    from diagmem.planning.plan import checked

    with naming_model(source.label), working("planning, building and running"):
        plan = None if plan_path is None else checked(pipeline.read_plan(source.runnable, plan_path))
        found = pipeline.profile(source, on=core, plan=plan, mhz=mhz, options=options)
    show(json_path, found.to_json, (_table(found), *_summary(found)))


def _table(found: Profile) -> Table:
    columns = (
        *(number("op"), Column("kind"), number("instructions"), number("cycles", 1), number("flash waits", 2)),
        *(number("ms", 1), number("share"), number("MACs", 1), number("per MAC", 3)),
        *(number("read", 4), number("written", 4), Column("", 1)),
    )
    rows = [
        (
            str(op.node.op.number),
            op.node.op.kind,
            f"{op.instructions:,}",
            "" if op.cycles is None else f"{op.cycles:,}",
            "" if not op.cycles or op.flash_wait_cycles is None else f"{op.flash_wait_cycles / op.cycles:.0%}",
            "" if (ms := found.milliseconds(op)) is None else f"{ms:.3f}",
            f"{100 * found.share(op):.1f} %",
            f"{op.macs:,}" if op.macs else "",
            "" if op.instructions_per_mac is None else f"{op.instructions_per_mac:.2f}",
            f"{op.read_bytes:,}",
            f"{op.written_bytes:,}",
            "peak" if op.node.op.number == found.peak_op else "",
        )
        for op in found.ops
    ]
    return Table(columns, rows, [n for n, op in enumerate(found.ops) if op.node.op.number == found.peak_op])


def _summary(found: Profile) -> list[str]:
    macs = found.cost.macs
    each = f", {found.instructions / macs:.2f} for each of {macs:,} MACs" if macs else ""
    return ["", f"instructions  {found.instructions:,}{each}", *cost_lines(found.cost)]
