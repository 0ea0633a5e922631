"""ADD and MUL on 8-bit integers for cores with the DSP extension, in the order of the kernels in plain C."""

from __future__ import annotations

from dataclasses import replace

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CCall, CStruct, Fields
from diagmem.ops.c_rows import cut_to_row, row_call
from diagmem.ops.elementwise._binary_int import product_call, product_requantisation, sum_call, sum_of
from diagmem.ops.loops.broadcast import c_broadcast
from diagmem.ops.numerics.fixed_point import Multiplier
from diagmem.ops.numerics.quantised import Requantisation, zero_point_of
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant

HALF = Multiplier.of(0.5)
"""What one of the addends of every ADD is multiplied by: that of the larger scale."""

MOST = 2**30
"""Sums of two numbers below that fit into 32 bits."""


def dsp_variants(node: Node) -> tuple[Variant, ...]:
    """One for each node of 8-bit integers."""
    calls = {"ADD": _add_call, "MUL": _mul_call}
    if node.op.kind not in calls or any(t.dtype is not DType.INT8 for t in (*node.inputs, *node.outputs) if t):
        return ()
    call = calls[node.op.kind]
    return (Variant(Order.REFERENCE, Order.REFERENCE, call, lambda n: row_call(call(cut_to_row(n)), n)),)


def _add_call(node: Node) -> CCall:
    """Addition does not care which input is scaled. Numbers that do not fit go to the kernel in plain C."""
    way = sum_of(node)
    output = _c_output(way.output)
    if HALF not in way.inputs or output is None:
        return sum_call(node)
    plain = 1 if way.inputs[1] == HALF else 0
    (mantissa, shift), zero_point = way.inputs[1 - plain], zero_point_of(node.input(1 - plain))
    addend = ((1 << -shift) >> 1) - (zero_point_of(node.input(plain)) << (19 - shift))
    if abs(addend) >= MOST or way.left_shift != 20:
        return sum_call(node)
    scaled = {
        "offset": zero_point << 21,
        "mantissa": mantissa,
        "addend": addend,
        "sign": -1 if shift < 0 else 0,
        "shift": -shift,
    }
    order = node if plain == 1 else _swapped(node)
    fields = {"scaled": CStruct("diagmem_scaled_addend", scaled), "output": output}
    return _call(order, "add", fields)


def _mul_call(node: Node) -> CCall:
    output = _c_output(product_requantisation(node))
    if output is None:
        return product_call(node)
    zero_points = {"first_zero_point": zero_point_of(node.input(0)), "second_zero_point": zero_point_of(node.input(1))}
    return _call(node, "mul", {**zero_points, "output": output})


def _call(node: Node, stem: str, fields: Fields) -> CCall:
    struct = CStruct(f"diagmem_{stem}_packed_s8_params", {"shape": c_broadcast(node), **fields})
    arguments = node.input(0), node.input(1), node.output
    return CCall("elementwise_binary_packed_s8.c", f"diagmem_{stem}_packed_s8", struct, arguments)


def _swapped(node: Node) -> Node:
    return replace(node, inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))


def _c_output(output: Requantisation) -> CStruct | None:
    """None unless one rounding follows another, and all fits."""
    (mantissa,), (shift,) = output.mantissas.tolist(), output.shifts.tolist()
    if shift >= 0 or (output.low, output.high) != (-128, 127):
        return None
    addend = (1 << (-shift - 1)) + (output.zero_point << -shift)
    if abs(addend) >= MOST:
        return None
    fields = {"mantissa": mantissa, "addend": addend, "shift": -shift}
    return CStruct("diagmem_packed_output", fields)
