"""How C runs a model whose operations have turns: where rows lie, one step of each operation, and their sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from diagmem.backends.c.addresses import address, arena_of, arena_type, in_its_arena
from diagmem.backends.c.calls import call_text, describe, row_function, shape_of, small_numbers
from diagmem.backends.c.literals import initialiser, numbers
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.repeats import Repeat, repeats, repeats_bytes
from diagmem.backends.c.row_pieces import Piece, pieces_bytes
from diagmem.backends.c.staging import with_copies
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH
from diagmem.ops import CName, CRows, CStruct

LEAST_SAVED_BYTES = 100
"""By stretches that are repeated: about as much code goes over them."""

_FORMS = {"linear": "one behind the other", "ring": "in a ring", "table": "anywhere"}


def run_in_sequence(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The function that runs one step, the list of steps, and what the caller calls."""
    yield step_function(program, tables, name, program.nodes)
    yield sequence(program)
    yield _push(program, name) if program.input_rows else _invoke(program, name)


def sequence_bytes(program: Program) -> int:
    """Flash that the sequence of steps and the tables of rows take."""
    width, in_pieces = program.offset_bytes, program.in_pieces
    plain = (len(storage.table or ()) for tensor, storage in program.by_rows.items() if tensor not in in_pieces)
    tables = width * sum(plain) + sum(pieces_bytes(found, width) for found in in_pieces.values())
    again = sum(len(program.visits[node.op.index]) for node in program.nodes if is_repeated(program, node))
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


def rows_of_tensors(program: Program) -> Iterator[str]:
    """How the tensors lie of which rows are passed on: a constant `rowsN` for each, and its table if it has one."""
    for index, storage in program.by_rows.items():
        tensor, name, how = program.graph.tensors[index], f"rows{index}", in_its_arena(program, storage)
        about = f"/* '{comment(tensor.label)}': {shape_of(tensor)}, {_FORMS[storage.form]} */\n"
        if how.table is None:
            rule = {"height": how.height, "base": how.base, "period": how.period, "pitch": how.pitch}
            yield f"{about}{_constant('diagmem_rows', name, rule)}"
        elif index in program.in_pieces:
            further = how.table[0] - storage.offsets[0]
            pieces = [piece.moved(further) for piece in program.in_pieces[index]]
            yield f"{about}{_in_pieces(name, how.height, pieces)}"
        else:
            rows = {"height": how.height, "table": CName(f"{name}_table")}
            yield f"{about}{_table(name, how.table)}{_constant('diagmem_rows', name, rows)}"


def _constant(kind: str, name: str, fields: Mapping[str, Any]) -> str:
    return f"static const {kind} {name} = {initialiser(CStruct(kind, fields), {})};\n"


def _table(name: str, places: Sequence[int]) -> str:
    lines = "\n".join(numbers(np.array(places)))
    return f"static const DIAGMEM_OFFSET {name}_table[{len(places)}] = {{\n{lines}\n}};\n"


def _in_pieces(name: str, height: int, pieces: Sequence[Piece]) -> str:
    """A table that is gone over again and again, piece by piece; the one with most rows is known at once."""
    begins = accumulate((piece.rows for piece in pieces), initial=0)
    starts = accumulate((len(piece.entries) for piece in pieces), initial=0)
    found = [
        {"begin": begin, "rows": piece.rows, "at": at, "period": len(piece.offsets), "moves": int(bool(piece.drift))}
        for piece, begin, at in zip(pieces, begins, starts, strict=False)
    ]
    longest, *others = (CStruct("diagmem_piece", fields) for fields in sorted(found, key=lambda piece: -piece["rows"]))
    fields: dict[str, Any] = {"height": height, "table": CName(f"{name}_table"), "longest": longest}
    listed = ""
    if others:
        lines = "".join(f"    {{{', '.join(map(str, piece.fields.values()))}}},\n" for piece in others)
        listed = f"static const diagmem_piece {name}_others[{len(others)}] = {{\n{lines}}};\n"
        fields["others"] = CName(f"{name}_others")
    places = [at for piece in pieces for at in piece.entries]
    return f"{_table(name, places)}{listed}{_constant('diagmem_row_pieces', name, fields)}"


