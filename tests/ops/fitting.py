"""Drawn nodes made fit to run: one type of elements, scales, zero points, values for constants; and draws by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import kinds
from tests.ops.sampling import Draw, Fitting, samples_of

Array = npt.NDArray[Any]
Rng = np.random.Generator

DATA_SCALE = 0.05
WEIGHT_SCALE = 0.02

_STEPS = {DType.INT16: 256, DType.INT32: 16}
"""How much finer the steps of a type are than those of 8-bit numbers."""

_LARGEST_INT = 2000
"""Of numbers with 32 bits or more, so that sums of them stay far from overflows."""


class SeededDraw(Draw):
    """The same choices for the same seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, end: int) -> int:
        return self._random.randrange(low, end)


def fitted(node: Node, seed: int, given: Tensor | None = None) -> Node:
    """The node with one of the types that kernels take, everything it needs to run, and the same shapes. From one seed
    to the next another type is taken; of a node that is run with several, all are seen. `given`: the data's type and
    scale are those of this tensor, which another node has made."""
    rng = np.random.default_rng(seed)
    wants = samples_of(node.op.kind).fitting(node)
    if wants.is_drawn_whole:
        return node
    data = node.input(wants.data)
    if given is not None:
        first = replace(data, dtype=given.dtype, quantisation=given.quantisation)
    else:
        dtype = data.dtype if wants.types is None else wants.types[seed % len(wants.types)]
        first = replace(data, dtype=dtype, quantisation=_quantisation(wants, dtype, rng))
    if first.is_constant:
        first = replace(first, data=_values(node, wants.data, first, rng))
    inputs = tuple(
        None if t is None else first if p == wants.data else _input(node, p, t, first, rng)
        for p, t in enumerate(node.inputs)
    )
    outputs = tuple(_output(wants, t, first, rng) for t in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs)


def input_values(node: Node, rng: Rng) -> tuple[Array | None, ...]:
    """What the inputs hold: constants their data, the others random values."""
    return tuple(
        None if t is None else t.data if t.data is not None else _values(node, p, t, rng)
        for p, t in enumerate(node.inputs)
    )


def _quantisation(
    wants: Fitting, dtype: DType, rng: Rng, scale: float = DATA_SCALE, octaves: float = 2
) -> Quantisation | None:
    """About this scale; 16-bit numbers have the same range as 8-bit ones, in finer steps."""
    if dtype not in wants.scaled:
        return None
    scale = scale * 2 ** rng.uniform(-octaves, octaves) / _STEPS.get(dtype, 1)
    zero_point = 0 if dtype is DType.INT16 else int(rng.integers(-128, 128)) + (128 if dtype is DType.UINT8 else 0)
    return Quantisation((float(np.float32(scale)),), (zero_point,))


def _input(node: Node, position: int, tensor: Tensor, data: Tensor, rng: Rng) -> Tensor:
    """An input other than the data: weights, a bias, a second operand. Axes, shapes, indices and conditions keep their
    types."""
    kind = kinds()[node.op.kind]
    wants, holds_numbers = samples_of(kind).fitting(node), position in kind.signature(node.op.kind).numbers
    if tensor.data is not None or tensor.dtype is DType.INT32 or holds_numbers:
        return tensor
    if tensor.dtype is DType.BOOL:
        return replace(tensor, data=_values(node, position, tensor, rng)) if tensor.is_constant else tensor
    if wants.weights_axis is not None:
        tensor = _weights(wants, tensor, data.dtype, rng) if position == 1 else _bias(tensor, data, rng)
    else:
        dtype = wants.other_types.get(data.dtype, data.dtype)
        has_own = wants.gain is not None
        tensor = replace(
            tensor, dtype=dtype, quantisation=_quantisation(wants, dtype, rng) if has_own else data.quantisation
        )
    return replace(tensor, data=_values(node, position, tensor, rng)) if tensor.is_constant else tensor


def _weights(wants: Fitting, tensor: Tensor, data: DType, rng: Rng) -> Tensor:
    """One scale for all channels, or one for each. Those beside unsigned data have one, and any zero point."""
    is_narrow = data in (DType.INT8, DType.FLOAT32) and wants.has_narrow_weights and tensor.is_constant
    is_narrow = is_narrow and rng.integers(3) == 0
    if data is DType.FLOAT32 and not is_narrow:
        return replace(tensor, dtype=data)
    if data is DType.UINT8:
        scale = float(np.float32(WEIGHT_SCALE * 2 ** rng.uniform(-1, 1)))
        return replace(tensor, dtype=data, quantisation=Quantisation((scale,), (int(rng.integers(256)),)))
    axis = wants.weights_axis or 0
    count = tensor.shape[axis] if rng.integers(2) else 1
    scales = tuple(float(np.float32(WEIGHT_SCALE * 2 ** rng.uniform(-1, 1))) for _ in range(count))
    if data is DType.FLOAT32 and rng.integers(3) == 0:
        return replace(tensor, dtype=DType.FLOAT16)
    dtype = DType.INT4 if is_narrow and (data is DType.INT8 or rng.integers(2)) else DType.INT8
    return replace(tensor, dtype=dtype, quantisation=Quantisation(scales, (0,) * count, axis))


def _bias(tensor: Tensor, data: Tensor, rng: Rng) -> Tensor:
    wide = (DType.INT64, DType.INT64, DType.INT32)[int(rng.integers(3))]
    return replace(
        tensor, dtype={DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: wide}.get(data.dtype, data.dtype)
    )


def _output(wants: Fitting, tensor: Tensor, data: Tensor, rng: Rng) -> Tensor:
    dtype = tensor.dtype if wants.draws_output_types else data.dtype
    if dtype in wants.fixed:
        scale, zero_point = wants.fixed[dtype]
        return replace(tensor, dtype=dtype, quantisation=Quantisation((scale,), (zero_point,)))
    if wants.gain is None:
        return replace(tensor, dtype=dtype, quantisation=data.quantisation if dtype in wants.scaled else None)
    return replace(tensor, dtype=dtype, quantisation=_quantisation(wants, dtype, rng, 2 * DATA_SCALE * wants.gain))


def _values(node: Node, position: int, tensor: Tensor, rng: Rng) -> Array:
    """Any values, unless the kind has a say."""
    own = samples_of(node.op.kind).sample_values(node, position, tensor, rng)
    if own is not None:
        return own.astype(tensor.dtype.numpy)
    if tensor.dtype in (DType.FLOAT32, DType.FLOAT16):
        return rng.normal(0, 3, tensor.shape).astype(tensor.dtype.numpy)
    if tensor.dtype is DType.BOOL:
        return rng.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype is DType.INT4:
        return rng.integers(-8, 8, tensor.shape).astype(np.int8)
    info = np.iinfo(tensor.dtype.numpy)
    low, high = (info.min, info.max) if tensor.dtype.bits < 32 else (-_LARGEST_INT, _LARGEST_INT)
    return rng.integers(low, high, tensor.shape, endpoint=True).astype(tensor.dtype.numpy)
