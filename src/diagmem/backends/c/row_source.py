"""The text of NAME.c for a model that runs row by row: where rows lie, a step of each operation, and their sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from diagmem.backends.c.literals import initialiser, numbers
from diagmem.backends.c.model_source import (
    accessor,
    address,
    describe,
    opening,
    parameters,
    pointers,
    shape_of,
    static_arena,
)
from diagmem.backends.c.names import comment
from diagmem.backends.c.row_program import RowProgram
from diagmem.backends.c.tables import Tables
from diagmem.graph import Node, Tensor
from diagmem.ops import CArgument, CCall, CPointers, CRow, CRows, CScratch, CStruct, CTable, CTurn
from diagmem.row_storage import RowStorage
from diagmem.schedule import PUSH

_FORMS = {"linear": "one behind the other", "ring": "in a ring", "table": "anywhere"}


def row_source(program: RowProgram, tables: Tables, name: str) -> str:
    """NAME.c after its first comment."""
    parts = (
        opening(name, ("stddef.h", "string.h") if program.input_rows else ("stddef.h",)),
        *(_storage(program.graph.tensors[t], storage) for t, storage in program.by_rows.items()),
        *(parameters(node, program.calls[node.op.index], tables) for node in program.nodes),
        *(_listed_rows(node, program.calls[node.op.index]) for node in program.nodes),
        *(_repeated_turns(program, node) for node in program.nodes),
        _step_function(program, tables),
        _sequence(program),
        *((_push(program, name),) if program.input_rows else (_invoke(program, name), _input(program, name))),
        accessor(program, f"{name}_output", program.graph.outputs),
        static_arena(program, name),
    )
    return "\n".join(part for part in parts if part)


def offset_type(program: RowProgram) -> str:
    """Of the numbers in tables of rows."""
    return "uint16_t" if program.arena_bytes < 1 << 16 else "uint32_t"


def sequence_bytes(program: RowProgram) -> int:
    """Flash that the sequence of steps and the tables of rows take."""
    width = 2 if program.arena_bytes < 1 << 16 else 4
    tables = sum(width * len(storage.table or ()) for storage in program.by_rows.values())
    again = sum(len(program.visits[node.op.index]) for node in program.nodes if _is_repeated(program, node))
    return tables + again + len(program.steps) * (1 if program.state.ops < 256 else 2)


def _storage(tensor: Tensor, storage: RowStorage) -> str:
    """A constant `rowsN` of type diagmem_rows, and its table if it has one."""
    about = f"/* '{comment(tensor.label)}': {shape_of(tensor)}, {_FORMS[storage.form]} */\n"
    name, table = f"rows{tensor.index}", ""
    names: Mapping[CTable, str] = {}
    fields: dict[str, Any] = {
        "height": storage.height,
        "base": storage.base,
        "period": storage.period,
        "pitch": storage.pitch,
    }
    if storage.table is not None:
        held = CTable("rows", np.array(storage.table))
        lines = "\n".join(numbers(held.data))
        table = f"static const DIAGMEM_OFFSET {name}_table[{storage.height}] = {{\n{lines}\n}};\n"
        names, fields = {held: f"{name}_table"}, {"height": storage.height, "table": held}
    return f"{about}{table}static const diagmem_rows {name} = {initialiser(CStruct('diagmem_rows', fields), names)};\n"


def _step_function(program: RowProgram, tables: Tables) -> str:
    cases = "".join(_case(node, program, tables) for node in program.nodes)
    has_windows = any(
        isinstance(a, CRows) for call in program.calls.values() if call is not None for a in call.arguments
    )
    rows = "    const void *rows[DIAGMEM_MAX_ROWS];\n" if has_windows else ""
    return f"""\
