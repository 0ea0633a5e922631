"""The arenas of a model in C: how an address in one is written, the functions that take one, and the static arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagmem.backends.c.program import Program
from diagmem.model.pools import PoolUse
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
NEXT = (Function("void *", "next_input", _INDEX), Function("void", "take_next"))
_WHOLE = (INPUT, OUTPUT, Function("void", "invoke"))
_BY_ROWS = (Function("void", "start"), Function("int", "push_row", ("const void *", "row")), OUTPUT)


def functions(program: Program) -> tuple[Function, ...]:
    found: tuple[Function, ...] = _BY_ROWS if program.input_rows else _WHOLE
    found = (*NEXT, *found) if program.next_frames else found
    found = (RESET, *found) if program.states else found
    return tuple(replace(function, arena=ARENAS) for function in found) if program.pools else found


@dataclass(frozen=True, slots=True)
class Memory:
    """What an arena lies in: a pool, or all there is. `macro`: what its macros begin with. `variable`: the static
    array. `is_own`: the model brings one along. `find`, `give`: the functions that find an arena in memory of the
    caller's, and that say where the caller's memory is."""

    name: str
    macro: str
    variable: str
    used_bytes: int
    is_external: bool
    is_own: bool
    find: str
    give: str

    @property
    def place(self) -> str:
        """Where it is before the caller says so."""
        return "NULL" if self.is_external else f"&{self.variable}"


def memories(program: Program, name: str, is_shared: bool = False) -> list[Memory]:
    """Those of a model. `is_shared`: arenas are those of a library of several models, but for what lives from run to
    run."""
    if not program.pools:
        find = f"void *{name}_arena(void *memory, size_t memory_bytes)"
        return [Memory("", f"{name.upper()}_ARENA", "static_arena", program.arena_bytes, False, True, find, "")]
    return [_memory(name, use, is_shared) for use in program.pools.uses]


def _memory(name: str, use: PoolUse, is_shared: bool) -> Memory:
    pool, own = use.pool, use.pool.name.lower()
    return Memory(
        pool.name,
        pool_macro(name, use),
        f"static_{own}",
        use.used_bytes,
        pool.is_external,
        not pool.is_external and (not is_shared or pool.is_kept),
        f"void *{name}_arena_{own}(void *memory, size_t memory_bytes)",
        f"void {name}_give_{own}(void *memory)",
    )
