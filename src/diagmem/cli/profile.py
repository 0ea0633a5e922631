"""`diagmem profile`: where a model's time goes, operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import Column, Table, cost_lines, number, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.planning.options import Options
    from diagmem.verification.profile import Profile


@command_of("profile")
def command(
    source: Source,
    core: str | None,
    mhz: float | None,
    plan_path: Path | None,
    json_path: str | None,
    options: Options,
) -> None:
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
