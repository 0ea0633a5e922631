"""The text of a kernel's call: its parameters, and the addresses that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from diagmem.backends.c.addresses import address, arena_of
from diagmem.backends.c.literals import initialiser, numbers
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.staging import parameters_name, staged_address
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node, Tensor
from diagmem.ops import CArgument, CCall, CPointers, CRow, CRows, CScratch, CTurn


def describe(node: Node) -> str:
    """`op 7 'block3/dw' (DEPTHWISE_CONV_2D): 1x24x24x32 -> 1x12x12x32`."""
    inputs = ", ".join(shape_of(t) for _, t in node.activations())
    return comment(f"{node.label}: {inputs} -> {', '.join(shape_of(t) for t in node.outputs)}")


def shape_of(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "1"


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
        return staged_address(node, argument, program) or tables.constants[argument.index]
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
