"""The text of NAME.c: parameters of every call, the functions that run the model, and the arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagmem.backends.c.arenas import (
    INPUT,
    NEXT,
    OUTPUT,
    TAKE,
    Function,
    address,
    address_to_read,
    arena_type,
    functions,
    pool_addresses,
    pool_arenas,
    static_memory,
    wide_alignment,
)
from diagmem.backends.c.calls import copy_macro, listed_rows, parameters, shape_of
from diagmem.backends.c.literals import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import repeated_turns, rows_of_tensors, run_functions, unused_arena
from diagmem.backends.c.tables import Tables, is_one_byte
from diagmem.model.graph import Tensor


def model_source(program: Program, tables: Tables, name: str, is_shared: bool = False) -> str:
    """NAME.c after its first comment. `is_shared`: the arena is that of a library of several models."""
    inputs = () if program.input_rows else (_accessor(program, INPUT, name, program.graph.inputs),)
    parts = (
        _opening(program, name),
        *rows_of_tensors(program),
        *(parameters(node, program.calls[node.op.index], tables) for node in program.nodes),
        *(listed_rows(node, program.calls[node.op.index]) for node in program.nodes),
        *(repeated_turns(program, node) for node in program.nodes),
        *run_functions(program, tables, name),
        reset_function(program, tables, name),
        next_frame_functions(program, name),
        *inputs,
        _accessor(program, OUTPUT, name, program.graph.outputs),
        *(pool_arenas(program, name, is_shared) if program.pools else (_arena(name), _static_arena(program, name))),
    )
    return "\n".join(part for part in parts if part)


def _opening(program: Program, name: str) -> str:
    macro = name.upper()
    needs_string = (
        program.input_rows or program.states or program.next_frames or program.weight_copies or program.multicore
    )
    headers = ("stddef.h", "string.h") if needs_string else ("stddef.h",)
    included = "\n".join(f"#include <{header}>" for header in headers)
    return f"""\
#include "{name}.h"

{included}

#include "{name}_kernels.h"
#include "{name}_weights.h"

/* Called after each operation with its index in the model's file: to feed a watchdog, to measure, to look on. */
#ifndef {macro}_AFTER_OP
#define {macro}_AFTER_OP(op) ((void)0)
#endif
{copy_macro(program, name)}
/* In debug builds, those with {macro}_DEBUG, what the caller has to see to is checked. */
#ifndef {macro}_DEBUG
#define CHECK(condition) ((void)0)
#elif defined({macro}_ASSERT)
#define CHECK(condition) {macro}_ASSERT(condition)
#else
#include <assert.h>
#define CHECK(condition) assert(condition)
#endif
{pool_addresses(program, name) if program.pools else _ADDRESSES.format(macro=macro)}"""


_ADDRESSES = """\
#define CHECK_ARENA() CHECK(arena != NULL && (uintptr_t)arena % {macro}_ARENA_ALIGN == 0)

#define AT(offset) ((void *)((unsigned char *)arena + (offset)))
"""


def _accessor(program: Program, function: Function, name: str, tensors: Sequence[int]) -> str:
    starts = (program.offsets[t] if t in program.offsets else program.storage[t].offsets[0] for t in tensors)
    text = address_to_read if function == OUTPUT else address
    cases = "".join(f"    case {n}:\n        return {text(program, start)};\n" for n, start in enumerate(starts))
    return f"""\
{replace(function, arena=arena_type(program, function == OUTPUT)).declaration_in(name)} {{
    CHECK_ARENA();
{unused_arena(cases)}    switch (index) {{
{cases}    default:
        return NULL;
    }}
}}
"""


def _arena(name: str) -> str:
    macro = name.upper()
    return f"""\
void *{name}_arena(void *memory, size_t memory_bytes) {{
    const size_t skipped = (size_t)(-(uintptr_t)memory % {macro}_ARENA_ALIGN);
    if (memory == NULL || memory_bytes < skipped || memory_bytes - skipped < {macro}_ARENA_BYTES) {{
        return NULL;
    }}
    return (unsigned char *)memory + skipped;
}}
"""


def _static_arena(program: Program, name: str) -> str:
    macro = name.upper()
    wrappers = "\n".join(function.definition(name) for function in functions(program))
    return f"""\
#ifndef {macro}_NO_STATIC_ARENA
{wide_alignment(program, name)}\
{static_memory(program, f"{macro}_ARENA", "static_arena")}
{wrappers}#endif
"""


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


def next_frame_functions(program: Program, name: str) -> str:
    """NAME_next_input_in and NAME_take_next_in; nothing where no input is double-buffered."""
    if not program.next_frames:
        return ""
    numbers = {tensor: number for number, tensor in enumerate(program.graph.inputs)}
    places = {t: (_at(program, t), _at(program, following)) for t, following in program.next_frames.items()}
    cases = "".join(f"    case {numbers[t]}:\n        return {found};\n" for t, (_, found) in places.items())
    copies = "".join(
        f"    /* '{comment(program.graph.tensors[t].label)}' */\n"
        f"    memcpy({this}, {following}, {program.graph.tensors[t].size_bytes});\n"
        for t, (this, following) in places.items()
    )
    arena = arena_type(program)
    return f"""\
{replace(NEXT, arena=arena).declaration_in(name)} {{
    CHECK_ARENA();
    switch (index) {{
{cases}    default:
        return NULL;
    }}
}}

{replace(TAKE, arena=arena).declaration_in(name)} {{
    CHECK_ARENA();
{copies}}}
"""


def _at(program: Program, tensor: int) -> str:
    return address(program, program.offsets[tensor])
