"""Several memories in C: an arena in each, and a list of them wherever a model with one memory takes its arena."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.addresses import enumerator, pool_macro
from diagmem.backends.c.api import functions
from diagmem.backends.c.memory import static_memory, wide_alignment
from diagmem.backends.c.program import Program
from diagmem.planning.memory.caller import KEPT
from diagmem.planning.memory.pools import PoolUse


def pool_constants(program: Program, name: str, is_shared: bool = False) -> str:
    """In NAME.h: how much of each memory is used, its place in the list of arenas, and where its static arena goes.
    `is_shared`: that is for a library of several models to say, but for what lives from run to run."""
    macro, uses = name.upper(), program.pools.uses
    sizes = "".join(f"#define {pool_macro(name, use)}_BYTES {use.used_bytes}\n" for use in uses)
    hooks = "".join(
        f"#ifndef {pool_macro(name, use)}_ATTR\n#define {pool_macro(name, use)}_ATTR /* the model's own arena in "
        f"{use.pool.name} */\n#endif\n"
        for use in uses
        if _is_own(use, is_shared)
    )
    numbers = ", ".join(pool_macro(name, use) for use in uses)
    return f"""\
/* The memories, fastest first: an arena in each, and in a list of arenas each at its place.{_external(program)} */
enum {{ {numbers} }};
#define {macro}_POOLS {len(uses)}
{sizes}{hooks}"""


def _is_own(use: PoolUse, is_shared: bool) -> bool:
    """Whether the model brings along an array for it."""
    return not use.pool.is_external and (not is_shared or use.pool.name == KEPT)


def _external(program: Program) -> str:
    given = ", ".join(use.pool.name for use in program.pools.uses if use.pool.is_external)
    return f" You hold {given}:{_NEWLINE} * say where before each run, if it has moved." if given else ""


_NEWLINE = "\n"


def pool_places(program: Program, name: str) -> str:
    """Declarations of NAME_arena_POOL."""
    return "".join(f"{_place(name, use.pool.name)};\n" for use in program.pools.uses)


def pool_givers(program: Program, name: str) -> str:
    """Declarations of NAME_give_POOL: where the caller's memory is, for functions with the model's own arenas."""
    return "".join(f"{_give(name, use.pool.name)};\n" for use in program.pools.uses if use.pool.is_external)


def _give(name: str, pool: str) -> str:
    return f"void {name}_give_{pool.lower()}(void *memory)"


def _place(name: str, pool: str) -> str:
    return f"void *{name}_arena_{pool.lower()}(void *memory, size_t memory_bytes)"


def pool_addresses(program: Program, name: str) -> str:
    """In NAME.c: the address of an offset in a pool, and a check of what the caller gives."""
    macro = name.upper()
    short = "".join(f"#define {enumerator(use)} {pool_macro(name, use)}\n" for use in program.pools.uses)
    return f"""\
#define CHECK_ARENA() CHECK(are_arenas(arena))

{short}#define AT(pool, offset) ((void *)((unsigned char *)arena[pool] + (offset)))

#ifdef {macro}_DEBUG
static int are_arenas(void *const *arena) {{
    for (int pool = 0; pool < {macro}_POOLS; ++pool) {{
        if (arena == NULL || arena[pool] == NULL || (uintptr_t)arena[pool] % {macro}_ARENA_ALIGN != 0) {{
            return 0;
        }}
    }}
    return 1;
}}
#endif
"""


def pool_arenas(program: Program, name: str, is_shared: bool = False) -> Iterator[str]:
    """The functions that find an arena in memory of the caller's, and the model's own arenas. `is_shared`: those
    are of a library of several models, but for what lives from run to run."""
    macro, uses = name.upper(), program.pools.uses
    for use in uses:
        yield f"""\
{_place(name, use.pool.name)} {{
    const size_t skipped = (size_t)(-(uintptr_t)memory % {macro}_ARENA_ALIGN);
    if (memory == NULL || memory_bytes < skipped || memory_bytes - skipped < {pool_macro(name, use)}_BYTES) {{
        return NULL;
    }}
    return (unsigned char *)memory + skipped;
}}
"""
    held = [use for use in uses if not use.pool.is_external]
    own = "\n".join(
        static_memory(program, pool_macro(name, use), f"static_{use.pool.name.lower()}")
        for use in held
        if _is_own(use, is_shared)
    )
    listed = ", ".join(f"&static_{use.pool.name.lower()}" if use in held else "NULL" for use in uses)
    const = "const " if len(held) == len(uses) else ""
    given = "".join(
        f"{_give(name, use.pool.name)} {{\n    static_arenas[{enumerator(use)}] = memory;\n}}\n\n"
        for use in uses
        if use.pool.is_external
    )
    wrappers = "\n".join(function.definition(name) for function in functions(program))
    yield f"""\
#ifndef {macro}_NO_STATIC_ARENA
{wide_alignment(program, name)}{own}
static void *{const}static_arenas[{macro}_POOLS] = {{{listed}}};

{given}{wrappers}#endif
"""
