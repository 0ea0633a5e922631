"""What diagmem knows: `targets` (chips), `zoo` (built-in models), `schema` (of plans), `completion` (for shells)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._files import write_file
from diagmem.cli._options import completed, json_option, output_option
from diagmem.cli._show import Column, Table, number, say, shape_text, show, size_text
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.frontends.zoo import Entry
    from diagmem.targets import Chip


@click.command(short_help="List the supported micro-controllers.")
@json_option
def targets(json_path: str | None) -> None:
    """List the micro-controllers that `diagmem plan --target` knows, with their memory and its source.

    An arena must fit into one contiguous region of SRAM, unless `diagmem plan --all-memories` splits it.
    """
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


@click.group(short_help="The built-in models; write one as .tflite.", invoke_without_command=True)
@json_option
@click.pass_context
def zoo(ctx: click.Context, json_path: str | None) -> None:
    """List the built-in models: those of the paper, SqueezeNet, and those of MLPerf Tiny.

    Every command takes one of them as zoo:NAME. They have shapes but no weights, so that even the largest loads at
    once; `diagmem zoo write` adds random weights.

    \b
    Examples:
      diagmem zoo
      diagmem zoo --json - | jq -r '.models[].name'
      diagmem zoo write vww_96_int8 -o vww.tflite
    """
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


@zoo.command()
@click.argument("name", shell_complete=_completed_model)
@output_option("FILE.tflite", "File to write.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**32 - 1),
    help="Of the random weights; the same seed gives the same file.",
)
def write(name: str, output: Path, seed: int) -> None:
    """Write the model NAME as a .tflite file that runs, with random weights.

    The weights are scaled so that activations neither die out nor saturate on random inputs (noise between -1 and 1;
    for int8 models, any bytes).

    \b
    Examples:
      diagmem zoo write vww_96_int8 -o vww.tflite
      diagmem zoo write resnet50_v2 -o resnet.tflite --seed 7
    """
    from diagmem.frontends.tflite.writer import to_tflite
    from diagmem.frontends.zoo import build

    graph = build(name)
    with working(f"drawing the weights of {name}"):
        content = to_tflite(graph, seed)
        write_file(output, content)
    say([f"wrote {output}: {size_text(len(content))}"])


@click.command(short_help="The JSON Schema of plans.")
def schema() -> None:
    """Print the JSON Schema of what `diagmem plan --json` writes and `diagmem check` reads.

    \b
    Example:
      diagmem schema > plan.schema.json
    """
    from diagmem.backends.json import schema_text

    click.echo(schema_text(), nl=False)


@click.command(short_help="Script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  folder=~/.local/share/bash-completion/completions
           diagmem completion bash > $folder/diagmem
    zsh:   diagmem completion zsh > "${fpath[1]}/_diagmem"
    fish:  diagmem completion fish > ~/.config/fish/completions/diagmem.fish
    """
    from click.shell_completion import get_completion_class

    cls = get_completion_class(shell)
    if cls is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(cls(ctx.find_root().command, {}, "diagmem", "_DIAGMEM_COMPLETE").source())
