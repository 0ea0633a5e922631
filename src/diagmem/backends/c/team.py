"""How C runs a model on several cores: a function for the parts of each op that they share, its phases, and what every
core calls."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.calls import argument_text, call_text, describe
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node
from diagmem.model.teamwork import Along, Sharing
from diagmem.ops import CCall, CScratch, CStruct, CTable
from diagmem.planning.teamwork import most_held_bytes

SPAN = "_span.h"
"""What row functions need to make some pixels of a row."""


def needs_span(program: Program) -> bool:
    """Whether cores share pixels that a window makes."""
    return any(_is_windowed(program, sharing) for sharing in _shared(program))


def _shared(program: Program) -> tuple[Sharing, ...]:
    return () if program.teamwork is None else program.teamwork.sharings


def _is_windowed(program: Program, sharing: Sharing) -> bool:
    call = program.calls[sharing.op]
    return sharing.cut.along is Along.PIXELS and call is not None and "window" in call.parameters.fields


def run_as_team(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The barrier, the parts of each op, and the functions that run them."""
    yield _barrier(name)
    most = most_held_bytes(program.graph, program.teamwork)
    if _shared(program):
        yield _TYPES
        yield _run_held(name, most) if most else ""
        yield _run_shared(name, has_held=most > 0)
    for sharing in _shared(program):
        yield _part(program, tables, sharing, name)
    yield _invoke(program, tables, name)


def _barrier(name: str) -> str:
    macro = name.upper()
    return f"""\
/* What a core does when it has come to a barrier, and while it waits there: nothing, or "dsb; sev" and "wfe", or what
 * lets other tasks run. Cores of unequal speed: {macro}_SHARE says how many of `total` the cores before `core` take. */
#ifndef {macro}_WAKE
#define {macro}_WAKE() ((void)0)
#endif
#ifndef {macro}_RELAX
#define {macro}_RELAX() ((void)0)
#endif
#ifdef {macro}_SHARE
#define HELD_BYTES(most) (most)
#else
#define {macro}_SHARE(total, core, cores) ((total) * (core) / (cores))
#define HELD_BYTES(most) (((most) + 1) / 2) /* equal shares of two cores, the largest that there are */
#endif

#ifndef {macro}_BARRIER
#define {macro}_BARRIER(team, core, cores) wait_for_all(team, core, cores)
#if defined(__GNUC__)
#define LOAD(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(to, value, __ATOMIC_RELEASE)
#define FENCE() ((void)0)
#elif defined({macro}_FENCE)
#define LOAD(from) (*(from))
#define STORE(to, value) (*(to) = (value))
#define FENCE() {macro}_FENCE()
#else
#error define {macro}_FENCE() as that which keeps this compiler and the core from moving loads and stores across
#endif

/* Plain loads and stores: each core writes only its own count, so it also serves cores without atomic instructions. */
static DIAGMEM_NOINLINE void wait_for_all({name}_team *team, int core, int cores) {{
    const uint32_t turn = team->arrived[core] + 1u;
    FENCE();
    STORE(&team->arrived[core], turn);
    {macro}_WAKE();
    for (int other = 0; other < cores; ++other) {{
        while ((int32_t)(LOAD(&team->arrived[other]) - turn) < 0) {{
            {macro}_RELAX();
        }}
    }}
    FENCE();
}}
#endif
"""


_TYPES = """\
/* Some units of an operation; where `held` is given they go there, and not where they belong. */
typedef void part_of_op(void *arena, int core, int32_t first, int32_t end, void *held);

/* Units up to `end`, `step` of them in each phase: all cores share them; or hold them back until all have read; or the
 * first core does them alone. */
typedef struct {
    int32_t end, step, how;
} phases_of_op;

enum { SHARED, HELD, ALONE };

/* Cores take units by multiples of `grain`. `out`, `unit_bytes`: where a unit goes that was held back. */
typedef struct {
    part_of_op *part;
    const phases_of_op *phases;
    int32_t units, grain, out, unit_bytes;
} shared_op;
"""


def _run_held(name: str, most: int) -> str:
    """The function that runs a phase in which units are held back, `most` bytes of them on all cores."""
    return f"""\
/* Makes units elsewhere; when all cores have read what they need, they go where they belong. */
static void run_held(const shared_op *op, void *arena, {name}_team *team, int core, int cores, int32_t first,
                     int32_t end) {{
    union {{
        unsigned char bytes[HELD_BYTES({most})];
        int64_t alignment;
    }} held;
    if (first < end) {{
        op->part(arena, core, first, end, held.bytes);
    }}
    {name.upper()}_BARRIER(team, core, cores);
    if (first < end) {{
        memcpy(AT(op->out + first * op->unit_bytes), held.bytes, (size_t)((end - first) * op->unit_bytes));
    }}
}}
"""


