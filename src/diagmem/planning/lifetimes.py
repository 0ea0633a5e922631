"""When each tensor lives, tensors taken whole: what RAM a plain runtime needs at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagmem.model.graph import Graph


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Steps [first, end) during which a tensor holds bytes that matter."""

    first: int
    end: int


def lifetimes(graph: Graph, order: Sequence[int]) -> dict[int, Lifetime]:
    """Lifetime of each tensor in RAM when the ops run in `order`.

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
        found[tensor.index] = Lifetime(first, len(order) if is_kept else min(last + 1, len(order)))
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
