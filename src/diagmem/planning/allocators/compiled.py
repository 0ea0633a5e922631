"""Where the allocators' loops run: as plain Python on lists, or as machine code on arrays.

Both do the same and count the same. Machine code is numba's, an extra (`diagmem[fast]`); loading it takes a third of a
second, and making the code ten, once, so small problems do without.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar

Flat = TypeVar("Flat", bound=NamedTuple)

WORTH_WHILE = 60_000
"""Fits of a buffer with fifty neighbours, or nodes times members over ten: plain Python takes about half a second for
so many."""


class Machine:
    """Plain Python."""

    def loops(self, module: ModuleType) -> Any:
        """The functions of a module of loops."""
        return _plain(module)

    def ints(self, values: Iterable[int]) -> Any:
        """A sequence that the loops may read and change."""
        return list(values)

    def filled(self, count: int, value: int = 0) -> Any:
        return [value] * count

    def flat(self, value: Flat) -> Flat:
        """A tuple of sequences made fit for the loops."""
        return type(value)(*map(self.ints, value))


class _Compiled(Machine):
    def loops(self, module: ModuleType) -> Any:
        return _compiled(module)

    def ints(self, values: Iterable[int]) -> Any:
        import numpy as np

        return np.fromiter(values, dtype=np.int64)

    def filled(self, count: int, value: int = 0) -> Any:
        import numpy as np

        return np.full(count, value, dtype=np.int64)


PLAIN: Machine = Machine()
COMPILED: Machine = _Compiled()


def machine(work: int) -> Machine:
    """The one on which this much work is done sooner."""
    return COMPILED if work >= WORTH_WHILE and can_compile() else PLAIN


@cache
def can_compile() -> bool:
    """Whether numba is installed, and finds a place to keep what it makes: to compile in each process takes too long.

    Where it is not installed that is known without loading anything.
    """
    if find_spec("numba") is None:
        return False
    from numba import njit

    try:
        njit(cache=True)(_trial)
    except RuntimeError:
        return False
    return True


def _trial() -> int:
    return 0


@cache
def _plain(module: ModuleType) -> Any:
    """The functions that a module names in LOOPS, as they are, but for those that Python has a better way to do."""
    world = dict(vars(module))
    for name in module.LOOPS:
        world[name] = FunctionType(world[getattr(module, "IN_PYTHON", {}).get(name, name)].__code__, world, name)
    return SimpleNamespace(**{name: world[name] for name in module.LOOPS})


@cache
def _compiled(module: ModuleType) -> Any:
    """The functions that a module names in LOOPS, compiled. They call each other compiled too; the module's own stay
    what they are."""
    from numba import njit

    world = dict(vars(module))
    for name in module.LOOPS:
        world[name] = njit(cache=True)(FunctionType(world[name].__code__, world, name))
    return SimpleNamespace(**{name: world[name] for name in module.LOOPS})
