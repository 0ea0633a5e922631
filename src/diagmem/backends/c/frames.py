"""Double-buffered inputs in C: where the next frame is written, and how it becomes this one."""

from __future__ import annotations

from dataclasses import replace

from diagmem.backends.c.addresses import address, arena_type
from diagmem.backends.c.api import NEXT, TAKE
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program


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
