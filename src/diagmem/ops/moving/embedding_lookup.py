"""EMBEDDING_LOOKUP: rows of a table, picked by index; a table of 8-bit integers may become real numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagmem.model.graph import DType, Node, Shape, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import CCall, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, OpKind, Values, held_separation, input_at, swept
from diagmem.ops.loops.pixels import AxisTerm, separation_of
from diagmem.ops.numerics.quantised import channel_scales
from diagmem.ops.orders import Order
from diagmem.ops.sampling import Draw, Fitting, activation, constant, node_of
from diagmem.ops.signature import Signature


class EmbeddingLookupKind(OpKind):
    """Inputs: indices, the table, which is a constant as a rule."""

    names = ("EMBEDDING_LOOKUP",)
    takes = Signature((2, 2), data=1, numbers=(0,), made={DType.INT8: (DType.INT8, DType.FLOAT32)})

    def output_shapes(self, name: str, attributes: None, inputs: Sequence[Tensor | None]) -> tuple[Shape, ...]:
        return ((input_at(inputs, 0).elems, *input_at(inputs, 1).shape[1:]),)

    def accesses(self, node: Node, order: Order) -> Accesses:
        return swept(node, {0: Runs.of(0, node.input(0).elems, 0, stride=_run(node))})

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        if position != 0:
            return held_separation(node)
        gain = _run(node) * node.output.dtype.size_bytes - node.input(0).dtype.size_bytes
        return separation_of((AxisTerm.even(node.input(0).elems, gain),))

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        indices, table = inputs
        rows = table[np.clip(indices.reshape(-1), 0, len(table) - 1)]
        if node.output.dtype is DType.FLOAT32 and table.dtype == np.int8:
            rows = rows.astype(np.float32) * np.float32(_scale(node))
        return (rows.reshape(node.output.shape),)

    def c_call(self, node: Node) -> CCall:
        indices, table = node.input(0), node.input(1)
        require_types(DType.INT32, (indices,))
        is_widened = table.dtype is DType.INT8 and node.output.dtype is DType.FLOAT32
        if not is_widened:
            require_types(node.output.dtype, (table,))
        fields = {
            "rows": table.shape[0],
            "picks": indices.elems,
            "run": _run(node),
            "element": node.output.dtype.size_bytes,
            "scale": _scale(node) if is_widened else 0.0,
        }
        return kernel_call("embedding_lookup", fields, (indices, table, node.output))

    def sample(self, name: str, draw: Draw) -> Node:
        """Tables in flash, now and then in RAM."""
        table = (draw.size(), *draw.many(1, 4, draw.small))
        place = draw.choice((constant, constant, activation))
        inputs = [activation((draw.size(),), DType.INT32), place(table, draw.dtype())]
        return node_of(self, name, None, inputs, (draw.choice((DType.INT8, DType.FLOAT32)),))

    def fitting(self, node: Node) -> Fitting:
        """To real numbers from real numbers or 8-bit integers, to 8-bit integers from such."""
        types = (DType.INT8, DType.FLOAT32) if node.output.dtype is DType.FLOAT32 else (DType.INT8,)
        return Fitting(types, data=1, draws_output_types=True)

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Indices inside the table."""
        return rng.integers(0, node.input(1).shape[0], tensor.shape) if position == 0 else None


def _run(node: Node) -> int:
    """The elements of a row."""
    return node.input(1).elems // node.input(1).shape[0]


def _scale(node: Node) -> float:
    """TFLite Micro takes the zero point of such a table to be 0, whatever the file says."""
    found = node.input(1).quantisation
    if found is None or len(set(channel_scales(node.input(1), 0) if not any(found.zero_points) else found.scales)) > 1:
        raise Unsupported("a table of 8-bit integers without one scale")
    return found.scales[0]


KIND = EmbeddingLookupKind()
