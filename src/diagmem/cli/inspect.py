"""`diagmem inspect`: ops, tensors, live bytes at each step, and which op sets the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from diagmem.cli._shared import (
    console,
    json_option,
    load_model,
    model_argument,
    op_text,
    shape_text,
    size_text,
    write_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from diagmem.planning.inspection import Inspection

BAR_WIDTH = 30


@click.command(short_help="Which op sets the peak: ops, shapes, live bytes.")
@model_argument
@json_option
def command(model: str, json_path: str | None) -> None:
    """Show the ops of MODEL, the bytes that live at each step, and which op sets the peak.

    Tensors are taken whole and ops in the file's order: this is what a runtime without any planning beyond reuse
    of dead tensors needs.

    \b
    Examples:
      diagmem inspect model.tflite
      diagmem inspect zoo:mobilenet_v1_0.25_128_int8
      diagmem inspect model.tflite --json - | jq .peak_bytes
    """
    from diagmem.planning.inspection import inspect

    found = inspect(load_model(model))
    if json_path:
        write_json(json_path, found.to_json())
    if json_path != "-":
        out = console()
        out.print(_table(found))
        for line in _summary(found):
            out.print(line, markup=False, soft_wrap=True)


def _table(found: Inspection) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("op", "kind", "in", "out"):
        table.add_column(heading, justify="right" if heading == "op" else "left", no_wrap=heading != "in")
    for heading in ("out bytes", "live bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for node, live in zip(found.graph.nodes, found.live, strict=True):
        is_peak = live == found.peak_bytes
        table.add_row(
            str(node.op.index),
            escape(node.op.kind),
            ", ".join(shape_text(t.shape) for _, t in node.activations()) or "constants",
            ", ".join(shape_text(t.shape) for t in node.outputs),
            str(sum(t.size_bytes for t in node.outputs)),
            str(live),
            "█" * max(1, round(BAR_WIDTH * live / found.peak_bytes)) + (" peak" if is_peak else ""),
            style="bold red" if is_peak else None,
        )
    return table


def _summary(found: Inspection) -> list[str]:
    lines = [""]
    if found.peak_op is not None:
        peak = found.graph.nodes[found.peak_op]
        lines.append(f"peak          {size_text(found.peak_bytes)}, set by {op_text(peak)}")
    return [
        *lines,
        f"weights       {size_text(found.weights_bytes)}",
        f"activations   {size_text(found.activations_bytes)}, were every tensor to have its own place",
        f"MACs          {sum(found.macs)}",
    ]
