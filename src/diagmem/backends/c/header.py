"""The text of NAME.h: what a firmware calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.backends.c.arenas import arena_type, functions, pool_constants, pool_givers, pool_places
from diagmem.backends.c.calls import shape_of
from diagmem.backends.c.literals import comment, number
from diagmem.backends.c.program import C_TYPES, Program
from diagmem.backends.c.values import tensor_type, value_functions
from diagmem.model.graph import Graph, Tensor

_WHOLE = """\
An index that does not exist gives NULL. Write the inputs before each run, for it may
 * overwrite them."""

_BY_ROWS = """\
Hand over the rows of the input, from first to last:
 * NAME_push_row takes one, computes all that can be computed, and returns 1 after the
 * last row, when the outputs are there; else 0. The next row then begins a new run.
 * NAME_start gives up a run. An output that does not exist is NULL."""

_RESET = """
 * NAME_reset sets the state that lives from run to run to its first value: call it before
 * the first run, and to begin anew."""

_NEXT = """
 * NAME_next_input is where the next frame of an input is written, also while this one runs, which leaves it alone; NULL
 * of an input that has no such place. NAME_take_next copies it to where the run reads it: call it before each run, when
 * the frame is whole, and then let the next one come."""

_START_IN = "\n * NAME_start_in is mandatory before the first row that an arena is given."

_PLACES = (
    ("WEIGHTS", "each table of weights"),
    ("ARENA", "the model's own arena"),
    ("CODE", "each function that computes"),
)


def header(program: Program, name: str, is_shared: bool = False) -> str:
    """NAME.h after its first comment. `is_shared`: arenas are those of a library of several models."""
    macro, model = name.upper(), program.model
    api = functions(program)
    about = _BY_ROWS if program.input_rows else _WHOLE
    about += (_NEXT if program.next_frames else "") + (_RESET if program.states else "")
    own = "\n".join(f"{function.declaration(name)};" for function in api)
    given = "\n".join(f"{function.declaration_in(name)};" for function in api)
    return f"""\
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

{_places(macro)}
#define {macro}_ARENA_BYTES {max(1, program.arena_bytes)}
#define {macro}_ARENA_ALIGN {program.align_bytes} /* an arena starts on a multiple of so many bytes */
{pool_constants(program, name, is_shared) if program.pools else ""}\
{_state(macro, program)}
{_tensors(f"{macro}_INPUT", model, model.inputs)}{_rows(macro, program)}
{_tensors(f"{macro}_OUTPUT", model, model.outputs)}
{tensor_type(program, name)}{_team(program, name)}
#ifdef __cplusplus
extern "C" {{
#endif

/* With the model's own arena. {about.replace("NAME", name)} */
#ifndef {macro}_NO_STATIC_ARENA
{pool_givers(program, name)}{own}
#endif

/* The same with arenas of your own, {_own_arenas(program, macro)}: any
 * number at once, from any thread.{_START_IN.replace("NAME", name) if program.input_rows else ""} */
{given}

{_on_cores(program, name)}\
/* The first place in memory of yours where an arena may start; NULL if the memory is too small for it. */
{pool_places(program, name) if program.pools else f"void *{name}_arena(void *memory, size_t memory_bytes);{_NEWLINE}"}\

{value_functions(program, name)}
#ifdef __cplusplus
}}
#endif

#endif
"""


_NEWLINE = "\n"


def _own_arenas(program: Program, macro: str) -> str:
    if program.pools:
        return f"in a list of {macro}_POOLS, each of as many bytes as its pool and on a multiple of {macro}_ARENA_ALIGN"
    return f"each of {macro}_ARENA_BYTES that start on a multiple of {macro}_ARENA_ALIGN"


def _state(macro: str, program: Program) -> str:
    """How much of the arena lives from run to run."""
    size_bytes = sum(tensor.size_bytes for tensor in program.states)
    return (
        f"#define {macro}_STATE_BYTES {size_bytes} /* of the arena, that live from run to run */\n"
        if size_bytes
        else ""
    )


def _team(program: Program, name: str) -> str:
    """What cores share that run the model together."""
    if program.multicore is None:
        return ""
    return f"""
#define {name.upper()}_MOST_CORES {program.multicore.cores}

/* How often each core has come to a barrier. Set it to 0 once, and again before another number of cores uses it; it
 * lies in memory that no core caches. */
typedef struct {{
    uint32_t arrived[{name.upper()}_MOST_CORES];
}} {name}_team;
"""


def _on_cores(program: Program, name: str) -> str:
    if program.multicore is None:
        return ""
    macro, arena = name.upper(), arena_type(program)
    if program.input_rows:
        return f"""\
/* The next row on `cores` cores at once, 1 to {macro}_MOST_CORES: each calls it with one arena and team, and with its
 * own number, from 0 on. The first one takes the row, others may be given NULL. It returns on all of them what
 * {name}_push_row_in returns. {macro}_AFTER_OP is called on each core. */
int {name}_push_row_on({arena}arena, {name}_team *team, int core, int cores, const void *row);

"""
    return f"""\
/* One run on `cores` cores at once, 1 to {macro}_MOST_CORES: each calls it with one arena and team, and with its own
 * number, from 0 on. It returns on all of them when the outputs are there; the inputs must be when the last one calls
 * it. {macro}_AFTER_OP is called on each core. */
void {name}_invoke_on({arena}arena, {name}_team *team, int core, int cores);

"""


def _places(macro: str) -> str:
    """Macros by which a firmware says where things lie."""
    hooks = "".join(
        f"#ifndef {macro}_{what}_ATTR\n#define {macro}_{what}_ATTR /* {of} */\n#endif\n" for what, of in _PLACES
    )
    return f"""\
/* Where things lie: define these as your compiler's attributes, such as __attribute__((section(".ccm"))), in a header
 * whose name is given as {macro}_CONFIG, with its quotes. */
#ifdef {macro}_CONFIG
#include {macro}_CONFIG
#endif
{hooks}"""


def _rows(macro: str, program: Program) -> str:
    """What a caller needs to know who hands over the input row by row."""
    if not program.input_rows:
        return ""
    tensor = program.graph.tensors[program.graph.inputs[0]]
    return (
        f"#define {macro}_INPUT_0_ROWS {tensor.rows}\n#define {macro}_INPUT_0_ROW_BYTES {tensor.row_bytes}\n"
        f"#define {macro}_INPUT_0_ROW_ELEMS {tensor.row_bytes // tensor.dtype.size_bytes}\n"
    )


def _tensors(macro: str, graph: Graph, tensors: Sequence[int]) -> str:
    blocks = ("".join(f"{line}\n" for line in _tensor(f"{macro}_{n}", graph.tensors[t])) for n, t in enumerate(tensors))
    return f"#define {macro}S {len(tensors)}\n{''.join(blocks)}"


def _tensor(macro: str, tensor: Tensor) -> Iterator[str]:
    yield f"/* '{comment(tensor.label)}': {shape_of(tensor)} */"
    yield f"#define {macro}_TYPE {C_TYPES[tensor.dtype]}"
    yield f"#define {macro}_RANK {max(1, len(tensor.shape))}"
    yield f"#define {macro}_SHAPE {{{', '.join(map(str, tensor.shape)) or '1'}}}"
    yield f"#define {macro}_ELEMS {tensor.elems}"
    yield f"#define {macro}_BYTES {tensor.size_bytes}"
    found = tensor.quantisation
    if found is not None and not found.per_channel:
        yield f"#define {macro}_SCALE {number(found.scales[0])}"
        yield f"#define {macro}_ZERO_POINT ({number(found.zero_points[0])})"
