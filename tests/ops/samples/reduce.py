"""How the tests draw the operations of `reductions/reduce.py`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.reductions.reduce import (
    _CUMSUM_TYPES,
    _FUNCTIONS,
    _WAYS,
    ArgMax,
    ArgMaxKind,
    CumSum,
    CumsumKind,
    Reduce,
    ReduceAllKind,
    ReduceKind,
    ReducingKind,
    WidenedSumKind,
    _count,
    walk_of,
)
from tests.ops.sampling import Draw, Fitting, Samples, activation, ints, node_of


class ReducingSamples(Samples, of=ReducingKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any axes, none, all, named twice or from the end."""
        dtype = DType.BOOL if name in _FUNCTIONS else draw.dtype()
        shape = draw.choice((draw.image(), tuple(draw.many(1, 5, draw.size))))
        axes = draw.many(0, 5, lambda: draw.axis(len(shape)))
        return node_of(self.kind, name, Reduce(draw.boolean()), [activation(shape, dtype), ints(axes)], (dtype,))


class ReduceSamples(ReducingSamples, of=ReduceKind):
    def fitting(self, node: Node) -> Fitting:
        return Fitting(tuple(_WAYS[node.op.kind]), gain={"MEAN": 1.0, "SUM": math.sqrt(_count(node))}.get(node.op.kind))


class WidenedSumSamples(ReducingSamples, of=WidenedSumKind):
    needs = Fitting((DType.INT8, DType.UINT8), draws_output_types=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Real numbers come out."""
        drawn = super().sample(name, draw)
        return replace(drawn, outputs=(replace(drawn.output, dtype=DType.FLOAT32),))


class ReduceAllSamples(ReducingSamples, of=ReduceAllKind):
    needs = Fitting((DType.BOOL,), scaled=())

    def sample_values(self, node: Node, position: int, tensor: Tensor, rng: np.random.Generator) -> Array | None:
        """Mostly what does not decide the answer."""
        if position != 0:
            return None
        count = tensor.elems // max(1, node.output.elems)
        found: Array = rng.random(tensor.shape) < 1 / max(2, count)
        return found if node.op.kind == "REDUCE_ANY" else ~found


class ArgMaxSamples(ReducingSamples, of=ArgMaxKind):
    needs = Fitting(draws_output_types=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Any axis; the indices that come out are wider than what went in."""
        shape = draw.many(1, 5, draw.size)
        out_dtype = draw.choice((DType.INT32, DType.INT64))
        inputs = [activation(shape, draw.dtype()), ints(draw.axis(len(shape)))]
        return node_of(self.kind, name, ArgMax(out_dtype), inputs, (out_dtype,))


class CumsumSamples(Samples, of=CumsumKind):
    def sample(self, name: str, draw: Draw) -> Node:
        """Any axis, either way round, with or without the element itself."""
        shape = draw.many(1, 5, draw.size)
        inputs = [activation(shape, draw.dtype()), ints(draw.axis(len(shape)))]
        return node_of(self.kind, name, CumSum(draw.boolean(), draw.boolean()), inputs, (draw.dtype(),))

    def fitting(self, node: Node) -> Fitting:
        return Fitting(_CUMSUM_TYPES, gain=math.sqrt(walk_of(node)[1]), scaled=(DType.INT8,))
