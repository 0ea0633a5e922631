"""Weights and state in the narrow type that the file stores, or that holds all their values.

Streaming converters quantise a network but leave its variables in float32: what is read is concatenated with new data
and quantised, and a part of that is dequantised to be assigned. Dequantising and quantising by the same scale changes
no value, so the detour through float32 can go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Op, Tensor
from diagmem.ops import Activation, kind_of, kinds
from diagmem.ops.kind import Array
from diagmem.transforms._editing import Choice, edited, is_seen_by_caller

NARROW = (DType.FLOAT16, DType.INT8)
REAL = {DType.FLOAT32}


def narrow_weights(graph: Graph, choice: Choice) -> Graph:
    """DEQUANTIZE of a constant goes if every reader is a layer that takes the weights as they are stored. Results are
    the same bit for bit, since the same numbers are multiplied."""
    instead: dict[int, int] = {}
    gone: list[int] = []
    for node in graph.nodes:
        if node.op.kind != "DEQUANTIZE" or not choice(node.op) or is_seen_by_caller(graph, node.output.index):
            continue
        stored = _stored(graph, node.input(0))
        readers = [graph.nodes[op] for op in graph.consumers.get(node.output.index, ())]
        if stored is not None and readers and all(_takes(reader, node.output, stored) for reader in readers):
            instead[node.output.index] = stored.index
            gone.append(node.op.index)
    return edited(graph, without=gone, instead=instead) if gone else graph


def _stored(graph: Graph, tensor: Tensor) -> Tensor | None:
    """The constant itself, or the one that DENSIFY makes dense."""
    maker = _maker(graph, tensor, "DENSIFY")
    found = tensor if maker is None else maker.input(0)
    return found if found.is_constant and found.data is not None and found.dtype in NARROW else None


def _takes(reader: Node, wide: Tensor, stored: Tensor) -> bool:
    """Whether there is a kernel for the layer with the weights as they are stored."""
    kind, positions = kind_of(reader.op.kind), [p for p, t in enumerate(reader.op.inputs) if t == wide.index]
    if kind is None or kind.takes.weights is None or positions != [kind.takes.weights.filter]:
        return False
    if {reader.input(0).dtype, reader.output.dtype} != REAL:
        return False
    try:
        # The bias does not matter here; an operation that has not been folded yet may make it.
        kind.c_call(replace(reader, inputs=(reader.inputs[0], stored)))
    except ModelError:
        return False
    return True


STORED = (DType.INT8, DType.INT16)


@dataclass(frozen=True, slots=True)
class _Way:
    """From a variable back to it: read, joined, quantised; dequantised, assigned. `sources`: float32 parts that are
    joined -> the integers that they are dequantised from."""

    variable: Tensor
    read: Node
    joined: Node
    quantised: Node
    dequantised: Node
    assigned: Node
    sources: dict[int, int]


def narrow_state(graph: Graph, choice: Choice) -> Graph:
    """Variables, and the op that joins what is read with new data, work on integers; QUANTIZE behind it, and DEQUANTIZE
    before the assignment and before the new data, are gone."""
    tensors: list[Tensor] = []
    ops: dict[int, Op] = {}
    gone: set[int] = set()
    for way in _ways(graph):
        real_parts = {graph.producer[t] for t in way.sources if graph.consumers[t] == (way.joined.op.index,)}
        removed = {way.quantised.op.index, way.dequantised.op.index}
        if not all(choice(graph.ops[op]) for op in removed):
            continue
        stored = way.quantised.output
        first = quantised_values(way.variable.first_values, stored)
        tensors.append(
            replace(way.variable, dtype=stored.dtype, quantisation=stored.quantisation, initial=first, data=None)
        )
        tensors.append(replace(way.read.output, dtype=stored.dtype, quantisation=stored.quantisation))
        joined, assigned = way.joined.op, way.assigned.op
        inputs = tuple(way.sources.get(t, t) for t in joined.inputs)
        ops[joined.index] = replace(joined, inputs=inputs, outputs=way.quantised.op.outputs)
        ops[assigned.index] = replace(assigned, inputs=way.dequantised.op.inputs)
        gone |= removed | {op for op in real_parts if choice(graph.ops[op])}
    return edited(graph, without=gone, ops=ops, tensors=tensors) if gone else graph


def quantised_values(values: Array, like: Tensor) -> Array:
    """Float32 values, quantised like a tensor."""
    data = Tensor(0, "real", values.shape, DType.FLOAT32)
    node = Node(Op(0, "QUANTIZE", (0,), (1,)), (data,), (replace(like, index=1, shape=values.shape, view=None),))
    with np.errstate(all="ignore"):
        return kinds()["QUANTIZE"].reference(node, (values.astype(np.float32),))[0]


def _ways(graph: Graph) -> Iterator[_Way]:
    for variable in graph.variables:
        ends = _read_and_assigned(graph, variable)
        way = None if ends is None else _way(graph, variable, *ends)
        if way is not None and _comes_back(way):
            yield way


def _read_and_assigned(graph: Graph, variable: Tensor) -> tuple[Node, Node] | None:
    """The one op that reads it and the one that writes it, if there is no other."""
    touching = [node for node in graph.nodes if variable.index in (*node.op.inputs, *node.op.outputs)]
    is_plain = variable.dtype is DType.FLOAT32 and variable.view is None and variable.index not in graph.families
    if not is_plain or [node.op.kind for node in touching] != ["READ_VARIABLE", "ASSIGN_VARIABLE"]:
        return None
    return touching[0], touching[1]


def _way(graph: Graph, variable: Tensor, read: Node, assigned: Node) -> _Way | None:
    joined = _only_reader(graph, read.output, "CONCATENATION")
    quantised = None if joined is None else _only_reader(graph, joined.output, "QUANTIZE")
    real = _maker(graph, assigned.input(0), "DEQUANTIZE")
    if joined is None or quantised is None or real is None or joined.attributes.activation is not Activation.NONE:
        return None
    if _only_reader(graph, real.output, "ASSIGN_VARIABLE") is None or not _is_like(real.input(0), quantised.output):
        return None
    sources: dict[int, int] = {}
    for part in (t for t in joined.inputs if t is not None and t.index != read.output.index):
        made = _maker(graph, part, "DEQUANTIZE")
        if made is None or made.input(0).is_constant or not _is_like(made.input(0), quantised.output):
            return None
        sources[part.index] = made.input(0).index
    return _Way(variable, read, joined, quantised, real, assigned, sources)


def _only_reader(graph: Graph, tensor: Tensor, kind: str) -> Node | None:
    """The only op that reads a tensor, if it is of this kind and the caller does not see the tensor."""
    readers = graph.consumers.get(tensor.index, ())
    if len(readers) != 1 or is_seen_by_caller(graph, tensor.index) or tensor.view is not None:
        return None
    node = graph.nodes[readers[0]]
    return node if node.op.kind == kind else None


def _maker(graph: Graph, tensor: Tensor, kind: str) -> Node | None:
    node = graph.nodes[graph.producer[tensor.index]] if tensor.index in graph.producer else None
    return node if node is not None and node.op.kind == kind else None


def _is_like(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are quantised in the same way, by one scale."""
    found = one.quantisation
    is_known = one.dtype in STORED and found is not None and not found.per_channel
    return is_known and (one.dtype, found) == (other.dtype, other.quantisation)


def _comes_back(way: _Way) -> bool:
    """Whether every integer survives being dequantised and quantised."""
    stored = way.quantised.output
    info = np.iinfo(stored.dtype.numpy)
    every = np.arange(info.min, info.max + 1).astype(stored.dtype.numpy)
    shapes = [replace(t, shape=every.shape) for t in (way.dequantised.input(0), way.dequantised.output)]
    node = replace(way.dequantised, inputs=(shapes[0],), outputs=(shapes[1],))
    with np.errstate(all="ignore"):
        (real,) = kinds()["DEQUANTIZE"].reference(node, (every,))
    return bool(np.array_equal(quantised_values(real, stored), every))
