"""SignalFilterBankSquareRoot: the root of each energy, made smaller by what samples were made larger."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.options import CustomOptions
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, node_of
from diagmem.ops.signature import Signature


class SquareRootKind(OpKind):
    """Inputs: energies, by how many bits roots are made smaller."""

    names = ("CUSTOM:SignalFilterBankSquareRoot",)
    takes = Signature((2, 2), numbers=(1,), single=(1,), made=None)
    needs = Fitting(is_drawn_whole=True)

    def encode(self, node: Node) -> CustomOptions:
        return CustomOptions({})

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return (input_at(inputs, 0).shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """How many bits there are is read once, at first."""
        return swept(node, {0: Runs.sweep(node.output.elems), 1: Runs.of(0, 1, 0)})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position == 1:
            return None
        gain = node.output.dtype.size_bytes - node.input(0).dtype.size_bytes
        return separation_of((AxisTerm.even(node.output.elems, gain),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        bits = int(np.asarray(inputs[1]).reshape(-1)[0])
        roots = [_root(int(x)) >> bits if 0 <= bits < 32 else 0 for x in inputs[0].reshape(-1)]
        return (np.array(roots, np.uint32).reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        require_types(DType.UINT64, (node.input(0),))
        require_types(DType.INT32, (node.input(1),))
        require_types(DType.UINT32, (node.output,))
        tensors = node.input(0), node.input(1), node.output
        return kernel_call("signal_square_root", {"elems": node.output.elems}, tensors)

    def sample(self, name: str, draw: Draw) -> Node:
        """Energies of any size."""
        inputs = [activation((draw.integer(1, 40),), DType.UINT64), activation((), DType.INT32)]
        return node_of(self, name, None, inputs, (DType.UINT32,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Small numbers and large ones, also those around which a root changes its width."""
        if position == 1:
            return np.array(rng.integers(0, 16))
        sizes = rng.integers(0, 64, tensor.shape).astype(np.uint64)
        found: Array = rng.integers(0, 2**64, tensor.shape, dtype=np.uint64) >> sizes
        return np.where(rng.integers(0, 8, tensor.shape) == 0, np.uint64(2**32 - 1), found)


def _root(x: int) -> int:
    """Rounded to the nearest, unless that needs one bit more."""
    root = math.isqrt(x)
    largest = 2**16 - 1 if x < 2**32 else 2**32 - 1
    return root + 1 if x - root * root > root and root != largest else root


KIND = SquareRootKind()
