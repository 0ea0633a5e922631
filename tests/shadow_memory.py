"""An oracle for the validator: every byte of the arena with its owner, every touch of every op in turn."""

from __future__ import annotations

from collections.abc import Mapping

from diagmem.accesses import Runs
from diagmem.graph import Graph, Node
from diagmem.kernels import Library
from diagmem.ops import kind_of
from diagmem.schedule import Schedule

Owner = tuple[object, int]


def loses_bytes(graph: Graph, schedule: Schedule, offsets: Mapping[int, int], library: Library) -> bool:
    """Whether some read, by an op or by the caller at the end, finds a byte that is not its tensor's own.

    Graph inputs, scratch-free kernels, and ops with one output: two results of an op that overlap are judged by the
    order of their writes here, and more strictly by the validator.
    """
    memory: dict[int, Owner] = {}
    value_of: dict[int, object] = {t: t for t in offsets}

    def own(tensor: int) -> bool:
        size = graph.tensors[tensor].size_bytes
        return all(memory.get(offsets[tensor] + b) == (value_of[tensor], b) for b in range(size))

    def write(tensor: int) -> None:
        memory.update((offsets[tensor] + b, (value_of[tensor], b)) for b in range(graph.tensors[tensor].size_bytes))

    for tensor in graph.inputs:
        write(tensor)
    if not all(own(tensor) for tensor in graph.inputs):
        return True
    for op in schedule.ops:
        node = graph.nodes[op]
        kind, order = kind_of(node.op.kind), library.order(node)
        ram = [t.index for _, t in node.activations()]
        if kind is not None and kind.is_alias and offsets[node.op.inputs[0]] == offsets[node.op.outputs[0]]:
            value_of[node.op.outputs[0]] = value_of[node.op.inputs[0]]
            continue
        if kind is None or order is None or kind.is_alias:
            for tensor in node.op.outputs:
                write(tensor)
            if not all(own(tensor) for tensor in ram):
                return True
        elif not _steps_are_clean(node, order, offsets, memory, value_of):
            return True
    return not all(own(tensor) for tensor in graph.outputs)


def _steps_are_clean(
    node: Node, order: str, offsets: Mapping[int, int], memory: dict[int, Owner], value_of: Mapping[int, object]
) -> bool:
    kind = kind_of(node.op.kind)
    assert kind is not None
    accesses = kind.accesses(node, order)
    reads = {p: _by_step(runs) for p, runs in enumerate(accesses.reads) if runs is not None}
    writes = [_by_step(runs) for runs in accesses.writes]
    for step in range(accesses.steps):
        for position, touched in reads.items():
            tensor = node.input(position)
            for byte in _bytes(touched.get(step, ()), tensor.dtype.size_bytes):
                if memory.get(offsets[tensor.index] + byte) != (value_of[tensor.index], byte):
                    return False
        for tensor, touched in zip(node.outputs, writes, strict=True):
            for byte in _bytes(touched.get(step, ()), tensor.dtype.size_bytes):
                memory[offsets[tensor.index] + byte] = (value_of[tensor.index], byte)
    return True


def _by_step(runs: Runs) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for element, first, last in zip(*(a.tolist() for a in runs.touches()), strict=True):
        for step in range(first, last + 1):
            found.setdefault(step, []).append(element)
    return found


def _bytes(elements: list[int] | tuple[()], size: int) -> list[int]:
    return [e * size + b for e in elements for b in range(size)]
