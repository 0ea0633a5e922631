"""Weights that are copied to RAM before an operation reads them over and over."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.addresses import address
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node, Tensor

STAGED = "staged"
"""What the parameters of a call are named whose weights lie in RAM."""


def copy_macro(program: Program, name: str) -> str:
    """In NAME.c: how weights are copied."""
    if not program.staged:
        return ""
    macro = f"{name.upper()}_COPY"
    copy = f"#ifndef {macro}\n#define {macro}(to, from, bytes) ((void)memcpy(to, from, bytes))\n#endif\n"
    if not program.copies_ahead:
        return f"""
/* Copies weights to RAM before an operation that reads them over and over. Yours may use DMA: the bytes must be there
 * when it is done. */
{copy}"""
    wait = f"{name.upper()}_COPIED"
    return f"""
/* Copies weights to RAM, an operation ahead of the one that reads them over and over. Yours may leave it to DMA, while
 * the operation before runs: {wait} waits until all is there that was begun. */
{copy}#ifndef {wait}
#define {wait}() ((void)0)
#endif
"""


def with_copies(node: Node, text: str, program: Program, tables: Tables, name: str, again: str = "") -> list[str]:
    """The lines of `text`, an operation's call, and what goes before it: its parameters, which say where copies of its
    weights lie; those copies, or a wait for them; and copies for the operation behind it. Where it has turns, `turn`
    says how many it has had, until `again` says which it is."""
    op, call = node.op.index, program.calls[node.op.index]
    fields = list(_fields(node, program)) if op in program.weight_copies else []
    if fields and call is not None:
        fields = [f"{call.parameters.type} {STAGED} = op{node.op.number};", *fields]
    waits = [f"{name.upper()}_COPIED();"] if program.copies_ahead and op in program.weight_copies else []
    lines = list[str]()
    for is_own in (True, False):
        for visit, nodes in sorted(program.copies.get(op, {}).items()):
            due = [line for n in nodes if (n is node) == is_own for line in _copies(n, program, tables, name)]
            lines += _at_turn(visit, due, program, op)
        lines += _at_turn(0, waits, program, op) if is_own else []
    lines = [*fields, *lines, *([again] if again else []), text]
    return ["{", *(f"    {line}" for line in lines), "}"] if fields else lines


def _at_turn(visit: int, lines: list[str], program: Program, op: int) -> list[str]:
    if not lines or op not in program.visits:
        return lines
    return [f"if (turn == {visit}) {{", *(f"    {line}" for line in lines), "}"]


def parameters_name(node: Node, program: Program) -> str:
    """What a call is given the address of."""
    found = program.weight_copies.get(node.op.index)
    has_fields = found is not None and any(part.field for part in found.parts)
    return STAGED if has_fields else f"op{node.op.number}"


def staged_address(node: Node, tensor: Tensor, program: Program) -> str | None:
    """Where the copy of a constant tensor lies, if there is one."""
    found = program.weight_copies.get(node.op.index)
    for part in found.parts if found is not None else ():
        if isinstance(part.source, Tensor) and part.source.index == tensor.index:
            return address(program, program.staged[node.op.index] + part.offset)
    return None


def _fields(node: Node, program: Program) -> Iterator[str]:
    at = program.staged[node.op.index]
    for part in program.weight_copies[node.op.index].parts:
        if part.field:
            yield f"{STAGED}.{part.field} = {address(program, at + part.offset)};"


def _copies(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    at = program.staged[node.op.index]
    for part in program.weight_copies[node.op.index].parts:
        source = part.source
        table = tables.constants[source.index] if isinstance(source, Tensor) else tables.names[source]
        yield f"{name.upper()}_COPY({address(program, at + part.offset)}, {table}, {part.data.nbytes});"
