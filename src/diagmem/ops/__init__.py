"""Op kinds in the packages of their families. A newcomer adds an operation by adding its files: kinds are discovered,
not listed."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from diagmem.model.graph import Node
from diagmem.ops.c_call import Unsupported
from diagmem.ops.kind import OpKind
from diagmem.ops.options import Activation, BuiltinOptions
from diagmem.ops.orders import InstructionSet, Order, Variant

__all__ = ["Activation", "BuiltinOptions", "InstructionSet", "OpKind", "Order", "Unsupported", "Variant"]

SHARED = ("loops", "numerics")
"""Packages that hold what families share; every other package is a family."""


@cache
def kinds() -> dict[str, OpKind]:
    """TFLite's name of an operation -> the kind that knows it."""
    found: dict[str, OpKind] = {}
    for kind in (kind for module in _modules() for kind in _kinds_in(module)):
        for name in kind.names:
            if name in found:
                raise RuntimeError(f"{name} is claimed by two kinds in ops/")
            found[name] = kind
    return found


@cache
def kind_of(name: str) -> OpKind | None:
    """The kind that knows the operation; None where it is opaque (planned whole, never overlapped). A network has few
    kinds, and to load all of them takes longer than to plan it: those whose text has the name are asked first."""
    mentioning = (kind for module, text in _texts().items() if f'"{name}"' in text for kind in _kinds_in(module))
    return next((kind for kind in mentioning if name in kind.names), None) or kinds().get(name)


def node_macs(node: Node) -> int:
    """Multiply-accumulates of an op; 0 where nobody knows it."""
    kind = kind_of(node.op.kind)
    return 0 if kind is None else kind.macs(node)


def _kinds_in(module: str) -> tuple[OpKind, ...]:
    """The kind of a file, or its kinds where it holds several."""
    found = importlib.import_module(module)
    return found.KINDS if hasattr(found, "KINDS") else (found.KIND,)


@cache
def _texts() -> dict[str, str]:
    """Of the modules whose source is at hand."""
    found = {}
    for module in _modules():
        with suppress(OSError):
            found[module] = Path(__path__[0], *module.split(".")[-2:]).with_suffix(".py").read_text("utf-8")
    return found


def _modules() -> Iterator[str]:
    """The modules of all families. One whose name begins with an underscore belongs to the kinds beside it."""
    for family in pkgutil.iter_modules(__path__):
        if not family.ispkg or family.name in SHARED:
            continue
        for module in pkgutil.iter_modules([str(Path(__path__[0], family.name))]):
            if not module.name.startswith("_"):
                yield f"{__name__}.{family.name}.{module.name}"
