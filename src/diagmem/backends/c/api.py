"""The functions that a firmware calls. Each has a twin that takes the arena: NAME_invoke and NAME_invoke_in(arena)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagmem.backends.c.addresses import ARENA, ARENA_TO_READ, ARENAS
from diagmem.backends.c.program import Program


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
