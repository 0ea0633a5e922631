"""Where loops that run millions of times run: as plain Python on lists, or as machine code on arrays.

Both do the same and count the same. Machine code is numba's, an extra (`diagmem[fast]`); loading what it has made takes
a twentieth of a second, and making it ten, once, so the smallest problems do without.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from diagmem.planning.machine_code import can_compile, is_at_hand, native, scope

Flat = TypeVar("Flat", bound=NamedTuple)

WORTH_WHILE, WORTH_A_LOOP = 20_000, 1_000
"""Fits of a buffer with fifty neighbours, or nodes times members over ten: plain Python takes about a fifth of a second
for so many; and a hundredth, if other loops are at hand already."""


class Machine:
    """Plain Python."""

    def loops(self, module: ModuleType) -> Any:
        """The functions that a module names in ENTRIES."""
        return _plain(module)

    def ints(self, values: Iterable[int]) -> Any:
        """A sequence that the loops may read and change."""
        return values.tolist() if hasattr(values, "tolist") else list(values)

    def filled(self, count: int, value: int = 0) -> Any:
        return [value] * count

    def listed(self, values: Any) -> list[int]:
        """What the loops have made of a sequence, as plain integers."""
        return list(values)

    def flat(self, value: Flat) -> Flat:
        """A tuple of sequences made fit for the loops."""
        return type(value)(*map(self.ints, value))


class _Compiled(Machine):
    def loops(self, module: ModuleType) -> Any:
        return _NativeLoops(module)

    def ints(self, values: Iterable[int]) -> Any:
        import numpy as np

        return np.array(values, np.int64) if hasattr(values, "tolist") else np.fromiter(values, dtype=np.int64)

    def filled(self, count: int, value: int = 0) -> Any:
        import numpy as np

        return np.full(count, value, dtype=np.int64)

    def listed(self, values: Any) -> list[int]:
        found: list[int] = values.tolist()
        return found


PLAIN: Machine = Machine()
COMPILED: Machine = _Compiled()


def machine(work: int) -> Machine:
    """The one on which this much work is done sooner."""
    least = WORTH_A_LOOP if is_at_hand() else WORTH_WHILE
    return COMPILED if work >= least and can_compile() else PLAIN


class _NativeLoops:
    """The functions of a module, each compiled when it is first asked for."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return native(self._module, name)


@cache
def _plain(module: ModuleType) -> Any:
    """The functions as they are, but for those that Python has a better way to do."""
    world = scope(module)
    for name in module.LOOPS:
        world[name] = FunctionType(world[getattr(module, "IN_PYTHON", {}).get(name, name)].__code__, world, name)
    return SimpleNamespace(**{name: world[name] for name in module.ENTRIES})
