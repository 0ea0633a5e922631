"""Many operations in one program that have nothing to do with each other: built once, each in a place of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagmem.backends.c.program import Program
from diagmem.model.graph import ABSENT, Graph, Node, Op, Tensor
from diagmem.model.schedule import Schedule
from diagmem.ops.moving.concatenation import Concatenation
from diagmem.planning.plan import Storage

ALIGN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Pair:
    """A node's input that lies `apart_bytes` above one of its outputs."""

    node: Node
    position: int
    output: int
    apart_bytes: int


def side_by_side(pairs: Sequence[Pair]) -> Program:
    """Runs the nodes in turn; op numbers are those of the pairs. What is neither input nor output of a pair lies apart.
    An input that is not in one piece is copied to its place, by an op with a number behind theirs."""
    tensors: list[Tensor] = []
    ops: list[Op] = []
    offsets: dict[int, int] = {}
    inputs: list[int] = []
    end = 0
    for number, pair in enumerate(pairs):
        node, first = pair.node, len(tensors)
        local: dict[int, int] = {}
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and tensor.index not in local:
                own = local[tensor.index] = first + len(local)
                # A part lies where it is put, and not in another tensor of the program.
                view = None if tensor.view is None else replace(tensor.view, base=own)
                tensors.append(replace(tensor, index=own, name=f"{tensor.name} of {len(ops)}", view=view))
        places, end = _places(pair, end)
        offsets |= {local[index]: offset for index, offset in places.items()}
        for tensor in dict.fromkeys(t for _, t in node.activations()):
            own = local[tensor.index]
            if tensor.is_in_one_piece:
                inputs.append(own)
                continue
            inputs.append(len(tensors))
            offsets[len(tensors)] = end
            end = _aligned(end + tensor.size_bytes)
            copy = Op(
                len(ops), "CONCATENATION", (len(tensors),), (own,), Concatenation(axis=-1), origin=len(pairs) + len(ops)
            )
            tensors.append(replace(tensor, index=len(tensors), view=None))
            ops.append(copy)
        wiring = tuple(ABSENT if t is None else local[t.index] for t in node.inputs)
        outputs = tuple(local[t.index] for t in node.outputs)
        ops.append(replace(node.op, index=len(ops), inputs=wiring, outputs=outputs, origin=number))
    whole = next(op.outputs for op in ops if all(tensors[t].is_in_one_piece for t in op.outputs))
    graph = Graph("side_by_side", tuple(tensors), tuple(ops), tuple(inputs), whole)
    storage = {t: Storage.linear(offset, tensors[t].rows, tensors[t].row_bytes) for t, offset in offsets.items()}
    return Program(graph, Schedule.whole(range(len(ops))), storage, {}, end)


def _places(pair: Pair, start: int) -> tuple[dict[int, int], int]:
    """Offsets of a node's tensors from `start` on, by its own indices, and where they end."""
    node, source, target = pair.node, pair.node.input(pair.position), pair.node.outputs[pair.output]
    low = start + _aligned(max(0, -pair.apart_bytes))
    places = {target.index: low, source.index: low + pair.apart_bytes}
    end = max(low + target.span_bytes, low + pair.apart_bytes + source.span_bytes)
    for tensor in (*(t for _, t in node.activations()), *node.outputs):
        if tensor.index not in places:
            places[tensor.index] = _aligned(end)
            end = places[tensor.index] + tensor.span_bytes
    return places, _aligned(end)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES
