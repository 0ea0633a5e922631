"""One file per op kind. A newcomer adds an operation by adding its file: kinds are discovered, not listed."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from diagmem.ops._base import OpKind
from diagmem.ops._c_call import CArgument, CCall, CPointers, CRow, CRows, CStruct, CTable, CTurn, Unsupported, values_of

__all__ = [
    "CArgument",
    "CCall",
    "CPointers",
    "CRow",
    "CRows",
    "CStruct",
    "CTable",
    "CTurn",
    "OpKind",
    "Unsupported",
    "kind_of",
    "kinds",
    "values_of",
]


@cache
def kinds() -> dict[str, OpKind]:
    """TFLite's name of an operation -> the kind that knows it."""
    found: dict[str, OpKind] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        if module.startswith("_"):
            continue
        kind: OpKind = importlib.import_module(f"{__name__}.{module}").KIND
        for name in kind.names:
            if name in found:
                raise RuntimeError(f"{name} is claimed by two files in ops/")
            found[name] = kind
    return found


def kind_of(name: str) -> OpKind | None:
    """The kind that knows the operation; None where it is opaque (planned whole, never overlapped)."""
    return kinds().get(name)
