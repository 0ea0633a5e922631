"""An oracle for the validator: every byte of the arena with its owner, every touch of every op in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagmem.graph import Graph, Node, Tensor
from diagmem.kernels import Library
from diagmem.ops import kind_of
from diagmem.ops.accesses import Runs
from diagmem.ops.orders import Order
from diagmem.schedule import Schedule
from tests.ops.simulation import places

Owner = tuple[object, int]


def loses_bytes(graph: Graph, schedule: Schedule, offsets: Mapping[int, int], library: Library) -> bool:
    """Whether some read, by an op or by the caller at the end, finds a byte that is not its tensor's own.

    Graph inputs, scratch-free kernels, and ops with one output: two results of an op that overlap are judged by the
    order of their writes here, and more strictly by the validator.
    """
    memory: dict[int, Owner] = {}
    value_of: dict[int, object] = {t: t for t in offsets}

    def own(tensor: int) -> bool:
        return all(memory.get(at) == owner for at, owner in _owners(graph.tensors[tensor], offsets, value_of))

    def write(tensor: int) -> None:
        memory.update(_owners(graph.tensors[tensor], offsets, value_of))

    for tensor in graph.inputs:
        write(tensor)
    if not all(own(tensor) for tensor in graph.inputs):
        return True
    for op in schedule.ops:
        node = graph.nodes[op]
        kind, order = kind_of(node.op.kind), library.order(node)
        ram = [t.index for _, t in node.activations()]
        moves = any(graph.tensors[t].view for t in (*node.op.inputs[:1], *node.op.outputs) if t >= 0)
        moves = moves or kind is None or not kind.is_alias
        if not moves and offsets[node.op.inputs[0]] == offsets[node.op.outputs[0]]:
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
    node: Node, order: Order, offsets: Mapping[int, int], memory: dict[int, Owner], value_of: Mapping[int, object]
) -> bool:
    kind = kind_of(node.op.kind)
    assert kind is not None
    accesses = kind.accesses(node, order)
    reads = {p: _by_step(runs) for p, runs in enumerate(accesses.reads) if runs is not None}
    writes = [_by_step(runs) for runs in accesses.writes]
    for step in range(accesses.steps):
        for position, touched in reads.items():
            tensor = node.input(position)
            owners = list(_owners(tensor, offsets, value_of))
            for byte in _bytes(touched.get(step, ()), tensor.dtype.size_bytes):
                if memory.get(owners[byte][0]) != owners[byte][1]:
                    return False
        for tensor, touched in zip(node.outputs, writes, strict=True):
            owners = list(_owners(tensor, offsets, value_of))
            memory.update(owners[byte] for byte in _bytes(touched.get(step, ()), tensor.dtype.size_bytes))
    return True


def _owners(tensor: Tensor, offsets: Mapping[int, int], value_of: Mapping[int, object]) -> Iterator[tuple[int, Owner]]:
    """The address of each byte of a tensor, and what must be there: a byte of the value that its base is."""
    size = tensor.dtype.size_bytes
    for place in places(tensor):
        for byte in range(place * size, (place + 1) * size):
            yield offsets[tensor.index] + byte, (value_of[tensor.base], tensor.offset_bytes + byte)


def _by_step(runs: Runs) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for element, first, last in zip(*(a.tolist() for a in runs.touches()), strict=True):
        for step in range(first, last + 1):
            found.setdefault(step, []).append(element)
    return found


def _bytes(elements: list[int] | tuple[()], size: int) -> list[int]:
    return [e * size + b for e in elements for b in range(size)]
