"""How C runs a model whose operations have turns: where rows lie, one step of each operation, and their sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from diagmem.backends.c.addresses import address, arena_of, arena_type
from diagmem.backends.c.calls import call_text, describe, shape_of, small_numbers
from diagmem.backends.c.literals import initialiser, numbers
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.repeats import Repeat, repeats, repeats_bytes
from diagmem.backends.c.staging import with_copies
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node, Tensor
from diagmem.model.schedule import PUSH
from diagmem.ops import CRows, CStruct, CTable
from diagmem.planning.storage import Storage

LEAST_SAVED_BYTES = 100
"""By stretches that are repeated: about as much code goes over them."""

_FORMS = {"linear": "one behind the other", "ring": "in a ring", "table": "anywhere"}


def run_in_sequence(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The function that runs one step, the list of steps, and what the caller calls."""
    yield _step_function(program, tables, name)
    yield _sequence(program)
    yield _push(program, name) if program.input_rows else _invoke(program, name)


def offset_type(program: Program) -> str:
    """Of the numbers in tables of rows."""
    return "uint16_t" if _largest(program) < 1 << 16 else "uint32_t"


def _largest(program: Program) -> int:
    """Of the arenas."""
    return max((use.used_bytes for use in program.pools.uses), default=program.arena_bytes)


def sequence_bytes(program: Program) -> int:
    """Flash that the sequence of steps and the tables of rows take."""
    width = 2 if _largest(program) < 1 << 16 else 4
    tables = sum(width * len(storage.table or ()) for storage in program.by_rows.values())
    again = sum(len(program.visits[node.op.index]) for node in program.nodes if _is_repeated(program, node))
    found = step_repeats(program)
    steps = len(program.steps) * step_bytes(program) if found is None else repeats_bytes(found, step_bytes(program))
    return tables + again + steps


def step_bytes(program: Program) -> int:
    """Of the operation of a step."""
    return 1 if program.state.ops < 256 else 2


def step_repeats(program: Program) -> tuple[Repeat, ...] | None:
    """The steps as stretches that are repeated; None where they are few, and a plain list takes less."""
    found = repeats(_operations(program), step_bytes(program))
    saved = len(program.steps) * step_bytes(program) - repeats_bytes(found, step_bytes(program))
    return found if saved >= LEAST_SAVED_BYTES else None


def _operations(program: Program) -> list[int]:
    """The op of each step. A row from the caller is that after the last op."""
    ops, numbered = program.state.ops, program.graph.ops
    return [ops if step.op == PUSH else numbered[step.op].number for step in program.steps]


def row_storage(tensor: Tensor, storage: Storage) -> str:
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


def _step_function(program: Program, tables: Tables, name: str) -> str:
    cases = "".join(_case(node, program, tables, name) for node in program.nodes)
    has_windows = any(
        isinstance(a, CRows) for call in program.calls.values() if call is not None for a in call.arguments
    )
    rows = "    const void *rows[DIAGMEM_MAX_ROWS];\n" if has_windows else ""
    return f"""\
/* One row of an operation, the next one in its turn; or all of it. */
static {name.upper()}_CODE_ATTR void run_step({arena_type(program)}arena, int32_t op, int32_t turn) {{
{rows}    (void)turn;
    switch (op) {{
{cases}    default:
        break;
    }}
}}
"""


def _case(node: Node, program: Program, tables: Tables, name: str) -> str:
    number, call = node.op.number, program.calls[node.op.index]
    body = "/* stays where it is */" if call is None else call_text(node, call, program, tables)
    again = f"turn = op{number}_turns[turn];" if _is_repeated(program, node) else ""
    lines = with_copies(node, body, program, tables, name, again)
    body = "".join(f"        {line}\n" for line in (*lines, "break;"))
    return f"    case {number}: /* {describe(node)} */\n{body}"


def _is_repeated(program: Program, node: Node) -> bool:
    """Whether some rows are made again."""
    visits = program.visits.get(node.op.index, ())
    return len(visits) > len(set(visits))


def repeated_turns(program: Program, node: Node) -> str:
    """The rows in the order in which they are made, where some are made again."""
    if not _is_repeated(program, node):
        return ""
    return small_numbers(f"op{node.op.number}_turns", program.visits[node.op.index])