def _run_shared(name: str, has_held: bool) -> str:
    """The function that runs an op that cores share."""
    macro = name.upper()
    held = """\
            if (phases->how == HELD) {
                run_held(op, arena, team, core, cores, begin, stop);
                is_held = 1;
                first = end;
                continue;
            }
"""
    last = f"""\
    if (is_held) {{
        {macro}_BARRIER(team, core, cores);
    }}
"""
    return f"""\
static void run_shared(const shared_op *op, void *arena, {name}_team *team, int core, int cores) {{
    int32_t first = 0;
{"    int is_held = 0;" + chr(10) if has_held else ""}\
    if (cores == 1) {{
        op->part(arena, core, 0, op->units, NULL);
        return;
    }}
    for (const phases_of_op *phases = op->phases; first < op->units; ++phases) {{
        while (first < phases->end) {{
            const int32_t end = phases->end - first > phases->step ? first + phases->step : phases->end;
            const int32_t grains = (end - first + op->grain - 1) / op->grain;
            const int32_t share = first + {macro}_SHARE(grains, core, cores) * op->grain;
            const int32_t next = first + {macro}_SHARE(grains, core + 1, cores) * op->grain;
            const int32_t begin = phases->how == ALONE ? first : share;
            const int32_t stop = phases->how == ALONE ? (core == 0 ? end : first) : next < end ? next : end;
{held if has_held else ""}\
            if (begin < stop) {{
                op->part(arena, core, begin, stop, NULL);
            }}
            {macro}_BARRIER(team, core, cores);
{"            is_held = 0;" + chr(10) if has_held else ""}\
            first = end;
        }}
    }}
{last if has_held else ""}\
}}
"""


def _part(program: Program, tables: Tables, sharing: Sharing, name: str) -> str:
    """The part function of an op, its phases, and what joins them."""
    node, call = program.graph.nodes[sharing.op], program.calls[sharing.op]
    if call is None:
        raise PlanError(f"{node.label}: the plan has cores share what moves nothing")
    number, cut, out = node.op.number, sharing.cut, node.output
    lines = list(_body(program, tables, sharing, call, node))
    body = "".join(f"    {line}\n" for line in lines)
    used = "".join(f"    (void){what};\n" for what in ("core", "held") if not any(what in line for line in lines))
    phases = "".join(f"    {{{p.end}, {p.step}, {p.how.name}}},\n" for p in sharing.phases)
    fields = f"op{number}_part, op{number}_phases, {cut.units}, {cut.grain}"
    unit_bytes = out.size_bytes // cut.units if sharing.most_held else 0
    return f"""\
/* {describe(node)}: {cut.along.value} */
static {name.upper()}_CODE_ATTR void op{number}_part(void *arena, int core, int32_t first, int32_t end, void *held) {{
    {call.parameters.type} part = op{number};
{used}{body}}}
static const phases_of_op op{number}_phases[] = {{
{phases}}};
static const shared_op op{number}_shared = {{{fields}, {program.offsets[out.index]}, {unit_bytes}}};
"""


def _body(program: Program, tables: Tables, sharing: Sharing, call: CCall, node: Node) -> Iterator[str]:
    if sharing.cut.along is Along.CHANNELS:
        yield from _channels(program, tables, sharing, call, node)
    elif "window" in call.parameters.fields:
        yield from _pixels(program, tables, sharing, call, node)
    else:
        yield from _stretch(program, tables, sharing, call, node)


def _pixels(program: Program, tables: Tables, sharing: Sharing, call: CCall, node: Node) -> Iterator[str]:
    """A stretch of a row after the other, by the kernel's row function."""
    of, size = f"op{node.op.number}.window", node.output.dtype.size_bytes
    at = f"diagmem_pixel_at(&{of}, first)"
    own = argument_text(node.output, node, program, tables, at if size == 1 else f"{size} * {at}")
    apart = f"(unsigned char *)held + (first - begin) * {node.output.size_bytes // sharing.cut.units}"
    source = f"{argument_text(node.input(0), node, program, tables)}, {node.input(0).dtype.size_bytes}"
    scratch = "".join(f", {_scratch(program, node)}" for a in call.arguments if isinstance(a, CScratch))
    yield "const void *rows[DIAGMEM_MAX_ROWS];"
    yield "const int32_t begin = first;"
    yield "while (first < end) {"
    yield f"    void *const own = {own};"
    yield f"    void *const out = held == NULL ? own : {apart};"
    yield f"    first = diagmem_narrow(&{of}, {source}, first, end, &part.window, rows);"
    yield f"    {call.function}_row(&part, rows, out{scratch});"
    yield "}"


