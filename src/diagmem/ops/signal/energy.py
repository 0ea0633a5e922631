"""SignalEnergy: the energy of each frequency of a spectrum."""

from __future__ import annotations

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
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Energy:
    """Input: real and imaginary part of each frequency in turn. Frequencies from `start` to before `end` are asked for;
    the others are 0 here, and are not written at all by TensorFlow Lite Micro."""

    start: int = 0
    end: int = 0


class EnergyKind(OpKind):
    names = ("CUSTOM:SignalEnergy",)
    takes = Signature(made=None)
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Energy, ("start_index", "end_index"))

    def output_shapes(self, name: str, attributes: Energy, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        *outer, size = input_at(inputs, 0).shape
        if outer or size % 2 or not 0 <= attributes.start <= attributes.end <= size // 2:
            raise ModelError(
                f"a spectrum of shape {[*outer, size]} has no frequencies {attributes.start} to {attributes.end}; "
                "the file is damaged"
            )
        return ((size // 2,),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        elems, a = node.output.elems, node.attributes
        frequency = np.arange(a.start, a.end)
        return Accesses(elems, (Runs.of(2 * frequency, 2, frequency, stride=0),), (Runs.sweep(elems),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        energy = (inputs[0].reshape(-1, 2).astype(np.int64) ** 2).sum(axis=1)
        frequency = np.arange(len(energy))
        inside = (frequency >= node.attributes.start) & (frequency < node.attributes.end)
        return (np.where(inside, energy, 0).astype(np.uint32),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0),))
        require_types(DType.UINT32, (node.output,))
        fields = {"elems": node.output.elems, "start": node.attributes.start, "end": node.attributes.end}
        return kernel_call("signal_energy", fields, (node.input(0), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """All frequencies, or some of them."""
        size = draw.integer(1, 40)
        start = draw.choice((0, draw.integer(0, size)))
        end = size if start == 0 else draw.integer(start, size + 1)
        return node_of(self, name, Energy(start, end), [activation((2 * size,), DType.INT16)], (DType.UINT32,))


KIND = EnergyKind()
