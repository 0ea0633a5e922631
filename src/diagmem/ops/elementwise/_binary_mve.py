"""ADD and MUL on 8-bit integers for cores with Helium. Four elements are read before they are written, which is no
nearer than one by one: the order is that of the kernels in plain C."""

from __future__ import annotations

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CCall, CStruct, Fields
from diagmem.ops.c_rows import cut_to_row, row_call
from diagmem.ops.elementwise._binary_int import product_call, product_requantisation, sum_call, sum_of
from diagmem.ops.loops.broadcast import c_broadcast
from diagmem.ops.numerics.quantised import zero_point_of
from diagmem.ops.orders import Order
from diagmem.ops.variants import Variant


def mve_variants(node: Node) -> tuple[Variant, ...]:
    """One for each node of 8-bit integers."""
    calls = {"ADD": _add_call, "MUL": _mul_call}
    if node.op.kind not in calls or any(t.dtype is not DType.INT8 for t in (*node.inputs, *node.outputs) if t):
        return ()
    call = calls[node.op.kind]
    return (Variant(Order.REFERENCE, Order.REFERENCE, call, lambda n: row_call(call(cut_to_row(n)), n)),)


def _add_call(node: Node) -> CCall:
    """Multipliers of 1 and more go to the kernel in plain C."""
    way = sum_of(node)
    if max(int(way.output.shifts[0]), *(multiplier.shift for multiplier in way.inputs)) > 0:
        return sum_call(node)
    first, second = (
        CStruct("diagmem_mve_addend", {"zero_point": zero_point_of(node.input(i)), "mantissa": m, "shift": shift})
        for i, (m, shift) in enumerate(way.inputs)
    )
    return _call(node, "add", {"first": first, "second": second, "output": way.output.c_struct()})


def _mul_call(node: Node) -> CCall:
    output = product_requantisation(node)
    if int(output.shifts[0]) > 0:
        return product_call(node)
    zero_points = {"first_zero_point": zero_point_of(node.input(0)), "second_zero_point": zero_point_of(node.input(1))}
    return _call(node, "mul", {**zero_points, "output": output.c_struct()})


def _call(node: Node, stem: str, fields: Fields) -> CCall:
    struct = CStruct(f"diagmem_{stem}_mve_s8_params", {"shape": c_broadcast(node), **fields})
    arguments = node.input(0), node.input(1), node.output
    return CCall("elementwise_binary_mve_s8.c", f"diagmem_{stem}_mve_s8", struct, arguments)
