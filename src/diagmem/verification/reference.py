"""A model run in numpy, operation by operation, and when two results are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph, Node
from diagmem.ops import Unsupported, kind_of
from diagmem.ops.c_call import values_of
from diagmem.transforms.cleanup import drop_dead

Array = npt.NDArray[Any]

Reference = Callable[[Node, Sequence[Array | None]], tuple[Array, ...]]
"""What a node computes from the values of its inputs."""


def runs(
    graph: Graph,
    inputs: Iterable[Sequence[Array]],
    restarts: Collection[int] = (),
    instead: Mapping[int, Reference] | None = None,
) -> Iterator[dict[int, Array]]:
    """The values of all tensors after each of several runs in a row. `restarts`: the runs before which the state is set
    to its first value, besides the first one."""
    state: dict[int, Array] = {}
    for number, given in enumerate(inputs):
        values = run(graph, given, instead, {} if number in restarts else state)
        state = {tensor.index: values[tensor.index] for tensor in graph.variables}
        yield values


def run(
    graph: Graph,
    inputs: Sequence[Array],
    instead: Mapping[int, Reference] | None = None,
    state: Mapping[int, Array] | None = None,
) -> dict[int, Array]:
    """The values of all tensors: constants, inputs, and whatever an operation writes. `instead`: ops, by their index,
    that are computed in another way than their kind's. `state`: what variables are, if not what they are at first. An
    op that nobody knows, and on which no output depends, is passed over, with all that reads from it: no plan needs to
    keep it."""
    values: dict[int, Array] = {tensor.index: tensor.first_values for tensor in graph.variables}
    values.update({**(state or {}), **dict(zip(graph.inputs, inputs, strict=True))})
    # The caller may be handed a constant.
    values.update({t: values_of(graph.tensors[t]) for t in graph.outputs if graph.tensors[t].is_constant})
    unknown: set[int] = set()
    for node in graph.nodes:
        if unknown.intersection(node.op.inputs):
            unknown.update(node.op.outputs)
            continue
        kind = kind_of(node.op.kind)
        try:
            if kind is None:
                raise Unsupported("diagmem does not know this operation")
            for tensor in node.inputs:
                if tensor is not None and tensor.is_constant:
                    values[tensor.index] = values_of(tensor)
            way = (instead or {}).get(node.op.index, kind.reference)
            outputs = way(node, [None if i == ABSENT else values[i] for i in node.op.inputs])
        except Unsupported as reason:
            if _is_dead(graph, node):
                unknown.update(node.op.outputs)
                continue
            raise ModelError(f"{node.label}: {reason}; it cannot be verified") from reason
        written = (*node.op.outputs, *(node.op.inputs[p] for p in kind.states(node)))
        values.update(zip(written, outputs, strict=True))
    return values


def _is_dead(graph: Graph, node: Node) -> bool:
    """Whether an op makes nothing that an output depends on, and does nothing else."""
    return node.op.number not in {op.number for op in drop_dead(graph, lambda op: True).ops}


def differing(got: Array, wanted: Array) -> npt.NDArray[np.bool_]:
    """Which elements of two flat arrays of one type differ. IEEE 754 leaves open which bits a NaN has that comes out of
    an operation, and processors differ in it: where both are NaN they are equal."""
    size = got.dtype.itemsize
    bits = (got.view(np.uint8) != wanted.view(np.uint8)).reshape(len(got), size).any(axis=1)
    if got.dtype.kind == "f":
        bits &= ~(np.isnan(got) & np.isnan(wanted))
    found: npt.NDArray[np.bool_] = bits
    return found
