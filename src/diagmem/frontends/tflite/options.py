"""The options of operations: tables of the schema, or, of operations that TFLite does not define, a map from names to
numbers in a flexbuffer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import tflite

from diagmem.model.errors import ModelError
from diagmem.ops.options import CUSTOM

MOST_OPTIONS = 64
"""Of one operation."""


def options_of(kind: str, operator: Any) -> Any:
    """What the kind decodes; None where there is nothing."""
    if not kind.startswith(CUSTOM):
        return _table(operator)
    return read(operator.CustomOptionsAsNumpy().tobytes()) if operator.CustomOptionsLength() else None


@cache
def _option_classes() -> dict[int, type[Any]]:
    return {
        v: getattr(tflite, k)
        for k, v in vars(tflite.BuiltinOptions).items()
        if isinstance(v, int) and hasattr(tflite, k)
    }


def _table(operator: Any) -> Any:
    """The table of options, in the schema's class for it; None where there is none."""
    cls = _option_classes().get(operator.BuiltinOptionsType())
    union = operator.BuiltinOptions()
    if cls is None or union is None:
        return None
    options = cls()
    options.Init(union.Bytes, union.Pos)
    return options


def read(raw: bytes) -> Mapping[str, Any]:
    """The numbers in the map; what else is in it is left out. A flexbuffer that holds no map holds no options."""
    if len(raw) < 3:
        return {}
    from flatbuffers import flexbuffers

    root = flexbuffers.GetRoot(bytearray(raw))
    if not root.IsMap:
        return {}
    keys, values = root.AsMap.Keys, root.AsMap.Values
    if len(keys) > MOST_OPTIONS:
        raise ModelError(f"{len(keys)} options are beyond the limit of {MOST_OPTIONS}; the file is damaged")
    found = {str(keys[i].AsKey): _number(values[i]) for i in range(len(keys))}
    return {name: value for name, value in found.items() if value is not None}


def _number(value: Any) -> int | float | None:
    if value.IsBool:
        return int(value.AsBool)
    if value.IsInt:
        return int(value.AsInt)
    return float(value.AsFloat) if value.IsFloat else None


def write(fields: Mapping[str, float | int]) -> bytes:
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    builder.MapFromElements(dict(fields))
    return bytes(builder.Finish())
