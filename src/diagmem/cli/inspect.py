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
from diagmem.cli._tables import Column, number, print_table
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.planning.bounds import Inspection
    from diagmem.transforms.channels.counting import ChannelCounts

BAR_WIDTH = 30


@click.command(short_help="Which op sets the peak: ops, shapes, live bytes.")
@model_argument
@json_option
def command(model: str, json_path: str | None) -> None:
    """Show the ops of MODEL, the bytes that live at each step, and which op sets the peak.

    Tensors are taken whole and ops in the file's order: this is what a runtime without any planning beyond reuse
    of dead tensors needs. Idle channels make no difference to any output: they are made of constants only (weights
    of 0), always have one value after rounding and clamping, or nobody reads them.

    \b
    Examples:
      diagmem inspect model.tflite
      diagmem inspect zoo:mobilenet_v1_0.25_128_int8
      diagmem inspect model.tflite --json - | jq .peak_bytes
    """
    from diagmem.planning.bounds import inspect

    found = inspect(load_model(model))
    if json_path:
        write_json(json_path, found.to_json())
    if json_path != "-":
        out = console()
        _print_table(out, found)
        for line in _summary(found):
            out.print(line, markup=False, soft_wrap=True)


def _print_table(out: Console, found: Inspection) -> None:
    columns = (
        *(number("op"), Column("kind"), Column("in", 2), Column("out", 1), number("out bytes")),
        *(number("live bytes"), Column(""), Column("", 3), Column("idle channels", 4)),
    )
    rows, styles = [], []
    for node, live, channels in zip(found.graph.nodes, found.live, found.channels, strict=True):
        is_peak = live == found.peak_bytes
        rows.append(
            (
                str(node.op.index),
                one_line(node.op.kind),
                ", ".join(shape_text(t.shape) for _, t in node.activations()) or "constants",
                ", ".join(shape_text(t.shape) for t in node.outputs),
                str(sum(t.size_bytes for t in node.outputs)),
                str(live),
                "peak" if is_peak else "",
                "█" * max(1, round(BAR_WIDTH * live / found.peak_bytes)),
                _idle(channels),
            )
        )
        styles.append("bold red" if is_peak else None)
    print_table(out, columns, rows, styles)


def _idle(counts: ChannelCounts) -> str:
    """`98 of 128: 90 of constants, 8 of one value`."""
    parts = {"of constants": counts.of_constants, "of one value": counts.one_value, "unread": counts.unread}
    idle = sum(parts.values())
    if not idle:
        return ""
    stay = "" if counts.removable == idle else f"; {counts.removable} can go"
    return f"{idle} of {counts.channels}: " + ", ".join(f"{n} {why}" for why, n in parts.items() if n) + stay


def _channel_lines(found: Inspection) -> list[str]:
    removable = sum(counts.removable for counts in found.channels)
    whole = sum(counts.channels for counts in found.channels)
    return [f"channels      {removable} of {whole} need not exist: see `diagmem plan`"] if removable else []


def _summary(found: Inspection) -> list[str]:
    lines = [""]
    if found.peak_op is not None:
        peak = found.graph.nodes[found.peak_op]
        lines.append(f"peak          {size_text(found.peak_bytes)}, set by {op_text(peak)}")
    return [
        *lines,
        *_channel_lines(found),
        f"weights       {size_text(found.weights_bytes)}",
        f"activations   {size_text(found.activations_bytes)}, were every tensor to have its own place",
        f"MACs          {sum(found.macs)}",
    ]
