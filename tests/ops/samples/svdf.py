"""How the tests draw the operations of `recurrent/svdf.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diagmem.model.graph import DType, Node, Quantisation, Shape, Tensor
from diagmem.ops.kind import Array
from diagmem.ops.numerics.quantised import scale_of
from diagmem.ops.options import Activation
from diagmem.ops.recurrent.svdf import STATE, Svdf, SvdfKind, _Sizes, _sizes
from tests.ops.sampling import Draw, Fitting, Samples, activation, node_of


class SvdfSamples(Samples, of=SvdfKind):
    needs = Fitting(is_drawn_whole=True)

    def sample(self, name: str, draw: Draw) -> Node:
        """With and without bias; state and weights of time of 8 or 16 bits, or all of float32."""
        sizes = _Sizes(draw.small(), draw.size(), 0, draw.size(), draw.integer(1, 3))
        units, rng = draw.size(), np.random.default_rng(draw.integer(0, 1 << 16))
        sizes = sizes._replace(filters=units * sizes.rank)
        state_type = draw.choice((DType.INT8, DType.INT16, DType.FLOAT32))
        is_real = state_type is DType.FLOAT32
        dtype = DType.FLOAT32 if is_real else DType.INT8
        has_bias = draw.boolean() or not is_real
        shapes = ((sizes.filters, sizes.features), (sizes.filters, sizes.memory), (units,))
        types = dtype, state_type, DType.FLOAT32 if is_real else DType.INT32
        weights = [_drawn(shape, t, rng) for shape, t in zip(shapes, types, strict=True)]
        state = Tensor(0, "state", (sizes.batches, sizes.filters * sizes.memory), state_type, is_variable=True)
        data = activation((sizes.batches, sizes.features), dtype)
        fused = draw.fused() if is_real else Activation.NONE
        inputs = [data, *weights[:2], weights[2] if has_bias else None, state]
        node = node_of(self.kind, name, Svdf(sizes.rank, fused), inputs, (dtype,))
        return node if is_real else _scaled(node, rng)


def _drawn(shape: Shape, dtype: DType, rng: np.random.Generator) -> Tensor:
    """Weights with values."""
    if dtype is DType.FLOAT32:
        data: Array = rng.normal(0, 1, shape).astype(np.float32)
    else:
        largest = 127 if dtype is DType.INT8 else 1000
        data = rng.integers(-largest, largest, shape, endpoint=True).astype(dtype.numpy)
    return Tensor(0, "weights", tuple(shape), dtype, is_constant=True, data=data)


def _scaled(node: Node, rng: np.random.Generator) -> Node:
    """The node with scales that leave states and outputs in their ranges, mostly."""
    sizes = _sizes(node.attributes, node.inputs)
    steps = 256 if node.input(STATE).dtype is DType.INT16 else 1
    out_gain = 2 * np.sqrt(sizes.memory * sizes.rank)

    def quantised(tensor: Tensor, scale: float, zero_point: int = 0) -> Tensor:
        near = float(np.float32(scale * 2 ** rng.uniform(-0.5, 0.5)))
        return replace(tensor, quantisation=Quantisation((near,), (zero_point,)))

    zero_points = [int(z) for z in rng.integers(-20, 20, 3)]
    data = quantised(node.input(0), 0.02, zero_points[0])
    by_feature = quantised(node.input(1), 0.01)
    by_time = quantised(node.input(2), 0.01 / (8 if steps > 1 else 1))
    state_size = 0.02 * np.sqrt(sizes.features)
    state = quantised(node.input(STATE), state_size / steps, zero_points[1] if steps == 1 else 0)
    unit = float(np.float32(scale_of(state) * scale_of(by_time)))
    bias = replace(node.input(3), quantisation=Quantisation((unit,), (0,)))
    output = quantised(node.output, state_size * out_gain, zero_points[2])
    return replace(node, inputs=(data, by_feature, by_time, bias, state), outputs=(output,))
