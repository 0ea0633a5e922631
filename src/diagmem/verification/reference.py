"""A model run in numpy, operation by operation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph
from diagmem.ops import Unsupported, kind_of, values_of

Array = npt.NDArray[Any]


def runs(graph: Graph, inputs: Iterable[Sequence[Array]], restarts: Collection[int] = ()) -> Iterator[dict[int, Array]]:
    """The values of all tensors after each of several runs in a row. `restarts`: the runs before which the state is set
    to its first value, besides the first one."""
    state: dict[int, Array] = {}
    for number, given in enumerate(inputs):
        values = run(graph, given, {} if number in restarts else state)
        state = {tensor.index: values[tensor.index] for tensor in graph.variables}
        yield values


def run(graph: Graph, inputs: Sequence[Array], state: Mapping[int, Array] | None = None) -> dict[int, Array]:
    """The values of all tensors: constants, inputs, and whatever an operation writes. `state`: what variables are, if
    not what they are at first."""
    values: dict[int, Array] = {tensor.index: tensor.first_values for tensor in graph.variables}
    values.update({**(state or {}), **dict(zip(graph.inputs, inputs, strict=True))})
    for node in graph.nodes:
        kind = kind_of(node.op.kind)
        try:
            if kind is None:
                raise Unsupported("diagmem does not know this operation")
            for tensor in node.inputs:
                if tensor is not None and tensor.is_constant:
                    values[tensor.index] = values_of(tensor)
            outputs = kind.reference(node, [None if i == ABSENT else values[i] for i in node.op.inputs])
        except Unsupported as reason:
            raise ModelError(f"{node.label}: {reason}; it cannot be verified") from reason
        written = (*node.op.outputs, *(node.op.inputs[p] for p in kind.states(node)))
        values.update(zip(written, outputs, strict=True))
    return values
