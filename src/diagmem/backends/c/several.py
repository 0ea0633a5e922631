"""Several models as one library: a header for each, one arena for all, and every kernel once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagmem.backends.c import project
from diagmem.backends.c.header import header
from diagmem.backends.c.kernels_used import kernels_of
from diagmem.backends.c.memory import static_memory, wide_alignment
from diagmem.backends.c.model_source import model_source
from diagmem.backends.c.names import identifier
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.values import values_source
from diagmem.model.errors import PlanError
from diagmem.planning.owned import ARENA

_FILE_SCOPE = re.compile(
    r"^static [^;({=\n]*?\b(\w+)(?= ?[\[(=;])|^\} (\w+);|^typedef char (\w+)\[|^enum \{ (\w+) = \d+, (\w+) = \d+ \};",
    re.MULTILINE,
)
"""Names that a model's file has for itself: constants, functions, types, and the two numbers of a run by rows."""

_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)

SHARED = "static_arena"


def emit_several(programs: Mapping[str, Program], name: str) -> dict[str, bytes]:
    """The files of a library of models, by path. Each program was planned together with the others."""
    library = identifier(name)
    named = {identifier(own): program for own, program in programs.items()}
    if len(named) < len(programs) or library in named:
        raise PlanError(f"the models and the library need names of their own: {', '.join((library, *programs))}")
    if any(program.pools.uses[0].pool.name != ARENA for program in programs.values()):
        raise PlanError("the plans are not for one arena: plan the models with `together`")
    files = {f"{library}.h": _header(named, library), f"{library}.c": _source(named, library)}
    files[f"{library}_kernels.h"] = _guarded(library, kernels_of(list(named.values()), f"{library.upper()}_CODE_ATTR"))
    for own, program in named.items():
        tables, top = Tables(program, own), project.origin(program, own, None)
        files[f"{own}.h"] = top + header(program, own)
        files[f"{own}_code.h"] = top + _code(program, tables, own, library)
        files[f"{own}_values.c"] = top + values_source(program, own)
        files[f"{own}_weights.h"] = top + tables.header()
        files[f"{own}_weights.c"] = top + tables.text()
    return {path: text.encode() for path, text in files.items()}


def _arena_bytes(named: Mapping[str, Program]) -> int:
    return max(program.pools.uses[0].used_bytes for program in named.values())


def _header(named: Mapping[str, Program], library: str) -> str:
    macro = library.upper()
    included = "".join(f'#include "{own}.h"\n' for own in named)
    return f"""\
/* Models that share one arena: of {", ".join(named)} one runs at a time. A run may overwrite what another one has left
 * there; what lives from run to run has memory of its own. */
#ifndef {macro}_H
#define {macro}_H

{included}
#define {macro}_ARENA_BYTES {max(1, _arena_bytes(named))}
#ifndef {macro}_ARENA_ATTR
#define {macro}_ARENA_ATTR /* the arena */
#endif
#ifndef {macro}_CODE_ATTR
#define {macro}_CODE_ATTR /* each function that computes */
#endif

#endif
"""


def _source(named: Mapping[str, Program], library: str) -> str:
    """One file that includes the models' code, so that they share kernels."""
    widest = max(named.values(), key=lambda program: program.align_bytes)
    macro = library.upper()
    included = "".join(f'#include "{own}_code.h"\n' for own in named)
    return f"""\
#include "{library}.h"

#include "{library}_kernels.h"

#define {macro}_ARENA_ALIGN {widest.align_bytes}
{wide_alignment(widest, library)}{static_memory(widest, f"{macro}_ARENA", SHARED)}
{included}"""


def _guarded(library: str, text: str) -> str:
    guard = f"{library.upper()}_KERNELS_H"
    return f'#ifndef {guard}\n#define {guard}\n\n#include "{library}.h"\n\n{text}\n#endif\n'


def _code(program: Program, tables: Tables, own: str, library: str) -> str:
    """The model's file with names that no other model has, and without what it defines for itself."""
    text = model_source(program, tables, own, is_shared=True).replace(f"{own}_kernels.h", f"{library}_kernels.h")
    names = {name for found in _FILE_SCOPE.findall(text) for name in found if name} - {SHARED}
    if names:
        text = re.sub(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b", rf"{own}_own_\1", text)
    macros = [macro for macro in dict.fromkeys(_MACRO.findall(text)) if not macro.startswith(own.upper())]
    return text + "\n" + "".join(f"#undef {macro}\n" for macro in macros)
