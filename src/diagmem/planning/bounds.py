"""How small any plan of a graph can be, in a few milliseconds: for loops that look at thousands of networks.

Every op of the graph is counted as it stands. What transforms could leave out is not looked into: transform first, if
that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagmem.model.graph import Graph
from diagmem.planning.footprint import footprint
from diagmem.planning.options import Options


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes that no plan of a graph with all its ops stays below, over all orders and placements.

    `whole_bytes`: without overlap. `overlapped_bytes`: with overlap. `rows_bytes`: row by row, with an input that is
    given whole; `streamed_bytes`: with one that comes a row at a time.
    """

    whole_bytes: int
    overlapped_bytes: int
    rows_bytes: int
    streamed_bytes: int


def bounds(graph: Graph, options: Options) -> Bounds:
    """The bounds of a graph, from what is live at its most demanding op."""
    needs = footprint(graph, replace(options, overlap=True))
    overlapped = needs.least_pressure * needs.unit_bytes
    whole = max(needs.least_outside, *needs.least_apart, 0) * needs.unit_bytes
    # Row by row, a graph's outputs lie whole at the end, and what is given whole lies there at the beginning.
    outputs = sum(graph.tensors[t].size_bytes for t in dict.fromkeys(graph.outputs) if not graph.tensors[t].is_constant)
    inputs = sum(graph.tensors[t].size_bytes for t in dict.fromkeys(graph.inputs))
    row = max((graph.tensors[t].row_bytes for t in graph.inputs), default=0)
    return Bounds(whole, overlapped, min(overlapped, max(inputs, outputs)), min(overlapped, max(row, outputs)))
