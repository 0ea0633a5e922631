"""What surrounds the code: how build systems find it, and what a firmware engineer has to know."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from diagmem import __version__
from diagmem.backends.c.calls import shape_of
from diagmem.backends.c.literals import comment
from diagmem.backends.c.program import C_TYPES, Program
from diagmem.backends.c.steps import sequence_bytes


def origin(program: Program, name: str, model_sha256: str | None) -> str:
    """The comment at the start of every file."""
    bound = "" if program.lower_bound_bytes is None else f" (lower bound {program.lower_bound_bytes})"
    digest = "" if model_sha256 is None else f", sha256 {model_sha256}"
    return f"""\
/* {name}: made by diagmem {__version__}; do not edit.
 * model: {comment(program.graph.name)}{digest}
 * kernels: {program.kernels}; arena: {program.arena_bytes} bytes{bound} */
"""


ARDUINO = (
    *("apollo3", "esp32", "mbed", "mbed_giga", "mbed_nano", "mbed_nicla", "mbed_opta", "mbed_portenta", "mbed_rp2040"),
    *("nrf52", "renesas_portenta", "renesas_uno", "rp2040", "sam", "samd", "silabs", "stm32", "teensy", "zephyr"),
)
"""Arduino's names of architectures whose int has 32 bits and whose constants stay in flash: neither AVR nor ESP8266."""

PLATFORMIO = (
    *("atmelsam", "espressif32", "freescalekinetis", "gd32v", "maxim32", "native", "nordicnrf52", "nxpimxrt", "nxplpc"),
    *("raspberrypi", "renesas-ra", "sifive", "siliconlabsefm32", "ststm32", "teensy"),
)
"""PlatformIO's names of the same."""


def arduino(name: str, what: str) -> str:
    return f"""\
name={name}
version={__version__}
author=diagmem
maintainer=diagmem
sentence={what} as C.
paragraph=Made by diagmem: static memory, no dependencies.
category=Data Processing
url=
architectures={",".join(ARDUINO)}
includes={name}.h
"""


def platformio(name: str, what: str) -> str:
    about = {
        "name": name,
        "version": __version__,
        "description": f"{what} as C, made by diagmem",
        "frameworks": "*",
        "platforms": list(PLATFORMIO),
        "headers": f"{name}.h",
    }
    return json.dumps(about, indent=2) + "\n"


def usage(program: Program, name: str, result: str = "output") -> str:
    """How the model is run, as C."""
    macro = name.upper()
    reset = f"{name}_reset(); /* once, before the first run */\n" if program.states else ""
    return f"{reset}{_use(program, name, macro)}\nconst {macro}_OUTPUT_0_TYPE *{result} = {name}_output_0();"


def readme(program: Program, name: str, weights_bytes: int) -> str:
    macro = name.upper()
    return f"""\
# {name}

A neural network as C99, made by diagmem {__version__}. It needs no operating system and no heap, and of the C library
only what the compiler itself calls, such as `memcpy`.

- RAM: {program.arena_bytes} bytes of arena, and the stack (`diagmem verify --on cortex-m4` measures it).
{"".join(f"  - {u.pool.name}: {u.used_bytes} of {u.pool.capacity_bytes} bytes{_NEWLINE}" for u in program.pools.uses)}\
- Flash: {weights_bytes} bytes of weights, and the code.

```c
#include "{name}.h"

{usage(program, name)}
```
{_by_rows(program)}{_real_numbers(program, name)}
| tensor | shape | type | scale | zero point |
|---|---|---|---|---|
{"".join(_rows(program))}
A stored value q means the number scale * (q - zero point).

{_KEPT_ROWS if program.input_rows else _KEPT}
{_STATE.format(name=name, size=sum(t.size_bytes for t in program.states)) if program.states else ""}\
{_own_memory(program).format(name=name, macro=macro)}
{_team(program, name)}\
- Where things lie is yours to say: {macro}_WEIGHTS_ATTR, {macro}_ARENA_ATTR and {macro}_CODE_ATTR are put before each
  table of weights, the arena, and each function that computes: `__attribute__((section(".ccm")))`, say, in a header of
  yours whose name is given as {macro}_CONFIG.
- Define {macro}_DEBUG while you develop: `assert` then checks that arenas {_CHECKED[program.input_rows]}. Define
  {macro}_ASSERT(condition) to have it done in your way.
- Define {macro}_AFTER_OP(op) to have something done after each operation.
{_copies(program, macro)}\
- Several models may be part of one program: every global name starts with the model's own.
- `{name}_kernels.h` and `{name}_weights.h` are for `{name}.c` alone.
- Compile with optimisation (`-O2`): without, it takes many times as long. A CMakeLists.txt that lies beside this file
  does so unless a build type or CMAKE_C_FLAGS says otherwise. Tensors overlap in memory on purpose; the kernels are
  written for it.
- For real numbers (float), keep the compiler from fusing operations (`-ffp-contract=off`) if every bit counts.
"""


_OWN = """\
- `{name}_invoke_in(arena)` runs in memory of yours: {macro}_ARENA_BYTES bytes that start on a multiple of
  {macro}_ARENA_ALIGN. `{name}_arena(memory, bytes)` finds the place in any memory; NULL means that it is too small.
  Define {macro}_NO_STATIC_ARENA for all files to leave out the model's own arena."""

