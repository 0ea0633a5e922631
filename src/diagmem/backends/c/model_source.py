"""The text of NAME.c: parameters of every call, the function that runs the model, and the arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diagmem.backends.c.api import functions
from diagmem.backends.c.literals import initialiser
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.graph import Node, Tensor
from diagmem.ops import CArgument, CCall, CPointers, CScratch

_ALIGNED_TYPES = {2: "int16_t", 4: "int32_t", 8: "int64_t"}


def model_source(program: Program, tables: Tables, name: str) -> str:
    """NAME.c after its first comment."""
    parts = (
        opening(name),
        *(parameters(node, program.calls[node.op.index], tables) for node in program.nodes),
        _invoke(program, tables, name),
        accessor(program, f"{name}_input", program.graph.inputs),
        accessor(program, f"{name}_output", program.graph.outputs),
        static_arena(program, name),
    )
    return "\n".join(part for part in parts if part)


def describe(node: Node) -> str:
    """`op 7 'block3/dw' (DEPTHWISE_CONV_2D): 1x24x24x32 -> 1x12x12x32`."""
    inputs = ", ".join(shape_of(t) for _, t in node.activations())
    return comment(f"{node.label}: {inputs} -> {', '.join(shape_of(t) for t in node.outputs)}")


def shape_of(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "1"


def opening(name: str, headers: Sequence[str] = ("stddef.h",)) -> str:
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


def parameters(node: Node, call: CCall | None, tables: Tables) -> str:
    if call is None:
        return ""
    struct = initialiser(call.parameters, tables.names)
    return f"/* {describe(node)} */\nstatic const {call.parameters.type} op{node.op.number} = {struct};\n"


def _invoke(program: Program, tables: Tables, name: str) -> str:
    body = "".join(line for node in program.nodes for line in _step(node, program, tables, name))
    return f"void {name}_invoke_in(void *arena) {{\n{unused_arena(body)}{body}}}\n"


def _step(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    number, call = node.op.number, program.calls[node.op.index]
    if call is None:
        yield f"    /* {describe(node)}: stays where it is */\n"
    else:
        arguments = (_argument(a, node, program, tables) for a in call.arguments)
        yield f"    {call.function}({', '.join([f'&op{number}', *arguments])});\n"
    yield f"    {name.upper()}_AFTER_OP({number});\n"


def _argument(argument: CArgument, node: Node, program: Program, tables: Tables) -> str:
    if isinstance(argument, CPointers):
        return pointers(argument, (_argument(t, node, program, tables) for t in argument.tensors))
    if isinstance(argument, CScratch):
        return f"AT({program.scratch[node.op.index]})"
    if not isinstance(argument, Tensor):
        raise TypeError("single rows are for programs that run row by row")
    return address(argument, program, tables)


def pointers(argument: CPointers, addresses: Iterable[str]) -> str:
    element = "void *const" if argument.is_written else "const void *const"
    return f"({element}[]){{{', '.join(addresses)}}}"


def address(tensor: Tensor, program: Program, tables: Tables) -> str:
    return tables.constants[tensor.index] if tensor.is_constant else f"AT({program.offsets[tensor.index]})"


def accessor(program: Program, function: str, tensors: Sequence[int]) -> str:
    cases = "".join(f"    case {n}:\n        return AT({program.offsets[t]});\n" for n, t in enumerate(tensors))
    return f"""\
void *{function}_in(void *arena, int index) {{
{unused_arena(cases)}    switch (index) {{
{cases}    default:
        return NULL;
    }}
}}
"""


def unused_arena(body: str) -> str:
    """A line that keeps compilers quiet where a function has no use for its arena."""
    return "" if "AT(" in body else "    (void)arena;\n"


def static_arena(program: Program, name: str) -> str:
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
