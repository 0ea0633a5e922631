"""`diagmem targets`: the micro-controllers known."""

from __future__ import annotations

import click

from diagmem.cli._shared import console, json_option, write_json


@click.command(short_help="The micro-controllers known.")
@json_option
def command(json_path: str | None) -> None:
    """List the micro-controllers that `diagmem plan --target` knows, with their memory and its source.

    An arena cannot be split, so it must fit into one contiguous region of SRAM.
    """
    from rich.table import Table

    from diagmem.reports.targets import BOARDS, KB, TARGETS

    if json_path:
        found = [
            {
                "name": t.name,
                "core": t.core,
                "regions": [{"name": name, "bytes": size} for name, size in t.regions],
                "sram_bytes": t.sram_bytes,
                "flash_bytes": t.flash_bytes or None,
                "boards": [board for board, chip in BOARDS.items() if chip == t.name],
                "runs": t.refusal is None,
                "reason": t.refusal,
                "source": t.source,
            }
            for t in TARGETS
        ]
        write_json(json_path, {"targets": found})
    if json_path == "-":
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("target", "core", "SRAM KB", "largest region", "flash KB", "source"):
        table.add_column(heading, justify="right" if "KB" in heading else "left", no_wrap=True)
    for t in TARGETS:
        name, size = t.largest_region
        flash = str(t.flash_bytes // KB) if t.flash_bytes else "external"
        table.add_row(t.name, t.core, str(t.sram_bytes // KB), f"{size // KB} KB {name}", flash, t.source)
    console().print(table)
