"""The functions that run a model: one step of each op, the sequence of steps, and what the caller calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from diagmem.backends.c.arenas import address, arena_of, arena_type, in_its_arena
from diagmem.backends.c.calls import call_text, describe, row_function, shape_of, small_numbers, with_copies
from diagmem.backends.c.literals import comment, initialiser, numbers
from diagmem.backends.c.multicore import split_functions, way_of_turns
from diagmem.backends.c.program import Program
from diagmem.backends.c.repeats import Piece, Repeat, pieces_bytes, repeats, repeats_bytes
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH, Step
from diagmem.ops import CName, CRows, CStruct

LEAST_SAVED_BYTES = 100
"""By stretches that are repeated: about as much code goes over them."""

_FORMS = {"linear": "one behind the other", "ring": "in a ring", "table": "anywhere"}


def run_functions(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The functions that run the model: one call after the other or, where ops have turns, a list of steps; on one core
    or on several."""
    if program.multicore is not None:
        yield from split_functions(program, tables, name)
    if program.visits:
        nodes = [node for node in program.nodes if _runs_alone(program, node)]
        yield step_function(program, tables, name, nodes) if nodes else ""
        yield sequence(program)
        if program.multicore is not None:
            yield _turn_of(program)
            yield _shared_step(program)
            yield _run_together(program, name, has_alone=bool(nodes))
    if not program.input_rows:
        yield _invoke(program, tables, name)
    else:
        yield _push(program, name) if program.multicore is None else _push_on_cores(program, name)


def _runs_alone(program: Program, node: Node) -> bool:
    """Whether one core runs some of its steps alone."""
    op = node.op.index
    if program.multicore is None:
        return True
    if program.calls[op] is None:
        return False
    return program.multicore.of_op(op) is None if op not in program.visits else 0 in way_of_turns(program, node)


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
    """Whether some rows are recomputed."""
    visits = program.visits.get(node.op.index, ())
    return len(visits) > len(set(visits))


def repeated_turns(program: Program, node: Node) -> str:
    """The rows in the order in which they are made, where some are recomputed."""
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


def _invoke(program: Program, tables: Tables, name: str) -> str:
    """What a caller calls for a whole run, on each core."""
    macro, is_split, has_turns = name.upper(), program.multicore is not None, bool(program.visits)
    run = "run_step(arena, @, turns[@]++);"
    if is_split:
        run = "is_ahead = run_together(arena, team, core, cores, @, turns[@]++, is_ahead);"
    if has_turns:
        body = each_step(program, f"{run}\n{macro}_AFTER_OP(@);")
    else:
        body = "".join(f"    {line}\n" for line in _straight(program, tables, name))
    barrier = f"    {macro}_BARRIER(team, core, cores);\n" if is_split else ""
    turns = f"    uint{8 * program.state.turn_bytes}_t turns[OPS] = {{0}};\n" if has_turns else ""
    ahead = "    int is_ahead = 0;\n" if is_split and has_turns else ""
    waits = f"    if (is_ahead) {{\n    {barrier}    }}\n" if ahead else ""
    return f"""\
{macro}_CODE_ATTR void {name}_invoke_{"on" if is_split else "in"}({_parameters(program, name)}) {{
{"" if is_split or has_turns else unused_arena(body)}\
    CHECK_ARENA();
{_CHECK_CORES.format(macro=macro) if is_split else ""}{turns}{ahead}{barrier}\
{body}{waits}}}
{_alone(program, name, "void", "invoke") if is_split else ""}"""


_CHECK_CORES = "    CHECK(team != NULL && 0 <= core && core < cores && cores <= {macro}_MOST_CORES);\n"


def _parameters(program: Program, name: str) -> str:
    on_cores = "" if program.multicore is None else f", {name}_team *team, int core, int cores"
    return f"{arena_type(program)}arena{on_cores}"


def _alone(program: Program, name: str, result: str, function: str, argument: str = "") -> str:
    """The same on one core."""
    passed = f", {argument.rpartition('*')[2]}" if argument else ""
    return f"""
{result} {name}_{function}_in({arena_type(program)}arena{f", {argument}" if argument else ""}) {{
    {name}_team alone = {{{{0}}}};
    {"" if result == "void" else "return "}{name}_{function}_on(arena, &alone, 0, 1{passed});
}}
"""


def unused_arena(body: str) -> str:
    """A line that keeps compilers quiet where a function has no use for its arena."""
    return "" if "AT(" in body or "arena +" in body else "    (void)arena;\n"


