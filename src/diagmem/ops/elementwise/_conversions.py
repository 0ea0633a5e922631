"""CAST, QUANTIZE, DEQUANTIZE: the same numbers as elements of another type or scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops.c_call import (
    CCall,
    CStruct,
    CTable,
    Fields,
    Unsupported,
    element_code,
    kernel_call,
    require_types,
)
from diagmem.ops.kind import Array
from diagmem.ops.loops.broadcast import c_elementwise
from diagmem.ops.numerics.quantised import Requantisation, rounds_to_even, scale_of, zero_point_of

STORED = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)


def cast(node: Node, data: Array) -> Array:
    """Real numbers lose what is behind the point, and are clamped to the integers' range; integers wrap around."""
    to = node.output.dtype
    if data.dtype.kind != "f" or to in (DType.FLOAT32, DType.BOOL):
        return data.astype(to.numpy)
    info = np.iinfo(to.numpy)
    with np.errstate(invalid="ignore"):
        inside = data.astype(to.numpy)
    clamped = np.where(data >= np.float32(info.max), info.max, np.where(data > np.float32(info.min), inside, info.min))
    return np.where(np.isnan(data), 0, clamped).astype(to.numpy)


def cast_call(node: Node) -> CCall:
    fields = {
        "shape": c_elementwise(node),
        "from": element_code(node.input(0).dtype),
        "to": element_code(node.output.dtype),
    }
    return kernel_call("cast", fields, (node.input(0), node.output))


def quantize(node: Node, data: Array) -> Array:
    if rounds_to_even(node.output):
        return stored_to_even(node.output, data if node.input(0).dtype is DType.FLOAT32 else dequantize(node, data))
    if node.input(0).dtype is not DType.FLOAT32:
        result = _rescaling(node).apply(data.astype(np.int64) - zero_point_of(node.input(0)))
        return result.astype(node.output.dtype.numpy)
    low, high = _limits(node.output.dtype)
    zero_point = zero_point_of(node.output)
    units = data / np.float32(scale_of(node.output))
    whole = np.trunc(np.clip(np.nan_to_num(units, nan=-np.inf), low - zero_point, high - zero_point))
    with np.errstate(invalid="ignore"):
        rest = np.where(np.abs(units) < 2**24, units - whole, 0)
    rounded = whole.astype(np.int64) + (rest >= 0.5) - (rest <= -0.5) + zero_point
    stored: Array = np.clip(rounded, low, high).astype(node.output.dtype.numpy)
    return stored


def stored_to_even(output: Tensor, real: Array) -> Array:
    """Real numbers as onnxruntime stores them: halves to even."""
    low, high = _limits(output.dtype)
    zero_point = zero_point_of(output)
    with np.errstate(all="ignore"):
        units = real / np.float32(scale_of(output))
    held = np.clip(np.nan_to_num(units, nan=-np.inf), low - zero_point, high - zero_point)
    stored: Array = (np.rint(held).astype(np.int64) + zero_point).astype(output.dtype.numpy)
    return stored


def quantize_call(node: Node) -> CCall:
    if rounds_to_even(node.output) and node.input(0).dtype is not DType.FLOAT32:
        return lookup_to_even_call(node, dequantize)
    if rounds_to_even(node.output):
        return _real_call(node, "quantize_to_even", node.output)
    if node.input(0).dtype is not DType.FLOAT32:
        return requantize_call(node, _rescaling(node))
    return _real_call(node, "quantize", node.output)


def dequantize(node: Node, data: Array) -> Array:
    """Halves have no scale; they are real numbers already."""
    if node.input(0).dtype is DType.FLOAT16:
        return data.astype(np.float32)
    scale, zero_point = np.float32(scale_of(node.input(0))), zero_point_of(node.input(0))
    real: Array = scale * (data.astype(np.int64) - zero_point).astype(np.float32)
    return real


def dequantize_call(node: Node) -> CCall:
    if node.output.dtype is not DType.FLOAT32:
        raise Unsupported(f"{node.output.dtype.value} outputs; supported: float32")
    return _real_call(node, "dequantize", node.input(0))


def requantize_call(node: Node, output: Requantisation) -> CCall:
    """From integers to integers of another scale."""
    for tensor in (node.input(0), node.output):
        if tensor.dtype not in STORED:
            raise Unsupported(f"quantised {tensor.dtype.value}; supported: {', '.join(d.value for d in STORED)}")
    types = {"from": element_code(node.input(0).dtype), "to": element_code(node.output.dtype)}
    fields = {**types, "zero_point": zero_point_of(node.input(0)), "output": output.c_struct()}
    return _call(node, "requantize", "requantize", fields)


def table_to_even(node: Node, function: Callable[[Node, Array], Array]) -> Array:
    """The outputs of -128, -127, … 127: real numbers in between, through a function of them."""
    require_types(DType.INT8, (node.input(0), node.output))
    stored = np.arange(-128, 128, dtype=np.int8)
    return stored_to_even(node.output, function(node, stored))


def lookup_to_even_call(node: Node, function: Callable[[Node, Array], Array]) -> CCall:
    fields = {"shape": c_elementwise(node), "table": CTable("table", table_to_even(node, function))}
    return kernel_call("lookup_s8", fields, (node.input(0), node.output))


def _rescaling(node: Node) -> Requantisation:
    return Requantisation.of([scale_of(node.input(0)) / scale_of(node.output)], node.output)


def _real_call(node: Node, function: str, stored: Any) -> CCall:
    if stored.dtype not in STORED[:3]:
        raise Unsupported(f"quantised {stored.dtype.value}; supported: {', '.join(d.value for d in STORED[:3])}")
    low, high = _limits(stored.dtype)
    fields = {
        "type": element_code(stored.dtype),
        "scale": scale_of(stored),
        "zero_point": zero_point_of(stored),
        "low": low,
        "high": high,
    }
    return _call(node, function, "quantize", fields)


def _call(node: Node, function: str, struct: str, fields: Fields) -> CCall:
    parameters = CStruct(f"diagmem_{struct}_params", {"shape": c_elementwise(node), **fields})
    return CCall("quantize.c", f"diagmem_{function}", parameters, (node.input(0), node.output))


def _limits(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)
