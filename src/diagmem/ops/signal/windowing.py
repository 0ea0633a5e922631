"""SignalWindow: each sample of a frame times its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, CTable, Unsupported, kernel_call, require_types, values_of
from diagmem.ops.kind import Array, OpKind, Values, held_separation, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.options import CustomTable
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant_of, node_of
from diagmem.ops.signature import Signature


@dataclass(frozen=True, slots=True)
class Window:
    """Inputs: frames, a weight for each sample of a frame. `shift`: bits by which products are made smaller."""

    shift: int = 0


class WindowKind(OpKind):
    names = ("CUSTOM:SignalWindow",)
    tflm_agrees = True
    takes = Signature((2, 2), alike=(1,))
    needs = Fitting(is_drawn_whole=True)
    table = CustomTable(Window, ("shift",))

    def output_shapes(self, name: str, attributes: Window, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        frames, weights = input_at(inputs, 0), input_at(inputs, 1)
        if weights.elems == 0 or frames.elems % weights.elems:
            raise ModelError(f"{weights.elems} weights do not suit {frames.elems} samples; the file is damaged")
        return (frames.shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.sweep(node.output.elems)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return separation_of((AxisTerm.even(node.output.elems, 0),)) if position == 0 else held_separation(node)

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        frames, weights = inputs
        products = (frames.astype(np.int64).reshape(-1, weights.size) * weights.reshape(-1)) >> node.attributes.shift
        return (np.clip(products, -(2**15), 2**15 - 1).astype(np.int16).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.input(1), node.output))
        if not 0 <= node.attributes.shift < 32:
            raise Unsupported(f"a shift by {node.attributes.shift} bits; supported: 0 to 31")
        weights = values_of(node.input(1)).reshape(-1)
        fields = {
            "frames": node.output.elems // weights.size,
            "size": weights.size,
            "shift": node.attributes.shift,
            "weights": CTable("weights", weights),
        }
        return kernel_call("signal_window", fields, (node.input(0), node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """One frame or several, any weights."""
        size = draw.integer(1, 40)
        weights = constant_of(draw.numbers(np.int16, (size,)))
        frames = activation((*draw.many(0, 2, draw.small), size), DType.INT16)
        return node_of(self, name, Window(draw.integer(8, 17)), [frames, weights], (DType.INT16,))


KIND = WindowKind()