_OWN_ROWS = """\
- `{name}_push_row_in(arena, row)` runs in memory of yours: {macro}_ARENA_BYTES bytes that start on a multiple of
  {macro}_ARENA_ALIGN. **Call `{name}_start_in(arena)` before its first row**: the arena remembers how far a run
  has come. `{name}_arena(memory, bytes)` finds the place in any memory; NULL means that it is too small.
  Define {macro}_NO_STATIC_ARENA for all files to leave out the model's own arena."""

_OWN_POOLS = """\
- The arena is in several memories. {macro}_POOL_…_ATTR says where the model's own array in each goes:
  `__attribute__((section(".dtcm")))`, say. `{name}_invoke_in(arenas)` and its like run in memory of yours: a list of
  {macro}_POOLS arenas, each of {macro}_POOL_…_BYTES bytes that start on a multiple of {macro}_ARENA_ALIGN, in the
  order of {name}.h. Define {macro}_NO_STATIC_ARENA for all files to leave out the model's own arenas."""


def _own_memory(program: Program) -> str:
    if program.pools:
        return _OWN_POOLS
    return _OWN_ROWS if program.input_rows else _OWN


_CHECKED = ("are there, and aligned", "are there, aligned, and were started")

_KEPT = """\
- Inputs, outputs and everything between share one arena, so a run may overwrite its inputs: write all of them before
  each run, and read the outputs before the next one."""

_KEPT_ROWS = """\
- Rows and everything made of them share one arena: read the outputs before the first row of the next run."""


_NEWLINE = "\n"

_TEAM = """\
- Up to {most} cores share a run: each calls `{name}_{call}` with the same arena and
  `{name}_team`, which is 0 at first, and with its own number. {macro}_RELAX() is done while one waits for the others.
"""


def _copies(program: Program, macro: str) -> str:
    if not program.weight_copies:
        return ""
    done = f"{macro}_COPIED() waits for it" if program.copies_ahead else "the bytes must be there when it is done"
    return f"""\
- Weights that an operation reads over and over are copied to RAM before it. Define {macro}_COPY(to, from, bytes) to
  have it done in your way, by DMA, say; {done}.
"""


def _team(program: Program, name: str) -> str:
    if program.multicore is None:
        return ""
    call = _TEAM_CALL[program.input_rows]
    return _TEAM.format(name=name, macro=name.upper(), most=program.multicore.cores, call=call)


_TEAM_CALL = ("invoke_on(arena, &team, core, cores)", "push_row_on(arena, &team, core, cores, row)")

_STATE = """\
- {size} bytes of the arena are state: what the model remembers from run to run. Leave the arena alone between runs, but
  for inputs and outputs. `{name}_reset()` sets the state to its first value: **call it before the first run**, and
  to begin anew. A run that is given up half-way leaves the state half changed: reset it.
"""


def _use(program: Program, name: str, macro: str) -> str:
    if program.input_rows:
        return f"""\
for (int y = 0; y < {macro}_INPUT_0_ROWS; ++y) {{
    {name}_push_row(…); /* {macro}_INPUT_0_ROW_BYTES bytes: a line of the camera, a frame of sound */
}}"""
    if program.next_frames:
        number = program.graph.inputs.index(next(iter(program.next_frames)))
        return f"""\
/* {name}_next_input({number}) is where your DMA writes; when a frame is whole: */
{name}_take_next();
… /* let the next frame come, to the same place */
{name}_invoke();"""
    return f"""\
{macro}_INPUT_0_TYPE *input = {name}_input_0();
for (int i = 0; i < {macro}_INPUT_0_ELEMS; ++i) {{
    input[i] = …;
}}
{name}_invoke();"""


def _real_numbers(program: Program, name: str) -> str:
    put = "quantize_row(values, row)" if program.input_rows else "quantize_input(index, values)"
    return f"""
From and to real numbers: `{name}_{put}` and `{name}_dequantize_output(index, values)`. What the
table below says is in the header too, as macros and as the constants `{name}_inputs[]` and `{name}_outputs[]`.
"""


def _by_rows(program: Program) -> str:
    """How a model runs of which only some rows exist at once."""
    if not program.visits:
        return ""
    forms = Counter(storage.form for storage in program.by_rows.values())
    return f"""
It runs row by row: each of {len(program.steps)} steps makes one row of a tensor, or all of a small one. Rows lie one
behind the other ({forms["linear"]} tensors), in a ring ({forms["ring"]}), or where a table says ({forms["table"]}).
Steps and tables take {sequence_bytes(program)} bytes of flash.
"""


def _rows(program: Program) -> Iterator[str]:
    """Lines of the README's table."""
    for what, indices in (("input", program.model.inputs), ("output", program.model.outputs)):
        for number, index in enumerate(indices):
            tensor = program.model.tensors[index]
            found = tensor.quantisation
            scale = f"{found.scales[0]!r} | {found.zero_points[0]}" if found else "- | -"
            yield f"| {what} {number} | {shape_of(tensor)} | {C_TYPES[tensor.dtype]} | {scale} |\n"
