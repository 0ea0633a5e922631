"""Pointwise operations that together are a function of one 8-bit tensor become a table of its 256 results.

Exact, because every value is tried with the operations themselves. Quantisers leave activations in float32, or write
them in several operations: x * sigmoid(x), for instance, or a GELU. Their tensors, and their arithmetic, are gone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Tensor
from diagmem.ops import kind_of
from diagmem.ops.elementwise.lookup import LOOKUP, Lookup
from diagmem.ops.kind import Array
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller


def tabulate(graph: Graph, choice: Choice) -> Graph:
    """Of nested groups of operations the largest is taken. At least two operations become one."""
    gone: set[int] = set()
    tables = {}
    for node in reversed(graph.nodes):
        if node.op.index in gone or not _is_tried(node) or not _is_8_bit(node.output):
            continue
        for source, group in _groups(graph, node, choice):
            results = _results(graph, source, group)
            if results is not None:
                attributes = Lookup(results.tobytes())
                tables[node.op.index] = replace(node.op, kind=LOOKUP, inputs=(source.index,), attributes=attributes)
                gone |= group - {node.op.index}
                break
    for op in [op for op in gone if graph.ops[op].kind == "DEQUANTIZE"]:
        made = graph.ops[op].outputs[0]
        if is_seen_by_caller(graph, made) or not {*gone, *tables}.issuperset(graph.consumers[made]):
            gone.remove(op)
    return edited(graph, without=gone, ops=tables) if tables else graph


def _is_8_bit(tensor: Tensor) -> bool:
    return tensor.dtype is DType.INT8 and tensor.quantisation is not None and _is_whole(tensor)


def _is_whole(tensor: Tensor) -> bool:
    return tensor.view is None and not tensor.is_variable


def _is_tried(node: Node) -> bool:
    """Whether each element is made of those at its place, and of constants that are the same everywhere."""
    kind = kind_of(node.op.kind)
    if kind is None or not kind.is_pointwise or not kind.keeps_channels(node) or len(node.outputs) != 1:
        return False
    given = [t for t in node.inputs if t is not None]
    in_ram = [t for t in given if not t.is_constant]
    is_known = all(t.data is not None and t.elems == 1 for t in given if t.is_constant)
    return is_known and bool(in_ram) and all(t.shape == node.output.shape for t in in_ram)


def _groups(graph: Graph, last: Node, choice: Choice) -> list[tuple[Tensor, set[int]]]:
    """Groups of operations that end with `last` and read one 8-bit tensor, the largest first. What they make is read by
    them alone, but for what is only dequantised."""
    group, found = {last.op.index}, []
    while all(choice(graph.ops[op]) for op in group):
        read = {t.index: t for op in group for t in graph.nodes[op].inputs if t is not None and not t.is_constant}
        open_ends = [t for t in read.values() if graph.producer.get(t.index) not in group]
        if len(group) > 1 and len(open_ends) == 1 and _is_8_bit(open_ends[0]):
            found.append((open_ends[0], set(group)))
        makers = [graph.producer[t.index] for t in open_ends if _can_grow(graph, t, group)]
        if not makers:
            break
        group.add(max(makers))
    return found[::-1]


def _can_grow(graph: Graph, tensor: Tensor, group: set[int]) -> bool:
    """DEQUANTIZE may have other readers, too; it stays for them, and so does what it reads."""
    if tensor.index not in graph.producer or not _is_whole(tensor) or tensor.index in graph.families:
        return False
    maker, readers = graph.nodes[graph.producer[tensor.index]], graph.consumers.get(tensor.index, ())
    stays = {op for op in readers if op != max(group) and _is_read_outside(graph, graph.ops[op].outputs[0], group)}
    is_inner = not stays and not _is_read_outside(graph, tensor.index, group)
    return _is_tried(maker) and (is_inner or maker.op.kind == "DEQUANTIZE")


def _is_read_outside(graph: Graph, tensor: int, group: set[int]) -> bool:
    return is_seen_by_caller(graph, tensor) or not group.issuperset(graph.consumers.get(tensor, ()))


def _results(graph: Graph, source: Tensor, group: set[int]) -> Array | None:
    values: dict[int, Array] = {source.index: np.arange(-128, 128, dtype=np.int8)}
    found = values[source.index]
    for op in sorted(group):
        node = graph.nodes[op]
        inputs = tuple(t and replace(t, shape=(1 if t.is_constant else 256,)) for t in node.inputs)
        given = [t and (t.data.reshape(1) if t.data is not None else values[t.index]) for t in node.inputs]
        kind, row = kind_of(node.op.kind), Node(node.op, inputs, (replace(node.output, shape=(256,)),))
        assert kind is not None
        try:
            (found,) = kind.reference(row, given)
        except ModelError:
            return None
        values[node.output.index] = found
    return found
