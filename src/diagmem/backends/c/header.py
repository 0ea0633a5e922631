"""The text of NAME.h: what a firmware calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagmem.backends.c.api import functions
from diagmem.backends.c.calls import shape_of
from diagmem.backends.c.literals import number
from diagmem.backends.c.names import comment
from diagmem.backends.c.program import Program
from diagmem.model.graph import DType, Graph, Tensor

C_TYPES = {
    DType.FLOAT32: "float",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.INT64: "int64_t",
    DType.BOOL: "uint8_t",
}


_WHOLE = """\
An index that does not exist gives NULL. Write the inputs before each run, for it may
 * overwrite them."""

_BY_ROWS = """\
Hand over the rows of the input, from first to last:
 * NAME_push_row takes one, computes all that can be computed, and returns 1 after the
 * last row, when the outputs are there; else 0. The next row then begins a new run.
 * NAME_start gives up a run; an arena of your own needs it before its first run.
 * An output that does not exist is NULL."""


def header(program: Program, name: str) -> str:
    """NAME.h after its first comment."""
    macro, model = name.upper(), program.model
    api = functions(program)
    about = (_BY_ROWS if program.input_rows else _WHOLE).replace("NAME", name)
    own = "\n".join(f"{function.declaration(name)};" for function in api)
    given = "\n".join(f"{function.declaration_in(name)};" for function in api)
    return f"""\
#ifndef {macro}_H
#define {macro}_H

#include <stdint.h>

#define {macro}_ARENA_BYTES {max(1, program.arena_bytes)}
#define {macro}_ARENA_ALIGN {program.align_bytes} /* the arena starts on a multiple of so many bytes */

{_tensors(f"{macro}_INPUT", model, model.inputs)}{_rows(macro, program)}
{_tensors(f"{macro}_OUTPUT", model, model.outputs)}
#ifdef __cplusplus
extern "C" {{
#endif

/* With the model's own arena. {about} */
#ifndef {macro}_NO_STATIC_ARENA
{own}
#endif

/* The same with arenas of your own, each of {macro}_ARENA_BYTES: any number at once, from any thread. */
{given}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _rows(macro: str, program: Program) -> str:
    """What a caller needs to know who hands over the input row by row."""
    if not program.input_rows:
        return ""
    tensor = program.graph.tensors[program.graph.inputs[0]]
    return f"#define {macro}_INPUT_0_ROWS {tensor.rows}\n#define {macro}_INPUT_0_ROW_BYTES {tensor.row_bytes}\n"


def _tensors(macro: str, graph: Graph, tensors: Sequence[int]) -> str:
    blocks = ("".join(f"{line}\n" for line in _tensor(f"{macro}_{n}", graph.tensors[t])) for n, t in enumerate(tensors))
    return f"#define {macro}S {len(tensors)}\n{''.join(blocks)}"


def _tensor(macro: str, tensor: Tensor) -> Iterator[str]:
    yield f"/* '{comment(tensor.label)}': {shape_of(tensor)} */"
    yield f"#define {macro}_TYPE {C_TYPES[tensor.dtype]}"
    yield f"#define {macro}_ELEMS {tensor.elems}"
    yield f"#define {macro}_BYTES {tensor.size_bytes}"
    found = tensor.quantisation
    if found is not None and not found.per_channel:
        yield f"#define {macro}_SCALE {number(found.scales[0])}"
        yield f"#define {macro}_ZERO_POINT ({number(found.zero_points[0])})"
