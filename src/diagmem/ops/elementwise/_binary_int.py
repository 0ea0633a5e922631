"""Arithmetic on pairs of integers, quantised or plain, bit for bit as TFLite's reference kernels do it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import SUFFIXES, CCall, CStruct, Fields, Unsupported, require_types
from diagmem.ops.kind import Array
from diagmem.ops.loops.broadcast import c_broadcast
from diagmem.ops.numerics.fixed_point import (
    Ints,
    Multiplier,
    bit_lengths,
    high_mul,
    reciprocal,
    rescale,
    rounding_shift,
    wrapped,
)
from diagmem.ops.numerics.quantised import (
    Requantisation,
    real_range,
    require_same_quantisation,
    scale_of,
    zero_point_of,
)

QUANTISED = (DType.INT8, DType.INT16)
UNSIGNED = (DType.UINT8,)

_SUM_BITS = {DType.INT8: 20, DType.UINT8: 20, DType.INT16: 15}
_SQUARE_BITS = {DType.INT8: 7, DType.INT16: 0}
"""Bits behind the point that the inputs get before they are added, or their difference is squared."""


def binary_call(node: Node, parameters: str, fields: Fields, suffix: str = "int") -> CCall:
    """The call of the kernel for the kind and the type of its first input."""
    require_types(node.output.dtype, (node.input(0), node.input(1)))
    function = f"diagmem_{node.op.kind.lower()}_{SUFFIXES[node.output.dtype]}"
    struct = CStruct(f"diagmem_{parameters}_params", {"shape": c_broadcast(node), **fields})
    return CCall(f"elementwise_binary_{suffix}.c", function, struct, (node.input(0), node.input(1), node.output))


@dataclass(frozen=True, slots=True)
class Sum:
    """Both inputs to one scale, with `left_shift` bits behind the point, and from there to the output."""

    left_shift: int
    inputs: tuple[Multiplier, Multiplier]
    output: Requantisation

    def terms(self, node: Node, *values: Array) -> list[Ints]:
        return [
            rescale((x.astype(np.int64) - zero_point_of(node.input(i))) << self.left_shift, *self.inputs[i])
            for i, x in enumerate(values)
        ]


@np.errstate(over="ignore")
def sum_of(node: Node) -> Sum:
    first, second, out = (scale_of(t) for t in (node.input(0), node.input(1), node.output))
    common = 2 * max(first, second)
    is_square = node.op.kind == "SQUARED_DIFFERENCE"
    left_shift = (_SQUARE_BITS if is_square else _SUM_BITS)[node.output.dtype]
    unit = common * common / (out * 4**left_shift) if is_square else common / (out * 2**left_shift)
    if unit >= 1 and not is_square:
        raise Unsupported("an output scale that is far smaller than the inputs'; TensorFlow Lite refuses it too")
    inputs = Multiplier.of(first / common), Multiplier.of(second / common)
    return Sum(left_shift, inputs, Requantisation.of([unit], node.output, node.attributes.activation))


def sum_or_difference(node: Node, first: Array, second: Array) -> Array:
    way = sum_of(node)
    x, y = way.terms(node, first, second)
    total = {"ADD": x + y, "SUB": x - y, "SQUARED_DIFFERENCE": (x - y) ** 2}[node.op.kind]
    return way.output.apply(total).astype(first.dtype)


def sum_call(node: Node) -> CCall:
    way = sum_of(node)
    first, second = (
        CStruct("diagmem_addend", {"zero_point": zero_point_of(node.input(i)), "mantissa": m, "shift": shift})
        for i, (m, shift) in enumerate(way.inputs)
    )
    fields = {"left_shift": way.left_shift, "first": first, "second": second, "output": way.output.c_struct()}
    return binary_call(node, "sum", fields)


def product_requantisation(node: Node) -> Requantisation:
    """The scales of unsigned numbers are multiplied in single precision."""
    first, second, out = (scale_of(t) for t in (node.input(0), node.input(1), node.output))
    real = first * second / out
    if node.output.dtype is DType.UINT8:
        real = float(np.float32(first) * np.float32(second) / np.float32(out))
    return Requantisation.of([real], node.output, node.attributes.activation)


def product(node: Node, first: Array, second: Array) -> Array:
    centred = (x.astype(np.int64) - zero_point_of(node.input(i)) for i, x in enumerate((first, second)))
    return product_requantisation(node).apply(math.prod(centred)).astype(first.dtype)


def product_call(node: Node) -> CCall:
    fields = {
        "first_zero_point": zero_point_of(node.input(0)),
        "second_zero_point": zero_point_of(node.input(1)),
        "output": product_requantisation(node).c_struct(),
    }
    return binary_call(node, "product", fields)


@np.errstate(over="ignore")
def quotient_requantisation(node: Node) -> Requantisation:
    """TFLite Micro as built divides scales in double precision, LiteRT in single."""
    real = scale_of(node.input(0)) / (scale_of(node.input(1)) * scale_of(node.output))
    return Requantisation.of([real], node.output, node.attributes.activation)


def quotient(node: Node, first: Array, second: Array) -> Array:
    """The reciprocal of the divisor with 31 bits, times the dividend with all bits that there are. TFLite leaves open
    what is divided by 0: here it becomes the largest number of its sign. Small quotients become 0, where TFLite shifts
    by more than 31 bits, of which processors make what they like."""
    to = quotient_requantisation(node)
    x, y = (v.astype(np.int64) - zero_point_of(node.input(i)) for i, v in enumerate((first, second)))
    x, y = np.broadcast_arrays(np.where(y < 0, -x, x), np.abs(y))
    inverse, inverse_bits = reciprocal(np.where(y == 0, 1, y), 31)
    headroom = 31 - bit_lengths(np.where(x < 0, -x - 1, x))
    scaled = high_mul(high_mul(x << headroom, inverse), to.mantissas)
    shifted = rounding_shift(scaled, np.clip(inverse_bits + headroom - to.shifts, 0, _MOST_SHIFT))
    result = wrapped(shifted + to.zero_point)
    beyond = np.sign(x) * 2**31
    return np.clip(np.where(y == 0, beyond, result), to.low, to.high).astype(first.dtype)


_MOST_SHIFT = 62
"""Nothing is left of any number."""


def quotient_call(node: Node) -> CCall:
    fields = {
        "first_zero_point": zero_point_of(node.input(0)),
        "second_zero_point": zero_point_of(node.input(1)),
        "output": quotient_requantisation(node).c_struct(),
    }
    return binary_call(node, "product", fields)


def _truncated(x: Ints, y: Ints) -> Ints:
    """x / y towards 0; a division by 0 gives 0."""
    whole: Ints = np.abs(x) // np.maximum(np.abs(y), 1)
    return np.where(y == 0, 0, np.where((x < 0) != (y < 0), -whole, whole))


_PLAIN: Mapping[str, Callable[[Ints, Ints], Ints]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": _truncated,
    "SQUARED_DIFFERENCE": lambda x, y: wrapped(x - y) ** 2,
}


def plain(node: Node, first: Array, second: Array) -> Array:
    """Without scales; what does not fit into 32 bits wraps around."""
    if node.op.kind in ("MAXIMUM", "MINIMUM"):
        largest: Array = (np.maximum if node.op.kind == "MAXIMUM" else np.minimum)(first, second)
        return largest
    exact = _PLAIN[node.op.kind](first.astype(np.int64), second.astype(np.int64))
    return np.clip(wrapped(exact), *_plain_range(node)).astype(first.dtype)


def plain_call(node: Node) -> CCall:
    require_same_quantisation((node.input(0), node.input(1), node.output))
    low, high = _plain_range(node)
    return binary_call(node, "plain", {"low": low, "high": high})


def _plain_range(node: Node) -> tuple[int, int]:
    limits, (low, high) = np.iinfo(np.int32), real_range(node.attributes.activation)
    return int(max(limits.min, low)), int(min(limits.max, high))
