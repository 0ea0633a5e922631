"""Weights that are copied to RAM before an operation reads them over and over."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.addresses import address
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node, Tensor
from diagmem.ops import CCall

STAGED = "staged"
"""What the parameters of a call are named whose weights lie in RAM."""


def copy_macro(program: Program, name: str) -> str:
    """In NAME.c: how weights are copied."""
    if not program.staged:
        return ""
    macro = f"{name.upper()}_COPY"
    return f"""
/* Copies weights to RAM before an operation that reads them over and over. Yours may use DMA: the bytes must be there
 * when it is done. */
#ifndef {macro}
#define {macro}(to, from, bytes) ((void)memcpy(to, from, bytes))
#endif
"""


def staged_call(node: Node, call: CCall, text: str, program: Program, tables: Tables, name: str) -> list[str]:
    """The lines of a block around `text`, a call that takes its parameters from `staged`: they say where the copy lies.
    Where the operation has turns, `turn` says which, and the first one copies."""
    copies = list(_copies(node, program, tables, name))
    if node.op.index in program.visits:
        copies = ["if (turn == 0) {", *(f"    {line}" for line in copies), "}"]
    fields = list(_fields(node, program))
    if fields:
        fields = [f"{call.parameters.type} {STAGED} = op{node.op.number};", *fields]
    return [*fields, *copies, text]


def parameters_name(node: Node, program: Program) -> str:
    """What a call is given the address of."""
    found = program.staged_weights.get(node.op.index)
    has_fields = found is not None and any(part.field for part in found.parts)
    return STAGED if has_fields else f"op{node.op.number}"


def staged_address(node: Node, tensor: Tensor, program: Program) -> str | None:
    """Where the copy of a constant tensor lies, if there is one."""
    found = program.staged_weights.get(node.op.index)
    for part in found.parts if found is not None else ():
        if isinstance(part.source, Tensor) and part.source.index == tensor.index:
            return address(program, program.staged[node.op.index] + part.offset)
    return None


def _fields(node: Node, program: Program) -> Iterator[str]:
    at = program.staged[node.op.index]
    for part in program.staged_weights[node.op.index].parts:
        if part.field:
            yield f"{STAGED}.{part.field} = {address(program, at + part.offset)};"


def _copies(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    at = program.staged[node.op.index]
    for part in program.staged_weights[node.op.index].parts:
        source = part.source
        table = tables.constants[source.index] if isinstance(source, Tensor) else tables.names[source]
        yield f"{name.upper()}_COPY({address(program, at + part.offset)}, {table}, {part.data.nbytes});"
