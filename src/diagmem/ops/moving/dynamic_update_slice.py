"""DYNAMIC_UPDATE_SLICE: the input with a part of it replaced, where the part begins is an input too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor, row_major_strides
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, Unsupported, element_code, joined_axes, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, input_at
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, activation, constant, ints, node_of
from diagmem.ops.signature import Signature

MOST_AXES = 6
"""How many axes `dynamic_update_slice.c` walks over."""


class DynamicUpdateSliceKind(OpKind):
    """Inputs: data, the new part, where it begins. A part that would reach out of the data is moved inside."""

    names = ("DYNAMIC_UPDATE_SLICE",)
    takes = Signature((3, 3), alike=(1,), numbers=(2,))

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        shape, part = input_at(inputs, 0).shape, input_at(inputs, 1).shape
        if len(shape) != len(part) or any(b > a for a, b in zip(shape, part, strict=True)):
            raise ModelError(f"{list(part)} is no part of {list(shape)}; the file is damaged")
        begin = input_at(inputs, 2).shape
        if begin != (len(shape),):
            raise ModelError(f"a part of {len(shape)} axes begins at indices {list(begin)}; the file is damaged")
        return (shape,)

    def accesses(self, node: Node, order: Order) -> Accesses:
        """First it reads where the part begins, then it copies all, then the part, which may lie anywhere."""
        whole, part = node.output.elems, node.input(1).elems
        steps = 1 + whole + part
        reads = (Runs.of(0, whole, 1), Runs.of(0, part, 1 + whole), Runs.of(0, node.input(2).elems, 0, stride=0))
        known = (None if node.input(p).is_constant else runs for p, runs in enumerate(reads))
        anywhere = Runs.of(0, whole if part else 0, 1 + whole, stride=0, hold=max(1, part))
        return Accesses(steps, tuple(known), (Runs.join(Runs.of(0, whole, 1), anywhere),))

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        whole, part = node.output.elems, node.input(1).elems
        if position == 0:
            return 0 if whole > 1 else None
        return node.output.size_bytes if position == 1 and part and whole else None

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        data, part, begin = inputs
        room = np.array(data.shape, np.int64) - part.shape
        first = np.clip(begin.astype(np.int64), 0, room)
        found: Array = data.copy()
        found[tuple(slice(b, b + size) for b, size in zip(first.tolist(), part.shape, strict=True))] = part
        return (found,)

    def c_call(self, node: Node) -> CCall:
        data, part, begin = (node.input(p) for p in range(3))
        require_types(node.output.dtype, (data, part))
        if begin.dtype not in (DType.INT32, DType.INT64):
            raise Unsupported(f"{begin.dtype.value} indices; supported: int32, int64")
        rank, element = len(data.shape), node.output.dtype.size_bytes
        if rank > MOST_AXES:
            raise Unsupported(f"{rank} axes; at most {MOST_AXES} are supported")
        (size,) = joined_axes(MOST_AXES, ())
        fields = {
            "element": element,
            "axes": rank,
            "index_type": element_code(begin.dtype),
            "size": (*data.shape, *size[rank:]),
            "part": (*part.shape, *size[rank:]),
            "step": (*(s * element for s in row_major_strides(data.shape)), *[0] * (MOST_AXES - rank)),
        }
        return kernel_call("dynamic_update_slice", fields, (data, part, begin, node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Parts of any size, which begin anywhere, also outside; each input may be constant but the data."""
        shape, dtype = draw.shape(least_axes=1), draw.dtype()
        part = [draw.integer(1, size + 1) for size in shape]
        begin = ints([draw.integer(-1, size + 1) for size in shape])
        second = draw.choice((activation, constant))(part, dtype)
        third = begin if draw.boolean() else activation((len(shape),), DType.INT32)
        return node_of(self, name, None, [activation(shape, dtype), second, third], (dtype,))

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Where a part begins."""
        return rng.integers(-1, 5, tensor.shape) if position == 2 else None


KIND = DynamicUpdateSliceKind()
