"""The text of NAME.c: parameters of every call, the functions that run the model, and the arena."""

from __future__ import annotations

from functools import partial

from diagmem.backends.c.arenas import address, address_to_read
from diagmem.backends.c.calls import listed_rows, parameters
from diagmem.backends.c.multicore import split_values
from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import repeated_turns, rows_of_tensors, run_values
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.text import rendered


def model_source(program: Program, tables: Tables, name: str, is_shared: bool = False) -> str:
    """NAME.c after its first comment. `is_shared`: the arena is that of a library of several models."""
    at, calls, numbers = partial(address, program), program.calls, {t: n for n, t in enumerate(program.graph.inputs)}
    constants = (
        *rows_of_tensors(program),
        *(parameters(node, calls[node.op.index], tables) for node in program.nodes),
        *(listed_rows(node, calls[node.op.index]) for node in program.nodes),
        *(repeated_turns(program, node) for node in program.nodes),
    )
    given = {
        "at": at,
        "tables": tables,
        "constants": constants,
        "input_places": {n: at(_start(program, t)) for t, n in numbers.items()},
        "output_places": {n: address_to_read(program, _start(program, t)) for n, t in enumerate(program.graph.outputs)},
        "next_places": {numbers[t]: at(program.offsets[following]) for t, following in program.next_frames.items()},
        **split_values(program, tables, name),
        **run_values(program, tables, name),
    }
    return rendered("model.c.j2", program, name, is_shared, **given)


def _start(program: Program, tensor: int) -> int:
    return program.offsets[tensor] if tensor in program.offsets else program.storage[tensor].offsets[0]
