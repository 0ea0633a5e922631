"""SignalFftAutoScale: samples made as large as 16 bits allow, and by how many bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.options import CustomOptions
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature


class AutoScaleKind(OpKind):
    """Input: samples. Outputs: samples, and how many bits they were shifted to the left by."""

    names = ("CUSTOM:SignalFftAutoScale",)
    tflm_agrees = True
    takes = Signature((1, 1), (2, 2), made=None)
    needs = Fitting(is_drawn_whole=True)

    def encode(self, node: Node) -> CustomOptions:
        return CustomOptions({})

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return input_at(inputs, 0).shape, ()

    def accesses(self, node: Node, order: Order) -> Accesses:
        """All is read, then each element is read and written, then the number of bits is written."""
        elems = node.input(0).elems
        reads = Runs.join(Runs.of(0, elems, 0, stride=0), Runs.of(0, elems, 1))
        return Accesses(elems + 2, (reads,), (Runs.of(0, elems, 1), Runs.of(0, 1, elems + 1)))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return separation_of((AxisTerm.even(node.input(0).elems, 0),)) if output == 0 else None

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        samples = inputs[0].astype(np.int64)
        bits = max(0, 15 - int(np.abs(samples).max()).bit_length())
        return (samples << bits).astype(np.int16), np.array(bits, np.int32)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.INT16, (node.input(0), node.outputs[0]))
        require_types(DType.INT32, (node.outputs[1],))
        return kernel_call("signal_auto_scale", {"elems": node.input(0).elems}, (node.input(0), *node.outputs))

    def sample(self, name: str, draw: Draw) -> Node:
        """Samples of any size."""
        samples = activation((draw.integer(1, 60),), DType.INT16)
        return node_of(self, name, None, [samples], (DType.INT16, DType.INT32))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Loud ones and soft ones."""
        largest = 1 << int(rng.integers(1, 16))
        found: Array = rng.integers(-largest, largest, tensor.shape)
        return found


KIND = AutoScaleKind()
