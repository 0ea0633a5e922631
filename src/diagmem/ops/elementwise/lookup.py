"""A function of one 8-bit number, given by the results of all 256: what `tabulate` makes of several operations."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Op
from diagmem.ops.c_call import CCall, CTable, kernel_call, require_types
from diagmem.ops.elementwise.unary import UnaryKind
from diagmem.ops.kind import Array, Way
from diagmem.ops.loops.broadcast import c_elementwise
from diagmem.ops.options import CustomOptions, CustomTable

LOOKUP = "CUSTOM:DiagmemLookup"


@dataclass(frozen=True, slots=True)
class Lookup:
    """`results`: those of -128, -127, … 127, as bytes."""

    results: bytes = bytes(256)


class _Results(CustomTable):
    """Eight results in each number."""

    def decode(self, options: Mapping[str, Any] | None) -> Lookup:
        words = [(options or {}).get(str(place), 0) for place in range(32)]
        try:
            return Lookup(struct.pack("<32q", *words))
        except struct.error:
            raise ModelError("its table holds other than whole numbers of 64 bits; the file is damaged") from None

    def encode(self, op: Op, dtype: DType) -> CustomOptions:
        words = struct.unpack("<32q", op.attributes.results)
        return CustomOptions({str(place): word for place, word in enumerate(words)})


class LookupKind(UnaryKind):
    names = (LOOKUP,)
    table = {LOOKUP: _Results(Lookup)}

    def ways(self, name: str) -> dict[DType, Way]:
        return {DType.INT8: Way(lambda node, data: _results(node)[data.astype(np.int64) + 128], _call)}


def _results(node: Node) -> Array:
    return np.frombuffer(node.attributes.results, np.int8)


def _call(node: Node) -> CCall:
    require_types(DType.INT8, (node.input(0), node.output))
    fields = {"shape": c_elementwise(node), "table": CTable("table", _results(node))}
    return kernel_call("lookup_s8", fields, (node.input(0), node.output))


KIND = LookupKind()
