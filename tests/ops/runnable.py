"""Random nodes made fit to run: one type of elements, scales, zero points, and values for all that is constant."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Node, Quantisation, Tensor, View
from diagmem.ops import Activation, kinds
from diagmem.ops.elementwise.binary import Binary
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.normalisation.softmax import Softmax
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.ops.reductions.arg_max import ArgMax
from diagmem.ops.reductions.reduce import Reduce
from diagmem.ops.resizing.resize import Resize

Array = npt.NDArray[Any]
Rng = np.random.Generator

TYPES = (DType.INT8, DType.INT16, DType.FLOAT32)

_FILTERS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
"""Kinds with weights at position 1 -> the axis of their channels."""

_OWN_SCALE = (
    *("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "PRELU", "MEAN", "SUM", "BATCH_MATMUL", "QUANTIZE"),
    *("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "ELU", "HARD_SWISH", "ABS", "RSQRT", *_FILTERS),
)
"""Kinds whose output has a scale of its own; others hand on that of their input."""

_FIXED = {
    ("SOFTMAX", DType.INT8): (1 / 256, -128),
    ("SOFTMAX", DType.INT16): (1 / 32768, 0),
    ("LOG_SOFTMAX", DType.INT8): (1 / 16, 127),
    ("LOGISTIC", DType.INT8): (1 / 256, -128),
    ("LOGISTIC", DType.INT16): (1 / 32768, 0),
    ("TANH", DType.INT8): (1 / 128, 0),
    ("TANH", DType.INT16): (1 / 32768, 0),
    ("L2_NORMALIZATION", DType.INT8): (1 / 128, 0),
}
"""Output scales that TFLite insists on."""

_TYPES_OF = {
    **dict.fromkeys(("DIV", "GELU", "SQRT", "EXP", "NEG"), (DType.FLOAT32,)),
    **dict.fromkeys(("ELU", "HARD_SWISH", "RSQRT", "L2_NORMALIZATION", "LOG_SOFTMAX"), (DType.INT8, DType.FLOAT32)),
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), (*TYPES, DType.INT32)),
    "CAST": (*TYPES, DType.INT32, DType.INT64, DType.UINT8, DType.BOOL),
    "QUANTIZE": (*TYPES, DType.INT32),
    "DEQUANTIZE": (DType.INT8, DType.INT16),
}
"""The types that kinds take which do not take all three."""

_CONVERSIONS = ("CAST", "QUANTIZE", "DEQUANTIZE")
"""Kinds whose output is of another type."""


def runnable(node: Node, turn: int) -> Node:
    """The node with one of the types that kernels have, everything it needs to run, and the same shapes. `turn`: of
    kinds that share a file, and of types, one after the other is taken."""
    rng = np.random.default_rng(turn)
    node = _of_kind(node, turn, rng)
    kind, data = node.op.kind, _data_position(node)
    taken = _TYPES_OF.get(kind, TYPES)
    dtype = taken[turn // _kinds_of(node) % len(taken)]
    first = replace(node.input(data), dtype=dtype, quantisation=_quantisation(dtype, rng))
    if kind == "QUANTIZE" and dtype is DType.INT32:
        first = replace(first, quantisation=Quantisation((float(np.float32(0.003)),), (int(rng.integers(-9, 9)),)))
    if first.is_constant:
        first = replace(first, data=_values(node, data, first, rng))
    inputs = [
        None if t is None else first if p == data else _input(node, p, first, rng) for p, t in enumerate(node.inputs)
    ]
    filters = inputs[1] if kind in _FILTERS or kind in ("MUL", "BATCH_MATMUL", "PRELU") else None
    outputs = tuple(_output(node, t, first, filters, rng) for t in node.outputs)
    attributes = node.attributes
    if kind.startswith("ARG_"):
        attributes = ArgMax(outputs[0].dtype)
    elif isinstance(attributes, Binary) and dtype is DType.INT32:
        attributes = Binary()
    return replace(node, op=replace(node.op, attributes=attributes), inputs=tuple(inputs), outputs=outputs)


def spread_out(node: Node, seed: int) -> Node:
    """The node with tensors whose axes lie further apart, as parts of larger ones."""
    rng = np.random.default_rng(seed)

    def spread(tensor: Tensor) -> Tensor:
        strides, step = [], 1
        for size in reversed(tensor.shape):
            strides.append(step)
            step = step * size + int(rng.integers(3))
        return replace(tensor, view=View(99, 0, tuple(reversed(strides))))

    inputs = tuple(t if t is None or t.is_constant else spread(t) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(spread(t) for t in node.outputs))


def input_values(node: Node, rng: Rng) -> tuple[Array | None, ...]:
    """What the inputs hold: constants their data, the others random values."""
    return tuple(
        None if t is None else t.data if t.data is not None else _values(node, p, t, rng)
        for p, t in enumerate(node.inputs)
    )


def _kinds_of(node: Node) -> int:
    return len(kinds()[node.op.kind].names)


def _of_kind(node: Node, turn: int, rng: Rng) -> Node:
    """Another kind of the same file, where they are all of one form, with attributes that matter."""
    attributes, names = node.attributes, kinds()[node.op.kind].names
    if not isinstance(attributes, Unary | Binary | Reduce | ArgMax | Softmax | Pool2D | Resize):
        return node
    kind = names[turn % len(names)]
    if kind == "LEAKY_RELU":
        attributes = Unary(alpha=float(np.float32(rng.uniform(-0.1, 1.2))))
    elif kind == "GELU":
        attributes = Unary(approximate=bool(rng.integers(2)))
    elif isinstance(attributes, Binary | Pool2D) and kind not in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"):
        attributes = replace(attributes, activation=Activation(int(rng.integers(4))))
    return replace(node, op=replace(node.op, kind=kind, attributes=attributes))


def _data_position(node: Node) -> int:
    return {"SPLIT": 1, "TRANSPOSE_CONV": 2}.get(node.op.kind, 0)


def _pick(rng: Rng, choices: tuple[DType, ...]) -> DType:
    return choices[int(rng.integers(len(choices)))]


def _quantisation(dtype: DType, rng: Rng, scale: float = 0.05, octaves: float = 2) -> Quantisation | None:
    if dtype not in (DType.INT8, DType.INT16):
        return None
    scale = scale * 2 ** rng.uniform(-octaves, octaves) / (256 if dtype is DType.INT16 else 1)
    return Quantisation((float(np.float32(scale)),), (int(rng.integers(-128, 128)) if dtype is DType.INT8 else 0,))


def _input(node: Node, position: int, data: Tensor, rng: Rng) -> Tensor:
    """An input other than the first: weights, a bias, a second operand, or something that is not of the data's type."""
    tensor, kind = node.input(position), node.op.kind
    if "RESIZE" in kind:
        return replace(tensor, is_constant=True, data=np.array(node.output.shape[1:3], np.int32))
    is_about_shapes = tensor.dtype is DType.INT32 or kind == "TRANSPOSE" or (position == 1 and "PAD" in kind)
    if tensor.data is not None or is_about_shapes:
        return tensor
    if kind in _FILTERS:
        tensor = _filter(tensor, data.dtype, _FILTERS[kind], rng) if position == 1 else _bias(tensor, kind, data, rng)
    elif kind == "PRELU" and data.dtype is DType.INT16:
        tensor = replace(tensor, dtype=DType.INT8, quantisation=_quantisation(DType.INT8, rng))
    elif kind == "PADV2":
        tensor = replace(tensor, dtype=data.dtype, quantisation=data.quantisation, is_constant=True)
    else:
        own = kind in _OWN_SCALE
        scale = _quantisation(data.dtype, rng) if own else data.quantisation
        tensor = replace(tensor, dtype=data.dtype, quantisation=scale)
    return replace(tensor, data=_values(node, position, tensor, rng)) if tensor.is_constant else tensor