def _sequence(program: Program) -> str:
    """The steps, as a list or as repeats, and the function that says which operation a step runs."""
    width, found = f"uint{8 * step_bytes(program)}_t", step_repeats(program)
    about = "; OPS: the caller's next row" if program.input_rows else ""
    sizes = f"enum {{ OPS = {program.state.ops}, STEPS = {len(program.steps)}"
    if found is None:
        listed = "\n".join(numbers(np.array(_operations(program))))
        return f"""\
{sizes} }};

/* The operation of each step{about}. */
static const {width} steps[STEPS] = {{
{listed}
}};
{_OPERATION.format(body="    return steps[step];") if program.input_rows else ""}"""
    listed = "\n".join(numbers(np.array([op for repeat in found for op in repeat.items])))
    pairs = "\n".join(f"    {{{len(repeat.items)}, {repeat.times}}}," for repeat in found)
    return f"""\
{sizes}, REPEATS = {len(found)} }};

/* The operations of the steps{about}. They are a stretch that is repeated behind the other. */
static const {width} steps[{sum(len(repeat.items) for repeat in found)}] = {{
{listed}
}};

static const struct {{
    uint16_t length, times;
}} repeats[REPEATS] = {{
{pairs}
}};
{_OPERATION.format(body=_REPEATED.format(width=width)) if program.input_rows else ""}"""


_OPERATION = """
static int32_t operation(int32_t step) {{
{body}
}}
"""

_REPEATED = """\
    const {width} *stretch = steps;
    int32_t i = 0;
    for (; step >= repeats[i].length * repeats[i].times; ++i) {{
        step -= repeats[i].length * repeats[i].times;
        stretch += repeats[i].length;
    }}
    return stretch[step % repeats[i].length];"""


def _invoke(program: Program, name: str) -> str:
    steps = _EACH if step_repeats(program) is None else _EACH_REPEAT.format(width=f"uint{8 * step_bytes(program)}_t")
    return f"""\
{name.upper()}_CODE_ATTR void {name}_invoke_in({arena_type(program)}arena) {{
    CHECK_ARENA();
    uint{8 * program.state.turn_bytes}_t turns[OPS] = {{0}};
{steps.replace("NAME", name.upper())}}}
"""


_EACH = """\
    for (int32_t i = 0; i < STEPS; ++i) {
        run_step(arena, steps[i], turns[steps[i]]++);
        NAME_AFTER_OP(steps[i]);
    }
"""

_EACH_REPEAT = """\
    const {width} *stretch = steps;
    for (int32_t i = 0; i < REPEATS; stretch += repeats[i++].length) {{
        for (int32_t time = 0; time < repeats[i].times; ++time) {{
            for (int32_t j = 0; j < repeats[i].length; ++j) {{
                run_step(arena, stretch[j], turns[stretch[j]]++);
                NAME_AFTER_OP(stretch[j]);
            }}
        }}
    }}
"""


def _push(program: Program, name: str) -> str:
    tensor = program.graph.tensors[program.graph.inputs[0]]
    state, macro = program.state, name.upper()
    place, image = address(program, program.scratch[PUSH]), arena_of(program, tensor.index)
    return f"""\
/* What a run remembers while it waits for the next row; it lies in the arena. */
typedef struct {{
    uint{8 * state.at_bytes}_t at;
    uint{8 * state.turn_bytes}_t turns[OPS + 1];
}} run_state;

typedef char run_state_fits[sizeof(run_state) <= {state.size_bytes} ? 1 : -1];

#ifdef {macro}_DEBUG
/* Whether as many turns were had as the place in the sequence implies: not so in an arena that was never started. */
static int is_started(const run_state *state) {{
    uint{8 * state.turn_bytes}_t turns[OPS + 1] = {{0}};
    for (int32_t i = 0; i < state->at && i < STEPS; ++i) {{
        ++turns[operation(i)];
    }}
    return state->at < STEPS && memcmp(turns, state->turns, sizeof turns) == 0;
}}
#endif

void {name}_start_in({arena_type(program)}arena) {{
    CHECK_ARENA();
    memset({place}, 0, sizeof(run_state));
}}

{macro}_CODE_ATTR int {name}_push_row_in({arena_type(program)}arena, const void *row) {{
    CHECK_ARENA();
    run_state *const state = {place};
    int is_taken = 0;
    CHECK(is_started(state)); /* if not: call {name}_start_in before the first row */
    for (; state->at < STEPS; ++state->at) {{
        const int32_t op = operation(state->at);
        if (op == OPS && is_taken) {{
            return 0;
        }}
        if (op == OPS) {{
            memcpy(diagmem_row(&rows{tensor.index}, {image}, state->turns[op]), row, {tensor.row_bytes});
            is_taken = 1;
        }} else {{
            run_step(arena, op, state->turns[op]);
            {macro}_AFTER_OP(op);
        }}
        ++state->turns[op];
    }}
    {name}_start_in(arena);
    return 1;
}}
"""
