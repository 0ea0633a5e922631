"""LOG, SIN, COS, FLOOR, CEIL, ROUND on single precision; LOGICAL_NOT."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from diagmem.model.graph import DType, Node
from diagmem.ops.c_call import CCall, CStruct, require_types
from diagmem.ops.kind import Array
from diagmem.ops.loops.broadcast import c_elementwise


def _in_double(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """What the function gives in double precision, in single."""
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


MATH: Mapping[str, Callable[[Array], Array]] = {
    "LOG": _in_double(np.log),
    "SIN": _in_double(np.sin),
    "COS": _in_double(np.cos),
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND": np.rint,
}
"""Halves are rounded to the even neighbour."""


def math_f32(node: Node, x: Array) -> Array:
    with np.errstate(all="ignore"):
        return MATH[node.op.kind](x)


def math_call(node: Node) -> CCall:
    require_types(DType.FLOAT32, (node.output,))
    return _call(node, f"math_{node.op.kind.lower()}_f32")


def logical_not(node: Node, x: Array) -> Array:
    return ~x


def logical_not_call(node: Node) -> CCall:
    require_types(DType.BOOL, (node.output,))
    return _call(node, "logical_not")


def _call(node: Node, function: str) -> CCall:
    parameters = CStruct("diagmem_unary_math_params", {"shape": c_elementwise(node)})
    return CCall("elementwise_unary_math.c", f"diagmem_{function}", parameters, (node.input(0), node.output))
