"""The arenas of a model in C: how an address in one is written, the functions that take one, and the static arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from diagmem.backends.c.program import Program
from diagmem.model.pools import PoolUse
from diagmem.planning.memory.caller import KEPT
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


@dataclass(frozen=True, slots=True)
class Function:
    """`argument`: type and name of its only parameter, if it has one. `arena`: the type of its twin's first one."""

    result: str
    name: str
    argument: tuple[str, str] | None = None
    arena: str = ARENA

    def declaration(self, model: str) -> str:
        return f"{self._typed(f'{model}_{self.name}')}({self._parameter or 'void'})"

    def declaration_in(self, model: str) -> str:
        parameter = f", {self._parameter}" if self.argument else ""
        return f"{self._typed(f'{model}_{self.name}_in')}({_declared(self.arena, 'arena')}{parameter})"

    def definition(self, model: str) -> str:
        """It calls its twin with the model's own arena."""
        passed = f", {self.argument[1]}" if self.argument else ""
        own = "static_arenas" if self.arena == ARENAS else "&static_arena"
        call = f"{model}_{self.name}_in({own}{passed});"
        return f"{self.declaration(model)} {{\n    {'' if self.result == 'void' else 'return '}{call}\n}}\n"

    @property
    def _parameter(self) -> str:
        return _declared(*self.argument) if self.argument else ""

    def _typed(self, name: str) -> str:
        return _declared(self.result, name)


def _declared(type_name: str, name: str) -> str:
    return f"{type_name}{'' if type_name.endswith('*') else ' '}{name}"


_INDEX = ("int", "index")
OUTPUT = Function("const void *", "output", _INDEX, ARENA_TO_READ)
INPUT = Function("void *", "input", _INDEX)
RESET = Function("void", "reset")
NEXT = Function("void *", "next_input", _INDEX)
TAKE = Function("void", "take_next")
_WHOLE = (INPUT, OUTPUT, Function("void", "invoke"))
_BY_ROWS = (Function("void", "start"), Function("int", "push_row", ("const void *", "row")), OUTPUT)


def functions(program: Program) -> tuple[Function, ...]:
    found: tuple[Function, ...] = _BY_ROWS if program.input_rows else _WHOLE
    found = (NEXT, TAKE, *found) if program.next_frames else found
    found = (RESET, *found) if program.states else found
    return tuple(replace(function, arena=ARENAS) for function in found) if program.pools else found


_ALIGNED_TYPES = {2: "int16_t", 4: "int32_t", 8: "int64_t"}

_WIDE_ALIGNMENT = """\
#if defined(__GNUC__)
#define ALIGNED __attribute__((aligned({macro}_ARENA_ALIGN)))
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define ALIGNED _Alignas({macro}_ARENA_ALIGN)
#else
#error this compiler cannot align the arena: define {macro}_NO_STATIC_ARENA and give one of your own
#endif
"""


def wide_alignment(program: Program, name: str) -> str:
    """What is needed where no plain type is aligned so widely."""
    return _WIDE_ALIGNMENT.format(macro=name.upper()) if _is_wide(program) else ""


def static_memory(program: Program, macro: str, variable: str) -> str:
    """An array of `macro`_BYTES where `macro`_ATTR puts it."""
    aligned = _ALIGNED_TYPES.get(program.align_bytes)
    alignment = f"    {aligned} alignment;\n" if aligned else ""
    return f"""\
static {"ALIGNED " if _is_wide(program) else ""}{macro}_ATTR union {{
    unsigned char bytes[{macro}_BYTES];
{alignment}}} {variable};
"""


def _is_wide(program: Program) -> bool:
    return program.align_bytes > max(_ALIGNED_TYPES)


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
