"""Addresses as C: in the arena or, where a chip has several memories, in the arena of a pool."""

from __future__ import annotations

from diagmem.backends.c.program import Program
from diagmem.planning.memory.pools import PoolUse
from diagmem.planning.plan import Storage

ARENA = "void *"
ARENA_TO_READ = "const void *"
ARENAS = "void *const *"
"""The type of what a function is given: the arena, or the arena in each pool."""


def arena_type(program: Program, is_read: bool = False) -> str:
    if program.pools:
        return ARENAS
    return ARENA_TO_READ if is_read else ARENA


def address(program: Program, at: int, further: str = "") -> str:
    """An expression of type void *. `further`: so many bytes behind it."""
    use, behind = program.pools.at(at), f" + {further}" if further else ""
    return f"AT({at}{behind})" if use is None else f"AT({enumerator(use)}, {at - use.start}{behind})"


def address_to_read(program: Program, at: int) -> str:
    """The same for what must not be written."""
    return address(program, at) if program.pools else f"(const unsigned char *)arena + {at}"


def arena_of(program: Program, tensor: int) -> str:
    """Where the rows of a tensor are counted from."""
    use = program.pools.at(program.how_rows_lie(tensor).offsets[0])
    return "arena" if use is None else f"arena[{enumerator(use)}]"


def in_its_arena(program: Program, storage: Storage) -> Storage:
    """How a tensor lies in its pool."""
    use = program.pools.at(storage.offsets[0])
    return storage if use is None else storage.moved(-use.start)


def enumerator(use: PoolUse) -> str:
    """The number of a pool in C, by a name that NAME.c gives it."""
    return f"POOL_{use.pool.name.upper()}"


def pool_macro(name: str, use: PoolUse) -> str:
    """`NAME_POOL_DTCM`: what the macros of a pool begin with, and its number."""
    return f"{name.upper()}_{enumerator(use)}"
