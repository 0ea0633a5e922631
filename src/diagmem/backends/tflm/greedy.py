"""The arena as stock TFLM plans it: where its greedy planner puts what a file leaves to it.

Follows TFLM's GreedyMemoryPlanner: offline offsets are taken as they are; the rest is placed largest first, each at
the lowest gap among the buffers that live at the same time. Kernels' scratch is among the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diagmem.kernels import Library
from diagmem.model.graph import Graph

ALIGN_BYTES = 16
"""TFLM rounds every buffer's size up to this."""
ONLINE = -1
"""The offset that leaves a tensor to TFLM."""


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """Where things lie in the head: tensor -> offset, and op -> offset of its kernel's scratch."""

    tensors: dict[int, int]
    scratch: dict[int, int]
    head_bytes: int


@dataclass(frozen=True, slots=True)
class _Buffer:
    """`first`, `last`: TFLM's scopes, closed: 0 before the first op, i + 1 during op i, -1 if nobody uses it."""

    size_bytes: int
    first: int
    last: int
    tensor: int | None = None
    scratch_of: int | None = None


def layout(graph: Graph, offsets: Sequence[int], library: Library) -> HeadLayout:
    """What stock TFLM makes of a plan when it runs the graph's ops in their order with these kernels.

    `offsets`: one for each tensor; for ONLINE, TFLM's planner chooses. Variables left to TFLM do not lie in the head.
    """
    placed: list[tuple[int, _Buffer]] = []
    online: list[_Buffer] = []
    for buffer in (*_tensors(graph, offsets), *_scratch(graph, library)):
        offset = ONLINE if buffer.tensor is None else offsets[buffer.tensor]
        if offset == ONLINE:
            online.append(buffer)
        else:
            placed.append((offset, buffer))
    # Largest first; of equal sizes, TFLM takes the later one first.
    online.reverse()
    online.sort(key=lambda b: -b.size_bytes)
    for buffer in online:
        placed.append((_lowest_gap(buffer, placed), buffer))
    return HeadLayout(
        {b.tensor: offset for offset, b in placed if b.tensor is not None},
        {b.scratch_of: offset for offset, b in placed if b.scratch_of is not None},
        max((offset + b.size_bytes for offset, b in placed), default=0),
    )


def _lowest_gap(buffer: _Buffer, placed: Sequence[tuple[int, _Buffer]]) -> int:
    low = 0
    for offset, other in sorted(placed, key=lambda p: p[0]):
        if other.first <= buffer.last and buffer.first <= other.last:
            if offset - low >= buffer.size_bytes:
                break
            low = max(low, offset + other.size_bytes)
    return low


def _tensors(graph: Graph, offsets: Sequence[int]) -> Iterator[_Buffer]:
    """The tensors in the head. One that nobody uses is planned too, for no time at all."""
    first: dict[int, int] = dict.fromkeys(graph.inputs, 0)
    last = dict(first)
    for scope, op in enumerate(graph.ops, 1):
        for tensor in op.outputs:
            first.setdefault(tensor, scope)
        last.update(dict.fromkeys((*op.inputs, *op.outputs), scope))
    last.update(dict.fromkeys(graph.outputs, len(graph.ops)))
    for t in graph.tensors:
        is_elsewhere = t.is_constant or (t.is_variable and offsets[t.index] == ONLINE)
        if t.size_bytes and not is_elsewhere:
            yield _Buffer(_aligned(t.size_bytes), first.get(t.index, -1), last.get(t.index, -1), tensor=t.index)


def _scratch(graph: Graph, library: Library) -> Iterator[_Buffer]:
    """Scratch by op. TFLM places the requests of one op one by one; taken as one, they never need less."""
    for scope, node in enumerate(graph.nodes, 1):
        size_bytes = library.scratch_bytes(node)
        if size_bytes:
            yield _Buffer(_aligned(size_bytes), scope, scope, scratch_of=node.op.index)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
