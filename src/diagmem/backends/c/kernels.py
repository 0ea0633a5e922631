"""The kernels that programs call, in one text: each once, however many call it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.resources import files

from diagmem.backends.c.multicore import SPAN, needs_span
from diagmem.backends.c.program import Program
from diagmem.ops import kernel_templates
from diagmem.ops.numerics.quantised import TO_EVEN, rounds_to_even

_FUNCTION = re.compile(r"\bstatic ((?:inline|DIAGMEM_\w+) )")
_INCLUDE = re.compile(r'^#include "(?:[^"]*/)?([^"/]+)"\n', re.MULTILINE)


_OPTIONAL = {macro: re.compile(rf"#ifdef {macro}\n.*?#endif\n", re.DOTALL) for macro in (TO_EVEN,)}
"""Parts of kernels that only some programs need."""


@cache
def sources() -> dict[str, str]:
    """The texts of all C files that stand beside the op kinds, in whichever package, by their names; also of those that
    a template stands for."""
    top = files("diagmem.ops")
    folders = (top, *(entry for entry in top.iterdir() if entry.is_dir()))
    endings = (".c", ".h", kernel_templates.SUFFIX)
    found = (file for folder in folders for file in folder.iterdir() if file.name.endswith(endings))
    texts = {file.name: file.read_text(encoding="utf-8") for file in found}
    templates = [name for name in texts if name.endswith(kernel_templates.SUFFIX)]
    made = (kernel for name in templates for kernel in kernel_templates.kernels_of(name, texts.pop(name)))
    return dict(made) | texts


def needed(names: Iterable[str], macros: AbstractSet[str] = frozenset()) -> list[str]:
    """The files and all that they include, what is included first."""
    found: list[str] = []
    for name in names:
        for file in (*needed(_INCLUDE.findall(_text(name, macros)), macros), name):
            if file not in found:
                found.append(file)
    return found


def joined(names: Iterable[str], macros: AbstractSet[str] = frozenset()) -> Iterator[str]:
    """The texts of these files and of all that they include, as parts of one file. What depends on a macro that is not
    among these is left out."""
    return (_INCLUDE.sub("", _text(name, macros)).replace("\n\n\n", "\n\n") for name in needed(names, macros))


def _text(name: str, macros: AbstractSet[str]) -> str:
    text = sources()[name]
    for macro, part in _OPTIONAL.items():
        text = text if macro in macros else part.sub("", text)
    return text


def with_attribute(kernels: str, attribute: str) -> str:
    """The kernels with this word before each function's type, for a firmware to say where they lie."""
    return _FUNCTION.sub(rf"static \1{attribute} ", kernels)


def kernels_of(programs: Sequence[Program], attribute: str) -> str:
    """The kernels, and the limits that the programs set them. `attribute`: what stands before each function."""
    calls = [call for program in programs for call in program.calls.values() if call is not None]
    tensors = (tensor for program in programs for tensor in program.graph.tensors)
    limits: dict[str, int] = {TO_EVEN: 1} if any(rounds_to_even(t) for t in tensors) else {}
    for call in calls:
        for macro, value in call.limits.items():
            limits[macro] = max(value, limits.get(macro, 0))
    defines = "".join(f"#define {macro} {limits[macro]}\n" for macro in sorted(limits))
    sources = ["_compiler.h", *sorted({call.source for call in calls})]
    by_rows = [program for program in programs if program.by_rows]
    if by_rows:
        defines += f"#define DIAGMEM_OFFSET uint{8 * max(program.offset_bytes for program in by_rows)}_t\n"
        sources.insert(1, "_row_pieces.h" if any(program.in_pieces for program in by_rows) else "_rows.h")
    if any(needs_span(program) for program in programs):
        sources.append(SPAN)
    code = [*joined(sources, limits.keys())]
    if any(re.search(r"\b(float|double)\b", part) for part in code):
        code = [*joined(["_unfused.h"]), *code]
    return with_attribute("\n".join(part for part in (defines, *code) if part), attribute)
