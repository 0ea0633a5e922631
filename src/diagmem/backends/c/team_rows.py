"""How C runs a model row by row on several cores: they share the row of a step, and wait for each other behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from diagmem.backends.c.addresses import address, arena_of, arena_type
from diagmem.backends.c.calls import argument_text, row_function, row_text, rows_text, small_numbers
from diagmem.backends.c.program import Program
from diagmem.backends.c.sequence import each_step, is_repeated, push_state, sequence, step_function
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.team import invoke_alone, shared_steps, team_setting
from diagmem.backends.c.team_parts import (
    called,
    channels_of,
    narrowed_to_channels,
    part_function,
    part_of_op,
    phases_text,
    scratch_of_core,
    shared_text,
    stretch_lines,
    times,
)
from diagmem.model.graph import Node, Tensor
from diagmem.model.multicore import Along, Split
from diagmem.model.schedule import PUSH
from diagmem.ops import CArgument, CCall, CRow, CRows, CScratch, CTurn
from diagmem.planning.cores.multicore import unit_bytes


def run_rows_as_team(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The parts of each op and row, who does which step, and what every core calls."""
    yield from team_setting(program, name)
    for op, found in groupby(shared_steps(program), key=lambda split: split.op):
        splits, node = list(found), program.graph.nodes[op]
        if splits[0].turns is None:
            yield part_of_op(program, tables, splits[0], name)
        else:
            yield from _parts_of_rows(program, tables, node, splits, name)
    alone = [node for node in program.nodes if _is_alone(program, node)]
    yield step_function(program, tables, name, alone) if alone else ""
    yield sequence(program)
    yield _turn_of(program)
    yield _shared_step(program)
    yield _run_together(program, name, has_alone=bool(alone))
    yield _push(program, name) if program.input_rows else _invoke(program, name)


def _parts_of_rows(program: Program, tables: Tables, node: Node, splits: Sequence[Split], name: str) -> Iterator[str]:
    """A function for each cut, the ways in which turns are shared, and which turn is shared in which."""
    number = node.op.number
    for split in {split.cut: split for split in splits}.values():
        lines = list(_body(program, tables, split, node))
        yield part_function(program, split, name, _part_name(number, split), lines)
    phases = {split.phases: f"op{number}_phases{n}" for n, split in enumerate(splits)}
    ways = (shared_text(program, s, _part_name(number, s), phases[s.phases]) for s in splits)
    listed = "".join(f"    {way},\n" for way in ways)
    tables_of_phases = "".join(phases_text(s, phases[s.phases]) for s in {s.phases: s for s in splits}.values())
    yield f"{tables_of_phases}static const shared_op op{number}_shared[] = {{\n{listed}}};\n"
    way_of = _way_of_turns(program, node)
    yield small_numbers(f"op{number}_ways", way_of) if len({*way_of}) > 1 else ""


def _part_name(number: int, split: Split) -> str:
    return f"op{number}_{split.cut.along.value}"


def _way_of_turns(program: Program, node: Node) -> list[int]:
    """For each turn 0 where one core does it alone, else one more than the number of the way in which it is shared."""
    found = [0] * program.rows.ops[node.op.index].turns
    own = [split for split in shared_steps(program) if split.op == node.op.index]
    for number, split in enumerate(own, 1):
        for turn in split.turns or ():
            found[turn] = number
    return found


def _is_alone(program: Program, node: Node) -> bool:
    """Whether one core does some of its steps alone."""
    if program.calls[node.op.index] is None:
        return False
    if node.op.index not in program.visits:
        return program.multicore is not None and program.multicore.of_op(node.op.index) is None
    return 0 in _way_of_turns(program, node)


def _body(program: Program, tables: Tables, split: Split, node: Node) -> Iterator[str]:
    """Some columns, or channels, of a row."""
    call = called(program, node)
    size = unit_bytes(program.graph, split) if split.cut.along is Along.PIXELS else node.output.dtype.size_bytes
    for position, argument in enumerate(call.arguments):
        if isinstance(argument, CRow) and argument.tensor is node.output:
            row = row_text(argument, position, node, program)
            yield f"void *const own = (unsigned char *){row} + {times(size)};"
    if "window" not in call.parameters.fields:
        yield from _stretch(program, tables, split, call, node)
        return
    source = call.arguments[0]
    assert isinstance(source, CRows)
    window = f"op{node.op.number}.window"
    yield "const void *rows[DIAGMEM_MAX_ROWS];"
    yield f"{rows_text(source, node, program)};"
    if split.cut.along is Along.PIXELS:
        element = node.input(0).dtype.size_bytes
        yield f"diagmem_narrow_row(&{window}, {element}, first, end - first, &part.window, rows);"
    else:
        yield from narrowed_to_channels(call, split, node)
        if channels_of(call, node).are_of_input:
            yield f"diagmem_move_rows(&{window}, {times(node.input(0).dtype.size_bytes)}, rows);"
    out = "held != NULL ? held : own" if split.cut.can_hold else "own"
    given = (_window_argument(argument, out, program, node) for argument in call.arguments[1:])
    yield f"{call.function}(&part, rows, {', '.join(given)});"


def _window_argument(argument: CArgument, out: str, program: Program, node: Node) -> str:
    """What the function of a row is given behind the rows under its window."""
    if isinstance(argument, CScratch):
        return scratch_of_core(program, node)
    return "turn" if argument is CTurn.NUMBER else out


def _stretch(program: Program, tables: Tables, split: Split, call: CCall, node: Node) -> Iterator[str]:
    """All operands begin further on along the outermost axis that a row has."""

    def moved(one: Tensor | CRow, position: int, further: str) -> str:
        if isinstance(one, CRow) and one.tensor is node.output:
            return "own"
        if isinstance(one, Tensor):
            return argument_text(one, node, program, tables, further)
        row = row_text(one, position, node, program)
        return f"(void *)((unsigned char *){row} + {further})" if further else row

    yield from stretch_lines(call, split, node, moved)


def _turn_of(program: Program) -> str:
    """The function that says which turn an op has when it comes again, where rows are made again."""
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
    number, multicore = node.op.number, program.multicore
    if node.op.index not in program.visits:
        is_shared = multicore is not None and multicore.of_op(node.op.index) is not None
        return f"&op{number}_shared" if is_shared else None
    ways = _way_of_turns(program, node)
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


def _invoke(program: Program, name: str) -> str:
    macro = name.upper()
    run = f"is_ahead = run_together(arena, team, core, cores, @, turns[@]++, is_ahead);\n{macro}_AFTER_OP(@);"
    return f"""\
{macro}_CODE_ATTR void {name}_invoke_on({arena_type(program)}arena, {name}_team *team, int core, int cores) {{
    CHECK_ARENA();
    CHECK(team != NULL && 0 <= core && core < cores && cores <= {macro}_MOST_CORES);
    uint{8 * program.state.turn_bytes}_t turns[OPS] = {{0}};
    int is_ahead = 0;
    {macro}_BARRIER(team, core, cores);
{each_step(program, run)}\
    if (is_ahead) {{
        {macro}_BARRIER(team, core, cores);
    }}
}}

{invoke_alone(program, name)}"""


def _push(program: Program, name: str) -> str:
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

int {name}_push_row_in({arena_type(program)}arena, const void *row) {{
    {name}_team alone = {{{{0}}}};
    return {name}_push_row_on(arena, &alone, 0, 1, row);
}}
"""
