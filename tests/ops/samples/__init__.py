"""How the tests draw each kind of operation: a module for each in `src/diagmem/ops/`, found by being here."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

for found in iter_modules(__path__):
    import_module(f"{__name__}.{found.name}")
