"""How an operation is called in C: small values that the C backend renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy.typing as npt

from diagmem.graph import DType, Node, Tensor

MAX_ROWS = "DIAGMEM_MAX_ROWS"
"""Limit: rows of the largest window."""

MAX_TAPS = "DIAGMEM_MAX_TAPS"
"""Limit: pixels of the largest window."""


class Unsupported(Exception):
    """An operation that has no kernel; the message says why, and what there is."""


@dataclass(frozen=True, slots=True, eq=False)
class CTable:
    """Constant data in flash. `name` says what they are to the operation: filter, bias, …"""

    name: str
    data: npt.NDArray[Any]


CValue = Union[int, float, tuple[int, ...], CTable, "CStruct", None]
"""What a field may hold; None is a null pointer."""


@dataclass(frozen=True, slots=True)
class CStruct:
    """A constant of the C type `type`."""

    type: str
    fields: Mapping[str, CValue]


@dataclass(frozen=True, slots=True)
class CCall:
    """The call `function(&parameters, argument, …)` of a kernel in the file `source` beside the op kind's own.

    `arguments`: the tensors whose addresses are passed, in the arena or, if constant, in flash. `limits`: C macros that
    bound what the kernel keeps on the stack; a program defines each as the largest that any of its calls asks for.
    """

    source: str
    function: str
    parameters: CStruct
    arguments: tuple[Tensor, ...]
    limits: Mapping[str, int] = field(default_factory=dict)


def kernel_call(
    stem: str, fields: Mapping[str, CValue], arguments: tuple[Tensor, ...], limits: Mapping[str, int] | None = None
) -> CCall:
    """The call of the one kernel in `stem`.c, by the names that such a file uses."""
    return CCall(f"{stem}.c", f"diagmem_{stem}", CStruct(f"diagmem_{stem}_params", fields), arguments, limits or {})


def by_type(node: Node, choices: Mapping[DType, Callable[[Node], CCall]]) -> CCall:
    """The call for the type of the first input."""
    dtype = node.input(0).dtype
    if dtype not in choices:
        raise Unsupported(f"{dtype.value} elements; supported: {', '.join(d.value for d in choices)}")
    return choices[dtype](node)


def values_of(tensor: Tensor) -> npt.NDArray[Any]:
    """The values of a constant, which the model must hold."""
    if tensor.data is None:
        reason = "are not in the model" if tensor.is_constant else "are computed, and must be constant"
        raise Unsupported(f"the values of '{tensor.label}' {reason}")
    return tensor.data
