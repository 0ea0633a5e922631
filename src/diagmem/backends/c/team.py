"""How C runs a model on several cores: the barrier, how they go through the phases of an op, and what every core
calls."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.addresses import arena_type
from diagmem.backends.c.calls import call_text, describe
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.team_parts import part_of_op, part_parameters, part_result, turn_parameter
from diagmem.model.graph import Node
from diagmem.model.multicore import Along, Split
from diagmem.model.schedule import Step
from diagmem.planning.cores.multicore import most_held_bytes

SPAN = "_span.h"
"""What row functions need to make some pixels of a row."""


def needs_span(program: Program) -> bool:
    """Whether cores share pixels that a window makes, or a row of it."""
    return any(_is_windowed(program, split) for split in shared_steps(program))


def shared_steps(program: Program) -> tuple[Split, ...]:
    return () if program.multicore is None else program.multicore.splits


def _is_windowed(program: Program, split: Split) -> bool:
    call = program.calls[split.op]
    is_cut = split.cut.along is Along.PIXELS or (split.turns is not None and split.cut.along is not Along.ROWS)
    return is_cut and call is not None and "window" in call.parameters.fields


def run_as_team(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """The barrier, the parts of each op, and the functions that run them."""
    yield from team_setting(program, name)
    for split in shared_steps(program):
        yield part_of_op(program, tables, split, name)
    yield _invoke(program, tables, name)


def team_setting(program: Program, name: str) -> Iterator[str]:
    """The barrier, and how phases are run."""
    yield _barrier(name)
    most = most_held_bytes(program.graph, program.multicore)
    if shared_steps(program) or program.visits:
        yield _types(program)
        yield _run_held(program, name, most) if most else ""
        yield _run_shared(program, name, has_held=most > 0)


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


def _types(program: Program) -> str:
    where = "; returns where its turn belongs, if it is one of several" if program.visits else ""
    pool = "; `pool`: in which arena" if program.pools else ""
    fields = f"{'    int32_t pool;' + _NEWLINE if program.pools else ''}"
    return f"""\
/* Some units of an operation; where `held` is given they go there, and not where they belong{where}. */
typedef {part_result(program)}part_of_op({part_parameters(program)});

/* Units up to `end`, `step` of them in each phase: all cores share them; or hold them back until all have read; or the
 * first core does them alone. */
typedef struct {{
    int32_t end, step, how;
}} phases_of_op;

enum {{ SHARED, HELD, ALONE }};

/* Cores take units by multiples of `grain`. `out`, `unit_bytes`: where a unit goes that was held back{pool}. */
typedef struct {{
    part_of_op *part;
    const phases_of_op *phases;
    int32_t units, grain, out, unit_bytes;
{fields}}} shared_op;
"""


_NEWLINE = "\n"


def _run_held(program: Program, name: str, most: int) -> str:
    """The function that runs a phase in which units are held back, `most` bytes of them on all cores."""
    turn, own = turn_parameter(program, "int32_t "), f"AT({'op->pool, ' if program.pools else ''}op->out"
    place, kept, is_kept = f"{own} + first * op->unit_bytes)", "", ""
    if program.visits:
        kept, is_kept, place = "    void *own = NULL;\n", "own = ", f"own != NULL ? own : {place}"
    return f"""\
/* Makes units elsewhere; when all cores have read what they need, they go where they belong. */
static void run_held(const shared_op *op, {arena_type(program)}arena, {name}_team *team, int core, int cores\
{turn}, int32_t first,
                     int32_t end) {{
    union {{
        unsigned char bytes[HELD_BYTES({most})];
        int64_t alignment;
    }} held;
{kept}\
    if (first < end) {{
        {is_kept}op->part(arena, core{turn_parameter(program)}, first, end, held.bytes);
    }}
    {name.upper()}_BARRIER(team, core, cores);
    if (first < end) {{
        memcpy({place}, held.bytes, (size_t)((end - first) * op->unit_bytes));
    }}
}}
"""


def _run_shared(program: Program, name: str, has_held: bool) -> str:
    """The function that runs an op that cores share, or a turn of it."""
    macro, turn = name.upper(), turn_parameter(program)
    held = f"""\
            if (phases->how == HELD) {{
                run_held(op, arena, team, core, cores{turn}, begin, stop);
                is_held = 1;
                first = end;
                continue;
            }}
"""
    last = f"""\
    if (is_held) {{
        {macro}_BARRIER(team, core, cores);
    }}
"""
    return f"""\
static void run_shared(const shared_op *op, {arena_type(program)}arena, {name}_team *team, int core, int cores\
{turn_parameter(program, "int32_t ")}) {{
    int32_t first = 0;
{"    int is_held = 0;" + chr(10) if has_held else ""}\
    if (cores == 1) {{
        op->part(arena, core{turn}, 0, op->units, NULL);
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
                op->part(arena, core{turn}, begin, stop, NULL);
            }}
            {macro}_BARRIER(team, core, cores);
{"            is_held = 0;" + chr(10) if has_held else ""}\
            first = end;
        }}
    }}
{last if has_held else ""}\
}}
"""


def _invoke(program: Program, tables: Tables, name: str) -> str:
    macro, multicore = name.upper(), program.multicore
    assert multicore is not None
    running = [Step(node.op.index) for node in program.nodes if program.calls[node.op.index] is not None]
    waits = {step.op: is_after for step, is_after in zip(running, multicore.barriers_after(running), strict=True)}
    body = "".join(line for node in program.nodes for line in _step(node, program, tables, name, waits))
    return f"""\
{macro}_CODE_ATTR void {name}_invoke_on({arena_type(program)}arena, {name}_team *team, int core, int cores) {{
    CHECK_ARENA();
    CHECK(team != NULL && 0 <= core && core < cores && cores <= {macro}_MOST_CORES);
    {macro}_BARRIER(team, core, cores);
{body}}}

{invoke_alone(program, name)}"""


def invoke_alone(program: Program, name: str) -> str:
    """The same on one core."""
    return f"""\
void {name}_invoke_in({arena_type(program)}arena) {{
    {name}_team alone = {{{{0}}}};
    {name}_invoke_on(arena, &alone, 0, 1);
}}
"""


def _step(node: Node, program: Program, tables: Tables, name: str, waits: dict[int, bool]) -> Iterator[str]:
    op, number, macro = node.op.index, node.op.number, name.upper()
    call = program.calls[op]
    assert program.multicore is not None
    if call is None:
        yield f"    /* {describe(node)}: stays where it is */\n"
    elif program.multicore.of_op(op) is not None:
        yield f"    run_shared(&op{number}_shared, arena, team, core, cores);\n"
    else:
        yield f"    if (core == 0) {{\n        {call_text(node, call, program, tables)}\n    }}\n"
        yield f"    {macro}_BARRIER(team, core, cores);\n" if waits[op] else ""
    yield f"    {macro}_AFTER_OP({number});\n"
