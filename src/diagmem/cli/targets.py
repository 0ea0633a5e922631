"""`diagmem targets`: the micro-controllers known."""

from __future__ import annotations

import click

from diagmem.cli._shared import console, json_option, write_json
from diagmem.cli._tables import Column, number, print_table


@click.command(short_help="The micro-controllers known.")
@json_option
def command(json_path: str | None) -> None:
    """List the micro-controllers that `diagmem plan --target` knows, with their memory and its source.

    An arena must fit into one contiguous region of SRAM, unless `diagmem plan --all-memories` splits it.
    """
    from diagmem.targets import KB, boards, chips

    if json_path:
        found = [
            {
                "name": t.name,
                "vendor": t.vendor,
                "core": t.core.name,
                "cpu": t.core.cpu or None,
                "mhz": t.mhz,
                "regions": [{"name": name, "bytes": size} for name, size in t.regions],
                "memories": [{"name": name, "bytes": size, "cost": cost} for name, size, cost in t.memories],
                "sram_bytes": t.sram_bytes,
                "flash_bytes": t.flash_bytes or None,
                "boards": [board.name for board in boards() if board.chip is t],
                "runs": t.core.refusal is None,
                "reason": t.core.refusal,
                "source": t.source,
                "order_source": t.order_source or None,
                "flash_cost": t.flash_cost or None,
                "flash_source": t.flash_source or None,
            }
            for t in chips()
        ]
        write_json(json_path, {"targets": found})
    if json_path == "-":
        return
    columns = (Column("target"), Column("core"), number("SRAM KB"), Column("largest region", 2), number("flash KB"))
    rows = []
    for t in chips():
        name, size = t.largest_region
        flash = str(t.flash_bytes // KB) if t.flash_bytes else "external"
        runs = "" if t.core.refusal is None else "no: runs no kernels"
        rows.append((t.name, t.core.name, str(t.sram_bytes // KB), f"{size // KB} KB {name}", flash, runs, t.source))
    print_table(console(), (*columns, Column("", 1), Column("source", 3)), rows)
