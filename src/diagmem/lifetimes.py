"""When each tensor lives, tensors taken whole: what RAM a plain runtime needs at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagmem.graph import Graph


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Steps [first, end) during which a tensor holds bytes that matter."""

    first: int
    end: int


def lifetimes(graph: Graph, order: Sequence[int]) -> dict[int, Lifetime]:
    """Lifetime of each tensor in RAM when the ops run in `order`.

    A graph input lives from the start to its last use, a graph output to the end, a variable always, a tensor that
    nobody reads during its own step.
    """
    step_of = {op: step for step, op in enumerate(order)}
    found = {}
    for tensor in graph.tensors:
        readers = [step_of[op] for op in graph.consumers.get(tensor.index, ())]
        producer = graph.producer.get(tensor.index)
        is_input = tensor.index in graph.inputs
        if tensor.is_constant or (producer is None and not is_input and not readers and not tensor.is_variable):
            continue
        first = 0 if producer is None or is_input or tensor.is_variable else step_of[producer]
        is_kept = tensor.is_variable or tensor.index in graph.outputs
        found[tensor.index] = Lifetime(first, len(order) if is_kept else max([first, *readers]) + 1)
    return found


def live_bytes(graph: Graph, order: Sequence[int]) -> list[int]:
    """Bytes of the tensors that live at each step."""
    change = [0] * (len(order) + 1)
    for index, life in lifetimes(graph, order).items():
        change[life.first] += graph.tensors[index].size_bytes
        change[life.end] -= graph.tensors[index].size_bytes
    live, total = [], 0
    for delta in change[: len(order)]:
        total += delta
        live.append(total)
    return live
