"""`diagmem overlap`: how far each op's input and output may overlap, by each method."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagmem.cli._commands import command_of
from diagmem.cli._models import naming_model
from diagmem.cli._show import Column, Table, number, show
from diagmem.cli._work import progress
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.kernels.overlaps import Overlap


@command_of("overlap")
def command(source: Source, op_index: int | None, method: str, kernels: str | None, json_path: str | None) -> None:
    from diagmem.kernels import library
    from diagmem.kernels.overlaps import METHODS, overlaps

    kernels = kernels or "diagmem"
    if method == "traced" and kernels != "diagmem":
        raise click.UsageError("Only diagmem's own kernels can be traced here; for others see 'diagmem trace --elf'.")
    with naming_model(source.label):
        graph = source.graph_for(method == "traced")
    if op_index is not None and op_index >= len(graph.ops):
        raise click.BadParameter(f"the model's ops are 0 to {len(graph.ops) - 1}.", param_hint="'--op'")
    nodes = graph.nodes if op_index is None else (graph.nodes[op_index],)
    wanted = METHODS if method == "all" else tuple(dict.fromkeys(("exact", method)))
    lib = library(kernels)
    rows = [row for node in progress(nodes, "replaying loops") for row in overlaps(node, lib, wanted)]
    if method == "traced":
        rows = _traced(rows)
    found = {"model": graph.name, "kernels": kernels, "rows": [row.to_json() for row in rows]}
    show(json_path, lambda: found, [_table(rows)])


def _traced(rows: list[Overlap]) -> list[Overlap]:
    """The rows with what was traced, for ops that C code can run."""
    from diagmem.tracing.analysis import trace_ops
    from diagmem.tracing.kernel import NATIVE
    from diagmem.tracing.model import build_model, has_kernel, side_by_side

    nodes = [node for node in dict.fromkeys(row.node for row in rows) if has_kernel(node)]
    with tempfile.TemporaryDirectory(prefix="diagmem-") as place:
        traced = trace_ops(build_model(side_by_side(nodes), NATIVE, Path(place)), nodes)
    found = {(row.node, row.input, row.output): row.overlap.monotone for row in traced}
    return [replace(row, traced=found.get((row.node, row.input.index, row.output.index))) for row in rows]


def _table(rows: list[Overlap]) -> Table:
    columns = (
        *(number("op"), Column("kind"), number("in bytes", 2), number("out bytes", 2), number("exact")),
        *(number("of smaller", 5), number("algorithmic", 4), number("analytical", 3), number("paper", 1)),
        *(number("traced", 1), Column("", 1)),
    )
    cells = [
        (
            str(row.node.op.index),
            one_line(row.node.op.kind),
            str(row.input.size_bytes),
            str(row.output.size_bytes),
            _figure(row.exact),
            "-" if row.share is None else f"{100 * row.share:.1f} %",
            _figure(row.algorithmic),
            _figure(row.analytical),
            "-" if row.paper is None else f"{float(row.paper):g}" if row.paper.denominator > 1 else str(row.paper),
            _figure(row.traced),
            "UNSAFE" if row.paper_is_unsafe else "",
        )
        for row in rows
    ]
    return Table(columns, cells, [n for n, row in enumerate(rows) if row.paper_is_unsafe])


def _figure(value: int | None) -> str:
    return "-" if value is None else str(value)
