"""The text of NAME.c: parameters of every call, the functions that run the model, and the arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.backends.c.api import functions
from diagmem.backends.c.calls import call_text, describe, listed_rows, parameters
from diagmem.backends.c.program import Program
from diagmem.backends.c.sequence import repeated_turns, row_storage, run_in_sequence
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node

_ALIGNED_TYPES = {2: "int16_t", 4: "int32_t", 8: "int64_t"}


def model_source(program: Program, tables: Tables, name: str) -> str:
    """NAME.c after its first comment."""
    inputs = () if program.input_rows else (_accessor(program, f"{name}_input", program.graph.inputs),)
    parts = (
        _opening(name, ("stddef.h", "string.h") if program.input_rows else ("stddef.h",)),
        *(row_storage(program.graph.tensors[t], storage) for t, storage in program.by_rows.items()),
        *(parameters(node, program.calls[node.op.index], tables) for node in program.nodes),
        *(listed_rows(node, program.calls[node.op.index]) for node in program.nodes),
        *(repeated_turns(program, node) for node in program.nodes),
        *(run_in_sequence(program, tables, name) if program.visits else (_run_straight(program, tables, name),)),
        *inputs,
        _accessor(program, f"{name}_output", program.graph.outputs),
        _static_arena(program, name),
    )
    return "\n".join(part for part in parts if part)


def _opening(name: str, headers: Sequence[str]) -> str:
    macro = name.upper()
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

#define AT(offset) ((void *)((unsigned char *)arena + (offset)))
"""


def _run_straight(program: Program, tables: Tables, name: str) -> str:
    """One call after the other."""
    body = "".join(line for node in program.nodes for line in _step(node, program, tables, name))
    return f"void {name}_invoke_in(void *arena) {{\n{_unused_arena(body)}{body}}}\n"


def _step(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    number, call = node.op.number, program.calls[node.op.index]
    if call is None:
        yield f"    /* {describe(node)}: stays where it is */\n"
    else:
        yield f"    {call_text(node, call, program, tables)}\n"
    yield f"    {name.upper()}_AFTER_OP({number});\n"


def _accessor(program: Program, function: str, tensors: Sequence[int]) -> str:
    starts = (program.storage[t].offsets[0] for t in tensors)
    cases = "".join(f"    case {n}:\n        return AT({start});\n" for n, start in enumerate(starts))
    return f"""\
void *{function}_in(void *arena, int index) {{
{_unused_arena(cases)}    switch (index) {{
{cases}    default:
        return NULL;
    }}
}}
"""


def _unused_arena(body: str) -> str:
    """A line that keeps compilers quiet where a function has no use for its arena."""
    return "" if "AT(" in body else "    (void)arena;\n"


def _static_arena(program: Program, name: str) -> str:
    macro = name.upper()
    wrappers = "\n".join(function.definition(name) for function in functions(program))
    aligned = _ALIGNED_TYPES.get(program.align_bytes)
    alignment = f"    {aligned} alignment;\n" if aligned else ""
    return f"""\
#ifndef {macro}_NO_STATIC_ARENA
static union {{
    unsigned char bytes[{macro}_ARENA_BYTES];
{alignment}}} static_arena;

{wrappers}#endif
"""
