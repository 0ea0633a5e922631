"""Graphs run in numpy: as whole arrays, and in one arena as a plan has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import ABSENT, Graph, Node, places
from diagmem.ops import kind_of
from diagmem.planning.plan import Plan

Array = npt.NDArray[Any]


def with_values(graph: Graph, seed: int = 0) -> Graph:
    """The graph with small random weights for its constants that have none."""
    random = np.random.default_rng(seed)
    return replace(
        graph,
        tensors=tuple(
            replace(t, data=random.integers(-3, 4, t.shape).astype(t.dtype.numpy))
            if t.is_constant and t.data is None
            else t
            for t in graph.tensors
        ),
    )


def random_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    tensors = [graph.tensors[t] for t in graph.inputs]
    return [random.integers(-9, 10, t.shape).astype(t.dtype.numpy) for t in tensors]


def run_whole(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The graph's outputs, every tensor an array of its own."""
    values: dict[int, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        given = [None if t == ABSENT else _value(graph, t, values) for t in node.op.inputs]
        values.update(zip(node.op.outputs, _outputs(node, given), strict=True))
    return [values[t] for t in graph.outputs]


def run_in_a_row(plan: Plan, inputs: Iterable[Sequence[Array]]) -> Iterator[list[Array]]:
    """The outputs of several runs in one arena, in which only the state is left as it was from one to the next."""
    noise, states = np.random.default_rng(1), plan.graph.variables
    kept = {tensor.index: tensor.first_values for tensor in states}
    for given in inputs:
        arena = noise.integers(0, 256, plan.arena_bytes, dtype=np.uint8)
        for index, value in kept.items():
            _store(plan, arena, index, value)
        yield _run(plan, arena, given)
        kept = {tensor.index: _load(plan, arena, tensor.index) for tensor in states}


def run_planned(plan: Plan, inputs: Sequence[Array]) -> list[Array]:
    """The graph's outputs, run in the plan's order with every tensor where the plan has it. What is not written yet is
    noise."""
    return _run(plan, np.random.default_rng(1).integers(0, 256, plan.arena_bytes, dtype=np.uint8), inputs)


def _run(plan: Plan, arena: Array, inputs: Sequence[Array]) -> list[Array]:
    graph = plan.graph
    for index, value in zip(graph.inputs, inputs, strict=True):
        _store(plan, arena, index, value)
    for op in plan.schedule.ops:
        node = graph.nodes[op]
        given = [None if t == ABSENT else _load(plan, arena, t) for t in node.op.inputs]
        for index, value in zip(node.op.outputs, _outputs(node, given), strict=True):
            _store(plan, arena, index, value)
    return [_load(plan, arena, t) for t in graph.outputs]


def _outputs(node: Node, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    kind = kind_of(node.op.kind)
    assert kind is not None
    found = kind.reference(node, inputs)
    assert [v.shape for v in found] == [t.shape for t in node.outputs]
    return found


def _value(graph: Graph, tensor: int, values: Mapping[int, Array]) -> Array:
    constant = graph.tensors[tensor].data
    return values[tensor] if constant is None else constant


def _addresses(plan: Plan, index: int) -> npt.NDArray[np.int64]:
    tensor = plan.graph.tensors[index]
    size = tensor.dtype.size_bytes
    found = plan.offsets[index] + places(tensor.shape, tensor.strides) * size
    return (found[:, None] + np.arange(size)).reshape(-1)


def _load(plan: Plan, arena: Array, index: int) -> Array:
    tensor = plan.graph.tensors[index]
    if tensor.data is not None:
        return tensor.data
    return np.ascontiguousarray(arena[_addresses(plan, index)]).view(tensor.dtype.numpy).reshape(tensor.shape)


def _store(plan: Plan, arena: Array, index: int, value: Array) -> None:
    arena[_addresses(plan, index)] = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