def _stretch(program: Program, tables: Tables, sharing: Sharing, call: CCall, node: Node) -> Iterator[str]:
    """All operands begin further on along their outermost axis."""
    fields = call.parameters.fields
    if "shape" in fields:
        walk = fields["shape"].fields
        axis = next((n for n, size in enumerate(walk["size"]) if size > 1), len(walk["size"]) - 1)
        yield f"part.shape.size[{axis}] = end - first;"
        steps = [walk[name][axis] for name in ("first", "second")[: len(call.arguments) - 1]] + [walk["out"][axis]]
    elif "rows" in fields:
        yield "part.rows = end - first;"
        steps = [node.input(0).elems // sharing.cut.units, node.output.elems // sharing.cut.units]
    else:
        raise PlanError(f"{node.label}: the plan has cores share what C cannot cut")
    given = []
    for tensor, step in zip(call.tensors, steps, strict=True):
        given.append(argument_text(tensor, node, program, tables, _times(step * tensor.dtype.size_bytes)))
    given[-1] = f"held != NULL ? held : {given[-1]}"
    yield f"{call.function}({', '.join(['&part', *given])});"


def _channels(program: Program, tables: Tables, sharing: Sharing, call: CCall, node: Node) -> Iterator[str]:
    """The kernel runs as if there were no other channels."""
    narrowed = call.channels
    if narrowed is None:
        raise PlanError(f"{node.label}: the plan has cores share channels, which C cannot cut")
    for path in narrowed.sizes:
        yield f"part.{path} = end - first;"
    for path, table in _tables(call.parameters, "part"):
        if table.name in narrowed.tables:
            yield f"{path} += {_moved(table, sharing, node)};"
    given = []
    for argument in call.arguments:
        if isinstance(argument, CScratch):
            given.append(_scratch(program, node))
            continue
        assert argument in (node.input(0), node.output)
        moves = argument is not node.input(0) or narrowed.are_of_input
        further = _times(node.output.dtype.size_bytes) if moves else ""
        given.append(argument_text(argument, node, program, tables, further))
    if sharing.cut.can_hold:
        given[1] = f"held != NULL ? held : {given[1]}"
    yield f"{call.function}({', '.join(['&part', *given])});"


def _times(size: int) -> str:
    """So much for each unit before the first."""
    return {0: "", 1: "first"}.get(size, f"{size} * first")


def _tables(struct: CStruct, path: str) -> Iterator[tuple[str, CTable]]:
    for name, value in struct.fields.items():
        if isinstance(value, CTable):
            yield f"{path}.{name}", value
        elif isinstance(value, CStruct):
            yield from _tables(value, f"{path}.{name}")


def _moved(table: CTable, sharing: Sharing, node: Node) -> str:
    """Elements of a table before those of channel `first`."""
    units, grain = sharing.cut.units, sharing.cut.grain
    if table.data.size % units == 0:
        return _times(table.data.size // units)
    if table.data.size * grain % units:
        raise PlanError(f"{node.label}: the channels of '{table.name}' are not alike, so that cores cannot share them")
    return f"first / {grain} * {table.data.size * grain // units}"


def _scratch(program: Program, node: Node) -> str:
    """That of the core."""
    library = program.library
    each = library.scratch_of_core(library.scratch_bytes(node))
    return f"AT({program.scratch[node.op.index]} + core * {each})"


def _invoke(program: Program, tables: Tables, name: str) -> str:
    macro, teamwork = name.upper(), program.teamwork
    assert teamwork is not None
    running = [node.op.index for node in program.nodes if program.calls[node.op.index] is not None]
    waits = dict(zip(running, teamwork.barriers_after(running), strict=True))
    body = "".join(line for node in program.nodes for line in _step(node, program, tables, name, waits))
    return f"""\
{macro}_CODE_ATTR void {name}_invoke_on(void *arena, {name}_team *team, int core, int cores) {{
    CHECK_ARENA();
    CHECK(team != NULL && 0 <= core && core < cores && cores <= {macro}_MOST_CORES);
    {macro}_BARRIER(team, core, cores);
{body}}}

void {name}_invoke_in(void *arena) {{
    {name}_team alone = {{{{0}}}};
    {name}_invoke_on(arena, &alone, 0, 1);
}}
"""


def _step(node: Node, program: Program, tables: Tables, name: str, waits: dict[int, bool]) -> Iterator[str]:
    op, number, macro = node.op.index, node.op.number, name.upper()
    call = program.calls[op]
    assert program.teamwork is not None
    if call is None:
        yield f"    /* {describe(node)}: stays where it is */\n"
    elif op in program.teamwork.by_op:
        yield f"    run_shared(&op{number}_shared, arena, team, core, cores);\n"
    else:
        yield f"    if (core == 0) {{\n        {call_text(node, call, program, tables)}\n    }}\n"
        yield f"    {macro}_BARRIER(team, core, cores);\n" if waits[op] else ""
    yield f"    {macro}_AFTER_OP({number});\n"