def _straight(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """One op after the other. On several cores the first runs alone what they do not split, and they wait for it."""
    macro, split = name.upper(), program.multicore
    calls = program.calls
    running = [Step(node.op.index) for node in program.nodes if calls[node.op.index] is not None]
    waits = {} if split is None else dict(zip(running, split.barriers_after(running), strict=True))
    for node in program.nodes:
        op, call = node.op.index, calls[node.op.index]
        text = f"/* {describe(node)}: stays where it is */" if call is None else call_text(node, call, program, tables)
        if call is None or split is None:
            yield from with_copies(node, text, program, tables, name)
        elif split.of_op(op) is not None:
            yield f"run_shared(&op{node.op.number}_shared, arena, team, core, cores);"
        else:
            yield from ("if (core == 0) {", f"    {text}", "}")
            yield from [f"{macro}_BARRIER(team, core, cores);"] if waits[Step(op)] else []
        yield f"{macro}_AFTER_OP({node.op.number});"


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


def _turn_of(program: Program) -> str:
    """The function that says which turn an op has at each visit, where rows are recomputed."""
    again = [node.op.number for node in program.nodes if is_repeated(program, node)]
    if not again:
        return ""
    cases = "".join(f"    case {number}:\n        return op{number}_turns[visit];\n" for number in again)
    return f"""\
static int32_t turn_of(int32_t op, int32_t visit) {{
    switch (op) {{
{cases}    default:
        return visit;
    }}
}}
"""


def _shared_step(program: Program) -> str:
    """The function that says how cores share a step."""
    cases, still = "", [node for node in program.nodes if program.calls[node.op.index] is None]
    for node in program.nodes:
        case = "&still" if node in still else _way(program, node)
        cases += "" if case is None else f"    case {node.op.number}:\n        return {case};\n"
    return f"""\
{_STILL if still else ""}\
/* How cores share a step; NULL: the first one does it alone. */
static const shared_op *shared_step(int32_t op, int32_t turn) {{
    (void)turn;
    switch (op) {{
{cases}    default:
        return NULL;
    }}
}}
"""


_STILL = """\
/* Of an operation whose output is where it belongs already. */
static const shared_op still = {0};

"""


def _way(program: Program, node: Node) -> str | None:
    """How a turn of an op is shared, in C; None where one core does them all."""
    number, teamwork = node.op.number, program.multicore
    if node.op.index not in program.visits:
        is_shared = teamwork is not None and teamwork.of_op(node.op.index) is not None
        return f"&op{number}_shared" if is_shared else None
    ways = way_of_turns(program, node)
    if len({*ways}) == 1:
        return f"op{number}_shared" if ways[0] else None
    way = f"&op{number}_shared[op{number}_ways[turn] - 1]"
    return f"op{number}_ways[turn] == 0 ? NULL : {way}" if 0 in ways else way


def _run_together(program: Program, name: str, has_alone: bool) -> str:
    """The function by which all cores do one step."""
    turn = "turn_of(op, visit)" if _turn_of(program) else "visit"
    has_still = any(program.calls[node.op.index] is None for node in program.nodes)
    alone = """\
    if (shared == NULL) {
        if (core == 0) {
            run_step(arena, op, visit);
        }
        return 1;
    }
"""
    still = """\
    if (shared->part == NULL) {
        return is_ahead;
    }
"""
    return f"""\
/* One step. `is_ahead`: the first core has done something alone for which the others have not waited yet. Returns
 * whether that is so behind it. */
static int run_together({arena_type(program)}arena, {name}_team *team, int core, int cores, int32_t op, int32_t visit,
                        int is_ahead) {{
    const int32_t turn = {turn};
    const shared_op *const shared = shared_step(op, turn);
{alone if has_alone else ""}{still if has_still else ""}\
    if (is_ahead) {{
        {name.upper()}_BARRIER(team, core, cores);
    }}
    run_shared(shared, arena, team, core, cores, turn);
    return 0;
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


def _push_on_cores(program: Program, name: str) -> str:
    """Each core counts steps on its own stack; the first writes down how far they have come, when all know it."""
    tensor, macro = program.graph.tensors[program.graph.inputs[0]], name.upper()
    place, image = address(program, program.scratch[PUSH]), arena_of(program, tensor.index)
    own = f"{row_function(program, tensor)}(&rows{tensor.index}, {image}, state.turns[op])"
    return f"""\
{push_state(program, name)}
{macro}_CODE_ATTR int {name}_push_row_on({arena_type(program)}arena, {name}_team *team, int core, int cores,
                                         const void *row) {{
    CHECK_ARENA();
    CHECK(team != NULL && 0 <= core && core < cores && cores <= {macro}_MOST_CORES);
    run_state state;
    int is_taken = 0, is_ahead = 0;
    {macro}_BARRIER(team, core, cores);
    memcpy(&state, {place}, sizeof state);
    CHECK(is_started(&state)); /* if not: call {name}_start_in before the first row */
    for (; state.at < STEPS; ++state.at) {{
        const int32_t op = operation(state.at);
        if (op == OPS && is_taken) {{
            break;
        }}
        if (op == OPS) {{
            if (core == 0) {{
                memcpy({own}, row, {tensor.row_bytes});
            }}
            {macro}_BARRIER(team, core, cores);
            is_taken = 1;
            is_ahead = 0;
        }} else {{
            is_ahead = run_together(arena, team, core, cores, op, state.turns[op], is_ahead);
            {macro}_AFTER_OP(op);
        }}
        ++state.turns[op];
    }}
    if (state.at < STEPS) {{
        if (core == 0) {{
            memcpy({place}, &state, sizeof state);
        }}
        return 0;
    }}
    if (is_ahead) {{
        {macro}_BARRIER(team, core, cores);
    }}
    if (core == 0) {{
        {name}_start_in(arena);
    }}
    return 1;
}}
{_alone(program, name, "int", "push_row", "const void *row")}"""
