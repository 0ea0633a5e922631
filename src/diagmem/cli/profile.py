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
    """Show what each op of MODEL costs on a core: instructions, multiply-accumulates, bytes read and written.

    The C code of `diagmem emit c` runs as firmware in QEMU, which counts every instruction; the marks between ops add
    less than 0.1 %. Milliseconds assume one instruction per cycle: no core is faster, and one that waits for flash is
    slower.

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
        chip = (options if plan is None else plan.options).chip
        found = pipeline.profile(source, on=core, plan=plan, options=options)
        mhz = mhz or (chip.mhz if chip is not None and chip.core.cpu == found.on else None)
    show(json_path, lambda: found.to_json(mhz), (_table(found, mhz), *_summary(found, mhz)))


def _table(found: Profile, mhz: float | None) -> Table:
    columns = (
        *(number("op"), Column("kind"), number("instructions"), number("share"), number("MACs", 1)),
        *(number("per MAC", 2), number("read", 3), number("written", 3), number("ms", 1), Column("", 1)),
    )
    rows = [
        (
            str(op.node.op.number),
            op.node.op.kind,
            f"{op.instructions:,}",
            f"{100 * found.share(op):.1f} %",
            f"{op.macs:,}" if op.macs else "",
            "" if op.instructions_per_mac is None else f"{op.instructions_per_mac:.2f}",
            f"{op.read_bytes:,}",
            f"{op.written_bytes:,}",
            "" if mhz is None else f"{found.milliseconds(op.instructions, mhz):.3f}",
            "peak" if op.node.op.number == found.peak_op else "",
        )
        for op in found.ops
    ]
    return Table(columns, rows, [n for n, op in enumerate(found.ops) if op.node.op.number == found.peak_op])


def _summary(found: Profile, mhz: float | None) -> list[str]:
    macs = found.cost.macs
    clock = "" if mhz is None else f", {found.milliseconds(found.instructions, mhz):.2f} ms at {mhz:g} MHz at best"
    each = f", {found.instructions / macs:.2f} for each of {macs:,} MACs" if macs else ""
    return ["", f"instructions  {found.instructions:,}{each}{clock}", *cost_lines(found.cost)]