def _filter(tensor: Tensor, data: DType, axis: int, rng: Rng) -> Tensor:
    if data is DType.FLOAT32:
        return replace(tensor, dtype=data)
    count = tensor.shape[axis] if rng.integers(2) else 1
    scales = tuple(float(np.float32(0.02 * 2 ** rng.uniform(-1, 1))) for _ in range(count))
    return replace(tensor, dtype=DType.INT8, quantisation=Quantisation(scales, (0,) * count, axis))


def _bias(tensor: Tensor, kind: str, data: Tensor, rng: Rng) -> Tensor:
    wide = _pick(rng, (DType.INT64, DType.INT32)) if kind in ("CONV_2D", "FULLY_CONNECTED") else DType.INT64
    return replace(tensor, dtype={DType.INT8: DType.INT32, DType.INT16: wide}.get(data.dtype, data.dtype))


def _output(node: Node, tensor: Tensor, data: Tensor, other: Tensor | None, rng: Rng) -> Tensor:
    kind, dtype = node.op.kind, data.dtype
    if kind.startswith("ARG_"):
        return replace(tensor, dtype=_pick(rng, (DType.INT32, DType.INT64)))
    if kind in _CONVERSIONS:
        choices = {"CAST": _TYPES_OF["CAST"], "QUANTIZE": TYPES[:2], "DEQUANTIZE": (DType.FLOAT32,)}[kind]
        dtype = _pick(rng, choices)
        return replace(tensor, dtype=dtype, quantisation=None if kind == "CAST" else _quantisation(dtype, rng))
    if (kind, dtype) in _FIXED:
        scale, zero_point = _FIXED[kind, dtype]
        return replace(tensor, dtype=dtype, quantisation=Quantisation((scale,), (zero_point,)))
    if data.quantisation is None or kind not in _OWN_SCALE:
        return replace(tensor, dtype=dtype, quantisation=data.quantisation)
    return replace(tensor, dtype=dtype, quantisation=_quantisation(dtype, rng, _spread(node, data, other)))


def _spread(node: Node, data: Tensor, other: Tensor | None) -> float:
    """A scale at which most results fit; 16-bit data have the same range as 8-bit data, in finer steps."""
    unit = 0.05 if other is None else 0.05 * 64 * (0.02 if node.op.kind in _FILTERS else 0.05)
    terms = {"MEAN": 1, "PRELU": 1}.get(node.op.kind, data.elems // max(1, node.output.elems))
    if node.op.kind in _FILTERS or node.op.kind == "BATCH_MATMUL":
        terms = math.prod(node.input(1).shape[1:])
    return 2 * unit * math.sqrt(max(1, terms))


def _values(node: Node, position: int, tensor: Tensor, rng: Rng) -> Array:
    shape, dtype, kind = tensor.shape, tensor.dtype, node.op.kind
    if kind == "GATHER" and position == 1:
        axis = node.attributes.axis
        return rng.integers(-1, node.input(0).shape[axis] + 1, shape).astype(dtype.numpy)
    if dtype is DType.FLOAT32:
        real = rng.normal(0, 3, shape).astype(np.float32)
        return np.abs(real) + np.float32(0.01) if kind in ("SQRT", "RSQRT", "LOG") else real
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "RSQRT" and tensor.quantisation is not None:
        low, high = tensor.quantisation.zero_points[0], np.iinfo(dtype.numpy).max
        return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    limit = {DType.INT32: 2000, DType.INT64: 2000}.get(dtype)
    info = np.iinfo(dtype.numpy)
    low, high = (info.min, info.max) if limit is None else (-limit, limit)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
