"""`diagmem zoo`: the built-in models; `diagmem zoo write` makes one of them a .tflite file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagmem.cli._shared import console, json_option, shape_text, size_text, working, write_file, write_json
from diagmem.cli._tables import Column, number, print_table

if TYPE_CHECKING:
    from diagmem.frontends.zoo import Entry


class _NameParameter(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """The name of a model of the zoo; completes it."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from diagmem.frontends import zoo

        return [CompletionItem(name) for name in zoo.models() if name.startswith(incomplete)]


@click.group(short_help="The built-in models; write one as .tflite.", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, json_path: str | None) -> None:
    """List the built-in models: those of the paper, SqueezeNet, and those of MLPerf Tiny.

    Every command takes one of them as zoo:NAME. They have shapes but no weights, so that even the largest is there
    at once; `diagmem zoo write` draws weights.

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
    from diagmem.frontends import zoo

    rows = [_row(entry) for entry in zoo.models().values()]
    if json_path:
        write_json(json_path, {"models": rows})
    if json_path != "-":
        _print_table(rows)


def _row(entry: Entry) -> dict[str, Any]:
    from diagmem.planning.bounds import inspect

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
        "weights_bytes": found.weights_bytes,
        "peak_bytes": found.peak_bytes,
        "macs": sum(found.macs),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    columns = {
        "name": Column("name"),
        "ops": number("ops", 4),
        "input": Column("input", 1),
        "dtype": Column("type", 3),
        "weights_bytes": number("weights bytes"),
        "peak_bytes": number("peak bytes"),
        "description": Column("model", 2),
    }
    cells = [{**row, "input": shape_text(row["input"])} for row in rows]
    print_table(console(), [*columns.values()], [[str(row[key]) for key in columns] for row in cells])


@command.command()
@click.argument("name", type=_NameParameter())
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.tflite",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
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
    from diagmem.frontends import zoo
    from diagmem.frontends.tflite.writer import to_tflite

    graph = zoo.build(name)
    with working(f"drawing the weights of {name}"):
        content = to_tflite(graph, seed)
        write_file(output, content)
    console().print(f"wrote {output}: {size_text(len(content))}", markup=False, soft_wrap=True)
