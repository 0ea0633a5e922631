"""A model run in numpy, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph
from diagmem.ops import Unsupported, kind_of, values_of

Array = npt.NDArray[Any]


def run(graph: Graph, inputs: Sequence[Array]) -> dict[int, Array]:
    """The values of all tensors: constants, inputs, and whatever an operation writes."""
    values: dict[int, Array] = dict(zip(graph.inputs, inputs, strict=True))
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
