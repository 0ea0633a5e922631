"""ADD and MUL of 8-bit integers as onnxruntime computes them on processors that multiply and add in one instruction:
in float32, rounded once, halves to even. For kernels a plane over both inputs gives the same, but for a few pairs of
these, close to a step, that are kept in a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.graph import Node, Tensor
from diagmem.ops.c_call import CCall, CStruct, CTable, Unsupported, kernel_call, require_types
from diagmem.ops.kind import Array, Way
from diagmem.ops.loops.broadcast import c_broadcast
from diagmem.ops.numerics.fixed_point import Ints
from diagmem.ops.numerics.quantised import integer_range, lowered_by, scale_of, zero_point_of

MOST_PAIRS = 4096
"""As many as a list may hold."""

_PLACES = range(24, 7, -1)
"""Bits behind the point that are tried."""

_Single = np.float32


def _fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return (np.asarray(x, np.float64) * np.asarray(y, np.float64) + np.asarray(z, np.float64)).astype(np.float32)


def _real(tensor: Tensor, stored: Array) -> Any:
    """What onnxruntime has in the place of a stored number, as float32."""
    return (stored.astype(np.int64) + lowered_by(tensor)).astype(np.float32)


def _zero(tensor: Tensor) -> Any:
    return _Single(zero_point_of(tensor) + lowered_by(tensor))


def _sum(node: Node, first: Array, second: Array) -> Any:
    a, b, out = node.input(0), node.input(1), node.output
    of_a, of_b = (_Single(scale_of(t)) / _Single(scale_of(out)) for t in (a, b))
    start = _zero(out) - _fma(of_a, _zero(a), of_b * _zero(b))
    return _fma(_real(a, first), of_a, _fma(_real(b, second), of_b, start))


def _product(node: Node, first: Array, second: Array) -> Any:
    a, b, out = node.input(0), node.input(1), node.output
    factor = _Single(scale_of(a)) * _Single(scale_of(b)) / _Single(scale_of(out))
    return (_real(a, first) - _zero(a)) * (_real(b, second) - _zero(b)) * factor + _zero(out)


_REAL = {"ADD": _sum, "MUL": _product}


def _rounded(node: Node, first: Array, second: Array) -> Array:
    found = np.rint(_REAL[node.op.kind](node, first, second)) - lowered_by(node.output)
    clipped: Array = np.clip(found, *integer_range(node.attributes.activation, node.output)).astype(np.int8)
    return clipped


@dataclass(frozen=True, slots=True)
class Plane:
    """`value` of a pair of stored inputs, with `places` bits behind the point; `fields`: what a kernel makes it of."""

    places: int
    value: Callable[[Ints, Ints], Ints]
    fields: dict[str, int]


def _plane_of_sums(node: Node, places: int) -> Plane:
    scales = [scale_of(t) / scale_of(node.output) * 2**places for t in (node.input(0), node.input(1))]
    start = zero_point_of(node.output) * 2**places + 2 ** (places - 1)
    start -= round(sum(s * zero_point_of(t) for s, t in zip(scales, (node.input(0), node.input(1)), strict=True)))
    a, b = map(round, scales)
    return Plane(places, lambda x, y: a * x + b * y + start, {"first": a, "second": b, "start": start})


def _plane_of_products(node: Node, places: int) -> Plane:
    a, b = zero_point_of(node.input(0)), zero_point_of(node.input(1))
    factor = round(scale_of(node.input(0)) * scale_of(node.input(1)) / scale_of(node.output) * 2.0 ** (places + 18))
    start = zero_point_of(node.output) * 2**places + 2 ** (places - 1)
    fields = {"first_zero_point": a, "second_zero_point": b, "factor": factor, "start": start}
    return Plane(places, lambda x, y: (((x - a) * (y - b) * 2**14 * factor) >> 32) + start, fields)


_PLANES = {"ADD": _plane_of_sums, "MUL": _plane_of_products}


def _call(node: Node, how: str = "once") -> CCall:
    tensors = node.input(0), node.input(1), node.output
    for tensor in tensors:
        require_types(node.output.dtype, (tensor,))
    x, y = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128), indexing="ij")
    wanted = _rounded(node, x, y).astype(np.int64)
    for places in _PLACES:
        plane = _PLANES[node.op.kind](node, places)
        value = plane.value(x, y)
        if max(abs(value).max(), *map(abs, plane.fields.values()), 2 ** (places + 8)) < 2**31:
            steps = _steps(node, plane, value, wanted)
            if steps is not None:
                name = f"{node.op.kind.lower()}_{how}_s8"
                fields = {"shape": c_broadcast(node), **plane.fields, "output": steps}
                return kernel_call(f"elementwise_binary_{how}_s8", fields, tensors, function=name, struct=name)
    raise Unsupported("an output scale that is far smaller than the inputs'")


def _steps(node: Node, plane: Plane, value: Ints, wanted: Ints) -> CStruct | None:
    """The `diagmem_steps` of a plane; None where its list of pairs would be too long."""
    low, high = integer_range(node.attributes.activation, node.output)
    unit = 2**plane.places
    whole, part = value >> plane.places, value & (unit - 1)
    is_below, is_half = part >= unit // 2, part == 0
    given = np.where(is_half, whole - (whole & 1), whole)
    other = np.where(is_below, whole + 1, 2 * whole - 1 - given)
    is_other = np.clip(given, low, high) != wanted
    pairs = np.flatnonzero(is_other)
    if len(pairs) > MOST_PAIRS or not np.array_equal(np.clip(other, low, high)[is_other], wanted[is_other]):
        return None
    inside = (whole >= low) & (whole <= high + 1)
    near = np.where(is_below, unit - part, part)[is_other | (is_half & inside)]
    fields = {
        "shift": plane.places,
        "low": low,
        "high": high,
        "near": int(near.max(initial=0)),
        "width": 2 * int(near.max()) + 1 if len(near) else 0,
        "count": len(pairs),
        "pairs": CTable("pairs", pairs.astype(np.uint16)) if len(pairs) else None,
    }
    return CStruct("diagmem_steps", fields)


def mve_call(node: Node) -> CCall:
    """For vectors of bytes, four elements at a time."""
    return _call(node, "once_mve")


WAY = Way(_rounded, _call)
