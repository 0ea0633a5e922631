"""The state of a model in C: what sets it to its first value."""

from __future__ import annotations

from diagmem.backends.c.addresses import address, arena_type
from diagmem.backends.c.calls import shape_of
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables, is_one_byte
from diagmem.model.graph import Tensor


def reset_function(program: Program, tables: Tables, name: str) -> str:
    """NAME_reset_in; nothing where there is no state."""
    if not program.states:
        return ""
    lines = "".join(_set(tensor, program, tables) for tensor in program.states)
    return f"void {name}_reset_in({arena_type(program)}arena) {{\n    CHECK_ARENA();\n{lines}}}\n"


def _set(tensor: Tensor, program: Program, tables: Tables) -> str:
    at, size = address(program, program.offsets[tensor.index]), tensor.size_bytes
    about = f"    /* '{comment(tensor.label)}': {shape_of(tensor)} */\n"
    if is_one_byte(tensor.first_values):
        return f"{about}    memset({at}, {tensor.first_values.tobytes()[0]}, {size});\n"
    return f"{about}    memcpy({at}, {tables.states[tensor.index]}, {size});\n"
