"""What a graph needs at the least: how long each tensor lives, and bounds for any plan.

Bounds take a few milliseconds: for loops that look at thousands of networks. Every op of the graph is counted as it
stands. What transforms could leave out is not looked into: transform first, if that is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagmem.model.graph import Graph
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer
from diagmem.planning.options import Options


def tensor_buffers(graph: Graph, order: Sequence[int]) -> dict[int, Buffer]:
    """Each tensor in RAM as a buffer of its own, for the steps during which it holds bytes that matter, when the ops
    run in `order`.

    A graph input lives from the start to its last use, a graph output to the end, a variable always, a tensor that
    nobody reads during its own step. A tensor lives as long as any of its elements does, also under other names.
    """
    step_of = {op: step for step, op in enumerate(order)}
    found = {}
    for tensor in graph.tensors:
        readers = [step_of[op] for op in graph.readers(tensor.index)]
        writers = [step_of[op] for op in graph.writers(tensor.index)]
        is_input = tensor.index in graph.inputs
        if tensor.is_constant or not (writers or is_input or readers or tensor.is_variable):
            continue
        first = 0 if is_input or tensor.is_variable else min(writers, default=0)
        is_kept = tensor.is_variable or any(t in graph.outputs for t in graph.sharing.get(tensor.index, [tensor.index]))
        last = max([first, *readers, *writers])
        end = len(order) if is_kept else min(last + 1, len(order))
        own = (tensor.index,)
        found[own[0]] = Buffer(tensor.label, tensor.size_bytes, first, end, tensor.dtype.size_bytes, own)
    return found


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds for any plan of a graph with all its ops, over all orders and placements.

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
