"""SignalDelay: samples as they were some time ago."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signal._own_state import remembering, state
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Delay:
    """Input: rows of samples. `length`: by how many samples each row lags behind."""

    length: int = 0


class DelayKind(OpKind):
    names = ("CUSTOM:SignalDelay",)
    keeps_state = True
    takes = Signature((1, 2))
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Delay, ("delay_length",))

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """What is still to come out, row by row; one sample, which nobody looks at, where nothing is put off."""
        return (state("delayed", (max(1, _rows(node) * node.attributes.length),), DType.INT16),)

    def output_shapes(self, name: str, attributes: Delay, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape = input_at(inputs, 0).shape
        if not shape or attributes.length < 0:
            raise ModelError(f"a delay of {list(shape)} by {attributes.length} samples; the file is damaged")
        return (shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems = node.output.elems
        reads = [Runs.sweep(elems), *(Runs.of(0, t.elems, 0, stride=0, hold=elems + 1) for _, t in _states(node))]
        return Accesses(elems + 1, tuple(reads), (Runs.sweep(elems),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        rows, length = _rows(node), node.attributes.length
        if not length:
            return inputs[0], inputs[1]
        both = np.concatenate([inputs[1].reshape(rows, length), inputs[0].reshape(rows, -1)], axis=1)
        size = both.shape[1] - length
        return both[:, :size].reshape(node.output.shape), both[:, size:].reshape(-1)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.output))
        values = {"rows": _rows(node), "size": node.input(0).shape[-1], "length": node.attributes.length}
        return kernel_call("signal_delay", values, (node.input(0), node.input(1), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Shorter and longer than a row."""
        shape = (*draw.many(0, 3, draw.small), draw.integer(1, 12))
        delay = Delay(draw.integer(0, 20))
        return remembering(self, node_of(self, name, delay, [activation(shape, DType.INT16)], (DType.INT16,)))


def _rows(node: Node) -> int:
    return math.prod(node.input(0).shape[:-1])


def _states(node: Node) -> Sequence[tuple[int, Tensor]]:
    return [(position, tensor) for position, tensor in node.activations() if position]


KIND = DelayKind()
