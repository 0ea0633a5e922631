"""Calls of kernels as C: parameters, arguments, and copies of weights that go before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from diagmem.backends.c.arenas import address, arena_of
from diagmem.backends.c.literals import comment, initialiser, numbers, shape_of
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node, Tensor
from diagmem.ops.c_call import CArgument, CCall, CPointers, CRow, CRows, CScratch, CTurn


def describe(node: Node) -> str:
    """`op 7 'block3/dw' (DEPTHWISE_CONV_2D): 1x24x24x32 -> 1x12x12x32`."""
    inputs = ", ".join(shape_of(t) for _, t in node.activations())
    return comment(f"{node.label}: {inputs} -> {', '.join(shape_of(t) for t in node.outputs)}")


def parameters(node: Node, call: CCall | None, tables: Tables) -> str:
    """A constant `opN`: what the kernel must know beside addresses."""
    if call is None:
        return ""
    struct = initialiser(call.parameters, tables.names)
    return f"/* {describe(node)} */\nstatic const {call.parameters.type} op{node.op.number} = {struct};\n"


def listed_rows(node: Node, call: CCall | None) -> str:
    """Which rows the turns take, where no rule tells."""
    rows = [(n, a.rows) for n, a in enumerate(call.arguments if call else ()) if isinstance(a, CRow) and a.rows]
    return "".join(small_numbers(f"op{node.op.number}_rows{n}", found) for n, found in rows)


def small_numbers(name: str, values: Sequence[int]) -> str:
    """A constant array in the narrowest type."""
    lines, width = "\n".join(numbers(np.array(values))), 8 if max(values) < 256 else 16
    return f"static const uint{width}_t {name}[{len(values)}] = {{\n{lines}\n}};\n"


def call_text(node: Node, call: CCall, program: Program, tables: Tables, given: Mapping[int, str] | None = None) -> str:
    """The call as a statement. Where it is for a single turn, `turn` says which. `given`: some arguments."""
    known = given or {}
    arguments = (known.get(n) or _argument(a, n, node, program, tables) for n, a in enumerate(call.arguments))
    return f"{call.function}({', '.join([f'&{parameters_name(node, program)}', *arguments])});"


def argument_text(tensor: Tensor, node: Node, program: Program, tables: Tables, further: str = "") -> str:
    """The address of a tensor, or of what lies so many bytes further on."""
    if not further:
        return _argument(tensor, 0, node, program, tables)
    if tensor.is_constant:
        return f"(const void *)((const unsigned char *){tables.constants[tensor.index]} + {further})"
    return address(program, program.offsets[tensor.index], further)


def _argument(argument: CArgument, position: int, node: Node, program: Program, tables: Tables) -> str:
    index = node.op.index
    if isinstance(argument, CTurn):
        turns = program.rows.ops[index].turns
        return {CTurn.NUMBER: "turn", CTurn.COUNT: str(turns)}.get(argument) or address(program, program.scratch[index])
    if isinstance(argument, CScratch):
        return address(program, program.scratch[index])
    if isinstance(argument, CRows):
        return rows_text(argument, node, program)
    if isinstance(argument, CRow):
        return row_text(argument, position, node, program)
    if isinstance(argument, CPointers):
        return pointers_text(argument, (_argument(t, position, node, program, tables) for t in argument.tensors))
    if argument.is_constant:
        return copy_address(node, argument, program) or tables.constants[argument.index]
    return address(program, program.offsets[argument.index])


def row_text(row: CRow, position: int, node: Node, program: Program) -> str:
    """The address of the row of a turn. `position`: of the argument."""
    number = _row_number(row, f"op{node.op.number}_rows{position}")
    found, arena = row_function(program, row.tensor), arena_of(program, row.tensor.index)
    return f"{found}(&rows{row.tensor.index}, {arena}, {number})"


def rows_text(rows: CRows, node: Node, program: Program) -> str:
    """The array of those under the window of a turn."""
    kind = "diagmem_pieces" if rows.tensor.index in program.in_pieces else "diagmem_rows"
    found = f"{kind}_reaching" if rows.is_transposed else f"{kind}_under"
    arena = arena_of(program, rows.tensor.index)
    return f"{found}(&op{node.op.number}.window, &rows{rows.tensor.index}, {arena}, turn, rows)"


def row_function(program: Program, tensor: Tensor) -> str:
    """What finds a row of a tensor."""
    return "diagmem_row_in_pieces" if tensor.index in program.in_pieces else "diagmem_row"


def _row_number(row: CRow, listed: str) -> str:
    """`listed`: the name of the list that says which row each turn takes, where there is one."""
    if row.rows:
        return f"{listed}[turn]"
    if row.step == 0:
        return str(row.first)
    turn = "turn" if row.step == 1 else f"turn * {row.step}"
    return turn if row.first == 0 else f"{turn} {'+' if row.first > 0 else '-'} {abs(row.first)}"


def pointers_text(argument: CPointers, addresses: Iterable[str]) -> str:
    """An array of addresses."""
    element = "void *const" if argument.is_written else "const void *const"
    return f"({element}[]){{{', '.join(addresses)}}}"


STAGED = "staged"
"""What the parameters of a call are named whose weights lie in RAM."""


def with_copies(node: Node, text: str, program: Program, tables: Tables, name: str, again: str = "") -> list[str]:
    """The lines of `text`, an operation's call, and what goes before it: its parameters, which say where copies of its
    weights lie; those copies, or a wait for them; and copies for the operation behind it. Where it has turns, `turn`
    says how many it has had, until `again` says which it is."""
    op, call = node.op.index, program.calls[node.op.index]
    fields = list(_fields(node, program)) if op in program.copied_weights else []
    if fields and call is not None:
        fields = [f"{call.parameters.type} {STAGED} = op{node.op.number};", *fields]
    waits = [f"{name.upper()}_COPIED();"] if program.copies_ahead and op in program.copied_weights else []
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
    found = program.copied_weights.get(node.op.index)
    has_fields = found is not None and any(part.field for part in found.parts)
    return STAGED if has_fields else f"op{node.op.number}"


def copy_address(node: Node, tensor: Tensor, program: Program) -> str | None:
    """Where the copy of a constant tensor lies, if there is one."""
    found = program.copied_weights.get(node.op.index)
    for part in found.parts if found is not None else ():
        if isinstance(part.source, Tensor) and part.source.index == tensor.index:
            return address(program, program.weight_copies[node.op.index] + part.offset)
    return None


def _fields(node: Node, program: Program) -> Iterator[str]:
    at = program.weight_copies[node.op.index]
    for part in program.copied_weights[node.op.index].parts:
        if part.field:
            yield f"{STAGED}.{part.field} = {address(program, at + part.offset)};"


def _copies(node: Node, program: Program, tables: Tables, name: str) -> Iterator[str]:
    at = program.weight_copies[node.op.index]
    for part in program.copied_weights[node.op.index].parts:
        source = part.source
        table = tables.constants[source.index] if isinstance(source, Tensor) else tables.names[source]
        yield f"{name.upper()}_COPY({address(program, at + part.offset)}, {table}, {part.data.nbytes});"