def step_function(program: Program, tables: Tables, name: str, nodes: Sequence[Node]) -> str:
    """The function that runs one step of these ops."""
    cases = "".join(_case(node, program, tables, name) for node in nodes)
    calls = (program.calls[node.op.index] for node in nodes)
    has_windows = any(isinstance(a, CRows) for call in calls if call is not None for a in call.arguments)
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
    again = f"turn = op{number}_turns[turn];" if is_repeated(program, node) else ""
    lines = with_copies(node, body, program, tables, name, again)
    body = "".join(f"        {line}\n" for line in (*lines, "break;"))
    return f"    case {number}: /* {describe(node)} */\n{body}"


def is_repeated(program: Program, node: Node) -> bool:
    """Whether some rows are made again."""
    visits = program.visits.get(node.op.index, ())
    return len(visits) > len(set(visits))


def repeated_turns(program: Program, node: Node) -> str:
    """The rows in the order in which they are made, where some are made again."""
    if not is_repeated(program, node):
        return ""
    return small_numbers(f"op{node.op.number}_turns", program.visits[node.op.index])


def sequence(program: Program) -> str:
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
    run = f"run_step(arena, @, turns[@]++);\n{name.upper()}_AFTER_OP(@);"
    return f"""\
{name.upper()}_CODE_ATTR void {name}_invoke_in({arena_type(program)}arena) {{
    CHECK_ARENA();
    uint{8 * program.state.turn_bytes}_t turns[OPS] = {{0}};
{each_step(program, run)}}}
"""


def each_step(program: Program, run: str) -> str:
    """A loop over all steps. `run`: what is done at each, lines in which @ stands for its operation."""
    loop = _EACH if step_repeats(program) is None else _EACH_REPEAT.format(width=f"uint{8 * step_bytes(program)}_t")
    before, _, behind = loop.partition("RUN\n")
    indent, op = before.rpartition("\n")[2], "steps[i]" if loop == _EACH else "stretch[j]"
    lines = run.replace("@", op).splitlines()
    return f"{before}{indent.join(f'{line}{_NEWLINE}' for line in lines)}{behind}"


_NEWLINE = "\n"

_EACH = """\
    for (int32_t i = 0; i < STEPS; ++i) {
        RUN
    }
"""

_EACH_REPEAT = """\
    const {width} *stretch = steps;
    for (int32_t i = 0; i < REPEATS; stretch += repeats[i++].length) {{
        for (int32_t time = 0; time < repeats[i].times; ++time) {{
            for (int32_t j = 0; j < repeats[i].length; ++j) {{
                RUN
            }}
        }}
    }}
"""


def _push(program: Program, name: str) -> str:
    tensor, macro = program.graph.tensors[program.graph.inputs[0]], name.upper()
    place, image = address(program, program.scratch[PUSH]), arena_of(program, tensor.index)
    row = f"{row_function(program, tensor)}(&rows{tensor.index}, {image}, state->turns[op])"
    return f"""\
{push_state(program, name)}
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
            memcpy({row}, row, {tensor.row_bytes});
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


def push_state(program: Program, name: str) -> str:
    """What lives between the rows that the caller hands over, and the function that begins anew."""
    state, place = program.state, address(program, program.scratch[PUSH])
    return f"""\
/* What a run remembers while it waits for the next row; it lies in the arena. */
typedef struct {{
    uint{8 * state.at_bytes}_t at;
    uint{8 * state.turn_bytes}_t turns[OPS + 1];
}} run_state;

typedef char run_state_fits[sizeof(run_state) <= {state.size_bytes} ? 1 : -1];

#ifdef {name.upper()}_DEBUG
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
"""
