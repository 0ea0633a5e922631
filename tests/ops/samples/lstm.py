"""How the tests draw the operations of `recurrent/lstm.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Quantisation, Shape, Tensor
from diagmem.ops.options import Activation
from diagmem.ops.recurrent.lstm import _INPUTS, CELL, GATES, HIDDEN, Lstm, LstmKind, _Sizes
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of


class LstmSamples(Samples, of=LstmKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """Both layouts, with and without clipping; on 8 and 16 bits, and in float32."""
        sizes = _Sizes(draw.small(), draw.small(), draw.size(), draw.size(), draw.integer(0, 2))
        dtype = draw.choice((DType.INT8, DType.INT16, DType.FLOAT32))
        rng = np.random.default_rng(draw.integer(0, 1 << 16))
        inputs: list[Tensor | None] = [None] * _INPUTS
        rows = (sizes.times, sizes.batches) if sizes.time_major else (sizes.batches, sizes.times)
        inputs[0] = _scaled(activation((*rows, sizes.features), dtype), 0.02, int(rng.integers(-20, 20)))
        for position in GATES.values():
            inputs[position] = _weights((sizes.units, sizes.features), dtype, rng)
            inputs[position + 4] = _weights((sizes.units, sizes.units), dtype, rng)
            inputs[position + 11] = _bias((sizes.units,), dtype, rng)
        shape, zero_point = (sizes.batches, sizes.units), int(rng.integers(-20, 20))
        hidden = Tensor(0, "hidden", shape, dtype, is_variable=True)
        inputs[HIDDEN] = _scaled(hidden, 1 / 100, zero_point)
        cell = Tensor(0, "cell", shape, DType.FLOAT32 if dtype is DType.FLOAT32 else DType.INT16, is_variable=True)
        scale = 2.0 ** -draw.integer(11, 14)
        is_real = dtype is DType.FLOAT32
        inputs[CELL] = cell if is_real else replace(cell, quantisation=Quantisation((scale,), (0,)))
        attributes = Lstm(Activation.TANH, draw.choice((0.0, 0.5, 10.0)), bool(sizes.time_major))
        node = node_of(self.kind, name, attributes, inputs, (dtype,))
        return replace(node, outputs=(replace(node.output, quantisation=node.input(HIDDEN).quantisation),))


def _scaled(tensor: Tensor, scale: float, zero_point: int) -> Tensor:
    """With about this scale for 8-bit numbers; 16-bit ones have finer steps, and no zero point."""
    if tensor.dtype is DType.FLOAT32:
        return tensor
    fine, zero_point = (scale / 256, 0) if tensor.dtype is DType.INT16 else (scale, zero_point)
    return replace(tensor, quantisation=Quantisation((float(np.float32(fine)),), (zero_point,)))


def _weights(shape: Shape, data: DType, rng: np.random.Generator) -> Tensor:
    if data is DType.FLOAT32:
        real = rng.normal(0, 0.7, shape).astype(np.float32)
        return Tensor(0, "weights", shape, data, is_constant=True, data=real)
    values = rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
    scale = float(np.float32(0.01 * 2 ** rng.uniform(-1, 1)))
    tensor = Tensor(0, "weights", shape, DType.INT8, is_constant=True, data=values)
    return replace(tensor, quantisation=Quantisation((scale,), (0,)))


def _bias(shape: Shape, data: DType, rng: np.random.Generator) -> Tensor:
    dtype = {DType.INT8: DType.INT32, DType.INT16: DType.INT64}.get(data, data)
    values = (rng.normal(0, 1, shape) * (1 if dtype is DType.FLOAT32 else 2000)).astype(dtype.numpy)
    return Tensor(0, "bias", shape, dtype, is_constant=True, data=values)
