"""Weights that are copied to RAM before an operation reads them over and over: which, and how the copy lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from diagmem.model.graph import Tensor
from diagmem.ops.c_call import CCall, CStruct, CTable, values_of

LEAST_ALIGN = 4
"""Kernels load weights in words, and so do most that copy."""

READ_ONCE = frozenset(("padding",))
"""Tables that are looked at along the edge of an image only."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedPart:
    """Data at an offset of the copy. `source`: a table, whose address the kernel finds in the `field` of its
    parameters, such as output.bias; or a constant tensor, whose address it is given."""

    source: CTable | Tensor
    data: npt.NDArray[Any]
    field: str
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class StagedWeights:
    """All constants that a call reads over and over, one behind the other. `passes`: how often a run reads each."""

    parts: tuple[StagedPart, ...]
    size_bytes: int
    align_bytes: int
    passes: int


def staged_weights(call: CCall) -> StagedWeights | None:
    """What of a call can be copied; None where it has no constants."""
    parts: list[StagedPart] = []
    end, widest = 0, LEAST_ALIGN
    for source, field, data in _constants(call):
        align = max(LEAST_ALIGN, data.dtype.itemsize)
        offset = -(-end // align) * align
        parts.append(StagedPart(source, data, field, offset))
        end, widest = offset + data.nbytes, max(widest, align)
    return StagedWeights(tuple(parts), end, widest, call.passes) if parts else None


def _constants(call: CCall) -> Iterator[tuple[CTable | Tensor, str, npt.NDArray[Any]]]:
    for table, field in _tables(call.parameters):
        if table.name not in READ_ONCE and table.data.nbytes:
            yield table, field, table.data
    for tensor in dict.fromkeys(t for t in call.tensors if t.is_constant and t.elems):
        yield tensor, "", values_of(tensor)


def _tables(struct: CStruct, before: str = "") -> Iterator[tuple[CTable, str]]:
    for name, value in struct.fields.items():
        if isinstance(value, CTable):
            yield value, f"{before}{name}"
        elif isinstance(value, CStruct):
            yield from _tables(value, f"{before}{name}.")
