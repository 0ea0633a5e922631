"""The text of NAME.c: parameters of every call, the functions that run the model, and the arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from diagmem.backends.c.addresses import address, address_to_read, arena_type
from diagmem.backends.c.api import INPUT, OUTPUT, Function, functions
from diagmem.backends.c.calls import call_text, describe, listed_rows, parameters
from diagmem.backends.c.frames import next_frame_functions
from diagmem.backends.c.memory import static_memory, wide_alignment
from diagmem.backends.c.pools import pool_addresses, pool_arenas
from diagmem.backends.c.program import Program
from diagmem.backends.c.sequence import repeated_turns, rows_of_tensors, run_in_sequence
from diagmem.backends.c.staging import copy_macro, with_copies
from diagmem.backends.c.state import reset_function
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.team import run_as_team
from diagmem.backends.c.team_rows import run_rows_as_team
from diagmem.model.graph import Node


def model_source(program: Program, tables: Tables, name: str, is_shared: bool = False) -> str:
    """NAME.c after its first comment. `is_shared`: the arena is that of a library of several models."""
    inputs = () if program.input_rows else (_accessor(program, INPUT, name, program.graph.inputs),)
    parts = (
        _opening(program, name),
        *rows_of_tensors(program),
        *(parameters(node, program.calls[node.op.index], tables) for node in program.nodes),
        *(listed_rows(node, program.calls[node.op.index]) for node in program.nodes),
        *(repeated_turns(program, node) for node in program.nodes),
        *_run(program, tables, name),
        reset_function(program, tables, name),
        next_frame_functions(program, name),
        *inputs,
        _accessor(program, OUTPUT, name, program.graph.outputs),
        *(pool_arenas(program, name, is_shared) if program.pools else (_arena(name), _static_arena(program, name))),
    )
    return "\n".join(part for part in parts if part)


def _opening(program: Program, name: str) -> str:
    macro = name.upper()
    needs_string = program.input_rows or program.states or program.next_frames or program.staged or program.multicore
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


def _run(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The functions that run the model."""
    if program.multicore is not None:
        yield from (run_rows_as_team if program.visits else run_as_team)(program, tables, name)
    elif program.visits:
        yield from run_in_sequence(program, tables, name)
    else:
        yield _run_straight(program, tables, name)


def _run_straight(program: Program, tables: Tables, name: str) -> str:
    """One call after the other."""
    body = "".join(line for node in program.nodes for line in _step(node, program, tables, name))
    opening = f"{name.upper()}_CODE_ATTR void {name}_invoke_in({arena_type(program)}arena)"
    return f"{opening} {{\n{_unused_arena(body)}    CHECK_ARENA();\n{body}}}\n"


def _step(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    number, call = node.op.number, program.calls[node.op.index]
    text = f"/* {describe(node)}: stays where it is */" if call is None else call_text(node, call, program, tables)
    yield from (f"    {line}\n" for line in with_copies(node, text, program, tables, name))
    yield f"    {name.upper()}_AFTER_OP({number});\n"


def _accessor(program: Program, function: Function, name: str, tensors: Sequence[int]) -> str:
    starts = (program.offsets[t] if t in program.offsets else program.storage[t].offsets[0] for t in tensors)
    text = address_to_read if function == OUTPUT else address
    cases = "".join(f"    case {n}:\n        return {text(program, start)};\n" for n, start in enumerate(starts))
    return f"""\
{replace(function, arena=arena_type(program, function == OUTPUT)).declaration_in(name)} {{
    CHECK_ARENA();
{_unused_arena(cases)}    switch (index) {{
{cases}    default:
        return NULL;
    }}
}}
"""


def _unused_arena(body: str) -> str:
    """A line that keeps compilers quiet where a function has no use for its arena."""
    return "" if "AT(" in body or "arena +" in body else "    (void)arena;\n"


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
