"""What diagmem knows: `targets` (chips), `zoo` (built-in models), `schema` (of plans), `completion` (for shells)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._commands import command_of, completed
from diagmem.cli._files import write_file
from diagmem.cli._show import Column, Table, number, say, shape_text, show, size_text
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.zoo import Entry
    from diagmem.targets import Chip


@command_of("targets")
def targets(json_path: str | None) -> None:
    from diagmem.targets import chips

    columns = (
        *(Column("target"), Column("core"), number("SRAM KB"), Column("largest region", 2), number("flash KB")),
        Column("source", 3),
    )
    found = {"targets": [_chip_json(chip) for chip in chips()]}
    refused = ", ".join(f"{chip.name} ({chip.core.name})" for chip in chips() if chip.core.refusal is not None)
    table = Table(columns, [_chip_row(chip) for chip in chips()])
    show(json_path, lambda: found, (table, "", f"No kernels run on {refused}."))


def _chip_row(chip: Chip) -> tuple[str, ...]:
    from diagmem.targets.chips import KB

    name, size = chip.largest_region
    flash = str(chip.flash_bytes // KB) if chip.flash_bytes else "external"
    sram = str(chip.sram_bytes // KB)
    return chip.name, chip.core.name, sram, f"{size // KB} KB {name}", flash, chip.source


def _chip_json(chip: Chip) -> dict[str, Any]:
    from diagmem.targets import boards

    return {
        "name": chip.name,
        "vendor": chip.vendor,
        "core": chip.core.name,
        "cpu": chip.core.cpu or None,
        "mhz": chip.mhz,
        "regions": [{"name": name, "bytes": size} for name, size in chip.regions],
        "memories": [{"name": name, "bytes": size, "cost": cost} for name, size, cost in chip.memories],
        "sram_bytes": chip.sram_bytes,
        "flash_bytes": chip.flash_bytes or None,
        "boards": [board.name for board in boards() if board.chip is chip],
        "runs": chip.core.refusal is None,
        "reason": chip.core.refusal,
        "source": chip.source,
        "order_source": chip.order_source or None,
        "flash_cost": chip.flash_cost or None,
        "flash_source": chip.flash_source or None,
    }


def _completed_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from diagmem.frontends.zoo import models

    return completed(models(), incomplete)


@command_of("zoo")
@click.pass_context
def zoo(ctx: click.Context, json_path: str | None) -> None:
    if ctx.invoked_subcommand is not None:
        if json_path:
            raise click.UsageError(f"--json lists the models; it does not go with '{ctx.invoked_subcommand}'.", ctx)
        return
    from diagmem.frontends.zoo import models

    rows = [_zoo_row(entry) for entry in models().values()]
    columns = {
        "name": Column("name"),
        "ops": number("ops", 4),
        "input": Column("input", 1),
        "dtype": Column("type", 3),
        "file_weights_bytes": number("file: weights"),
        "peak_bytes": number("peak bytes"),
        "description": Column("model", 2),
    }
    cells = [{**row, "input": shape_text(row["input"])} for row in rows]
    table = Table([*columns.values()], [[str(row[key]) for key in columns] for row in cells])
    show(json_path, lambda: {"models": rows}, [table])


def _zoo_row(entry: Entry) -> dict[str, Any]:
    from diagmem.reports.inspection import inspect

    graph = entry.make()
    found = inspect(graph)
    data = graph.tensors[graph.inputs[0]]
    return {
        "name": entry.name,
        "description": entry.description,
        "source": entry.source,
        "ops": len(graph.ops),
        "input": list(data.shape),
        "dtype": data.dtype.value,
        "file_weights_bytes": found.weights_bytes,
        "peak_bytes": found.peak_bytes,
        "file_macs": sum(found.macs),
    }


@command_of("zoo write", of=zoo, name=_completed_model)
def write(name: str, output: Path, seed: int) -> None:
    from diagmem.frontends.tflite.writer import to_tflite
    from diagmem.frontends.zoo import build

    graph = build(name)
    with working(f"drawing the weights of {name}"):
        content = to_tflite(graph, seed)
        write_file(output, content)
    say([f"wrote {output}: {size_text(len(content))}"])


@command_of("schema")
def schema() -> None:
    from diagmem.backends.json import schema_text

    click.echo(schema_text(), nl=False)


@command_of("completion")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    cls = get_completion_class(shell)
    if cls is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(cls(ctx.find_root().command, {}, "diagmem", "_DIAGMEM_COMPLETE").source())
