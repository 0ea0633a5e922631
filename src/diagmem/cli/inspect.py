"""`diagmem inspect`: ops, tensors, live bytes at each step, and which op sets the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import Column, Table, number, op_text, shape_text, show, size_text
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.reports.inspection import Inspection
    from diagmem.transforms.remove_channels import ChannelCounts

BAR_WIDTH = 30


@command_of("inspect")
def command(source: Source, json_path: str | None) -> None:
    from diagmem.reports.inspection import inspect

    with naming_model(source.label):
        found = inspect(source.graph)
    show(json_path, found.to_json, (_table(found), *_summary(found)))


def _table(found: Inspection) -> Table:
    columns = (
        *(number("op"), Column("kind"), Column("in", 2), Column("out", 1), number("out bytes")),
        *(number("live bytes"), Column(""), Column("", 3), Column("idle channels", 4)),
    )
    rows = []
    for node, live, channels in zip(found.graph.nodes, found.live, found.channels, strict=True):
        is_peak = live == found.peak_bytes
        rows.append(
            (
                str(node.op.index),
                one_line(node.op.kind),
                ", ".join(shape_text(t.shape) for _, t in node.activations()) or "constants",
                ", ".join(shape_text(t.shape) for t in node.outputs),
                f"{sum(t.size_bytes for t in node.outputs):,}",
                f"{live:,}",
                "peak" if is_peak else "",
                "█" * max(1, round(BAR_WIDTH * live / found.peak_bytes)),
                _idle(channels),
            )
        )
    return Table(columns, rows, [n for n, live in enumerate(found.live) if live == found.peak_bytes])


def _idle(counts: ChannelCounts) -> str:
    """`98 of 128: 90 of constants, 8 of one value`."""
    parts = {"of constants": counts.of_constants, "of one value": counts.one_value, "unread": counts.unread}
    idle = sum(parts.values())
    if not idle:
        return ""
    stay = "" if counts.removable == idle else f"; {counts.removable} can go"
    return f"{idle} of {counts.channels}: " + ", ".join(f"{n} {why}" for why, n in parts.items() if n) + stay


def _summary(found: Inspection) -> Iterator[str]:
    yield ""
    if found.peak_op is not None:
        yield f"peak          {size_text(found.peak_bytes)}, set by {op_text(found.graph, found.peak_op)}"
    removable = sum(counts.removable for counts in found.channels)
    if removable:
        whole = sum(counts.channels for counts in found.channels)
        yield f"channels      {removable} of {whole} are not needed: see `diagmem plan`"
    yield f"file          {size_text(found.weights_bytes)} of weights"
    yield f"activations   {size_text(found.activations_bytes)} if no two tensors shared memory"
    yield f"MACs          {sum(found.macs):,}"
