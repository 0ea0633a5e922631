"""Several models as one library: a header for each, one arena for all, and every kernel once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagmem.backends.c.arenas import pool_macro
from diagmem.backends.c.kernels import kernels_of
from diagmem.backends.c.layouts import FileLayout, Library, laid_out
from diagmem.backends.c.literals import identifier
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.backends.c.text import filled, model_source, origin, rendered
from diagmem.model.errors import PlanError
from diagmem.planning.memory.caller import ARENA

_FILE_SCOPE = re.compile(
    r"^static [^;({=\n]*?\b(\w+)(?= ?[\[(=;])|^\} (\w+);|^typedef char (\w+)\[|^enum \{ (\w+) = \d+, (\w+) = \d+ \};",
    re.MULTILINE,
)
"""Names that a model's file has for itself: constants, functions, types, and the two numbers of a run by rows."""

_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)


def emit_several(programs: Mapping[str, Program], name: str, layout: FileLayout = "plain") -> dict[str, bytes]:
    """The files of a library of models, by path. Each program was planned together with the others."""
    library = identifier(name)
    named = {identifier(own): program for own, program in programs.items()}
    if len(named) < len(programs) or library in named:
        raise PlanError(f"the models and the library need names of their own: {', '.join((library, *programs))}")
    if not all(program.pools for program in programs.values()):
        raise PlanError("the plans are not for one arena: plan the models with `together`")
    given = {
        "named": named,
        "library": library,
        "macro": library.upper(),
        "shared": _shared(named, library),
        "kept": [(own, use) for own, p in named.items() for use in p.pools.uses if use.pool.is_kept],
        "alone": {own for own, p in named.items() if not _shared({own: p}, library)},
        "align_bytes": max(program.align_bytes for program in named.values()),
        "pool_macro": pool_macro,
        "variable": _variable,
    }
    files = {f"{library}.{ending}": filled(f"library.{ending}.j2", **given) for ending in ("h", "c")}
    files[f"{library}_kernels.h"] = _guarded(library, kernels_of(list(named.values()), f"{library.upper()}_CODE_ATTR"))
    for own, program in named.items():
        tables, top = Tables(program, own), origin(program, own, None)
        files[f"{own}.h"] = top + rendered("model.h.j2", program, own, is_shared=True)
        files[f"{own}_code.h"] = top + _code(program, tables, own, library)
        files[f"{own}_values.c"] = top + rendered("values.c.j2", program, own)
        files[f"{own}_weights.h"] = top + tables.header()
        files[f"{own}_weights.c"] = top + tables.text()
    code = {path: text.encode() for path, text in files.items()}
    readme = filled("library.md.j2", **given).encode()
    return {**laid_out(Library(named, library, code), layout), "README.md": readme}


def _shared(named: Mapping[str, Program], library: str) -> dict[str, tuple[str, int]]:
    """The arenas that all models share, by the name of their memory: what their macros begin with, and their bytes."""
    found: dict[str, tuple[str, int]] = {}
    for use in (use for program in named.values() for use in program.pools.uses):
        own = use.pool.name
        if not (use.pool.is_kept or use.pool.is_external):
            macro = f"{library.upper()}_ARENA" if own == ARENA else pool_macro(library, use)
            found[own] = (macro, max(1, use.used_bytes, found.get(own, ("", 0))[1]))
    return found


def _variable(pool: str) -> str:
    """What a model's own arena there would be called."""
    return f"static_{pool.lower()}"


def _guarded(library: str, text: str) -> str:
    guard = f"{library.upper()}_KERNELS_H"
    return f'#ifndef {guard}\n#define {guard}\n\n#include "{library}.h"\n\n{text}\n#endif\n'


def _code(program: Program, tables: Tables, own: str, library: str) -> str:
    """The model's file with names that no other model has, and without what it defines for itself."""
    text = model_source(program, tables, own, is_shared=True).replace(f"{own}_kernels.h", f"{library}_kernels.h")
    shared = {_variable(pool) for pool in _shared({own: program}, library)}
    names = {name for found in _FILE_SCOPE.findall(text) for name in found if name} - shared
    if names:
        text = re.sub(rf"\b({'|'.join(sorted(names, key=len, reverse=True))})\b", rf"{own}_own_\1", text)
    macros = [macro for macro in dict.fromkeys(_MACRO.findall(text)) if not macro.startswith(own.upper())]
    return text + "\n" + "".join(f"#undef {macro}\n" for macro in macros)