/* One row of an operation, the next one in its turn; or all of it. */
static void run_step(void *arena, int32_t op, int32_t turn) {{
{rows}    (void)turn;
    switch (op) {{
{cases}    default:
        break;
    }}
}}
"""


def _case(node: Node, program: RowProgram, tables: Tables) -> str:
    number, call = node.op.number, program.calls[node.op.index]
    body = "/* stays where it is */" if call is None else _call(node, call, program, tables)
    again = f"        turn = op{number}_turns[turn];\n" if _is_repeated(program, node) else ""
    return f"    case {number}: /* {describe(node)} */\n{again}        {body}\n        break;\n"


def _is_repeated(program: RowProgram, node: Node) -> bool:
    """Whether some rows are made again."""
    return len(program.visits[node.op.index]) > program.rows.ops[node.op.index].turns


def _repeated_turns(program: RowProgram, node: Node) -> str:
    """The rows in the order in which they are made, where some are made again."""
    if not _is_repeated(program, node):
        return ""
    return _list(f"op{node.op.number}_turns", program.visits[node.op.index])


def _listed_rows(node: Node, call: CCall | None) -> str:
    """Which rows the turns take, where no rule tells."""
    rows = [(n, a.rows) for n, a in enumerate(call.arguments if call else ()) if isinstance(a, CRow) and a.rows]
    return "".join(_list(f"op{node.op.number}_rows{n}", found) for n, found in rows)


def _list(name: str, values: Sequence[int]) -> str:
    lines, width = "\n".join(numbers(np.array(values))), 8 if max(values) < 256 else 16
    return f"static const uint{width}_t {name}[{len(values)}] = {{\n{lines}\n}};\n"


def _call(node: Node, call: CCall, program: RowProgram, tables: Tables) -> str:
    arguments = (_argument(a, n, node, program, tables) for n, a in enumerate(call.arguments))
    return f"{call.function}({', '.join([f'&op{node.op.number}', *arguments])});"


def _argument(argument: CArgument, position: int, node: Node, program: RowProgram, tables: Tables) -> str:
    index = node.op.index
    if isinstance(argument, CTurn):
        turns = program.rows.ops[index].turns
        return {CTurn.NUMBER: "turn", CTurn.COUNT: str(turns)}.get(argument) or f"AT({program.sum_offsets[index]})"
    if isinstance(argument, CScratch):
        return f"AT({program.sum_offsets[index]})"
    if isinstance(argument, CRows):
        found = "diagmem_rows_reaching" if argument.is_transposed else "diagmem_rows_under"
        return f"{found}(&op{node.op.number}.window, &rows{argument.tensor.index}, arena, turn, rows)"
    if isinstance(argument, CRow):
        number = _row_number(argument, f"op{node.op.number}_rows{position}")
        return f"diagmem_row(&rows{argument.tensor.index}, arena, {number})"
    if isinstance(argument, CPointers):
        return pointers(argument, (_argument(t, position, node, program, tables) for t in argument.tensors))
    return address(argument, program, tables)


def _row_number(row: CRow, listed: str) -> str:
    """`listed`: the name of the list that says which row each turn takes, where there is one."""
    if row.rows:
        return f"{listed}[turn]"
    if row.step == 0:
        return str(row.first)
    turn = "turn" if row.step == 1 else f"turn * {row.step}"
    return turn if row.first == 0 else f"{turn} {'+' if row.first > 0 else '-'} {abs(row.first)}"


def _sequence(program: RowProgram) -> str:
    """The op of each step. A row from the caller is that after the last op."""
    ops, numbered = program.state.ops, program.graph.ops
    width = "uint8_t" if ops < 256 else "uint16_t"
    order = [ops if step.op == PUSH else numbered[step.op].number for step in program.steps]
    steps = "\n".join(numbers(np.array(order)))
    return f"""\
enum {{ OPS = {ops}, STEPS = {len(program.steps)} }};

/* The operation of each step{"; OPS: the caller's next row" if program.input_rows else ""}. */
static const {width} steps[STEPS] = {{
{steps}
}};
"""


def _invoke(program: RowProgram, name: str) -> str:
    return f"""\
void {name}_invoke_in(void *arena) {{
    uint{8 * program.state.turn_bytes}_t turns[OPS] = {{0}};
    for (int32_t i = 0; i < STEPS; ++i) {{
        run_step(arena, steps[i], turns[steps[i]]++);
        {name.upper()}_AFTER_OP(steps[i]);
    }}
}}
"""


def _input(program: RowProgram, name: str) -> str:
    return accessor(program, f"{name}_input", program.graph.inputs)


def _push(program: RowProgram, name: str) -> str:
    tensor = program.graph.tensors[program.graph.inputs[0]]
    state = program.state
    place = f"AT({program.sum_offsets[PUSH]})"
    return f"""\
/* What a run remembers while it waits for the next row; it lies in the arena. */
typedef struct {{
    uint{8 * state.at_bytes}_t at;
    uint{8 * state.turn_bytes}_t turns[OPS + 1];
}} run_state;

typedef char run_state_fits[sizeof(run_state) <= {state.size_bytes} ? 1 : -1];

void {name}_start_in(void *arena) {{
    memset({place}, 0, sizeof(run_state));
}}

int {name}_push_row_in(void *arena, const void *row) {{
    run_state *const state = {place};
    int is_taken = 0;
    for (; state->at < STEPS; ++state->at) {{
        const int32_t op = steps[state->at];
        if (op == OPS && is_taken) {{
            return 0;
        }}
        if (op == OPS) {{
            memcpy(diagmem_row(&rows{tensor.index}, arena, state->turns[op]), row, {tensor.row_bytes});
            is_taken = 1;
        }} else {{
            run_step(arena, op, state->turns[op]);
            {name.upper()}_AFTER_OP(op);
        }}
        ++state->turns[op];
    }}
    {name}_start_in(arena);
    return 1;
}}
"""
