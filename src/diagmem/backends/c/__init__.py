"""ANSI C: a model as a library that anybody can compile into firmware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagmem.backends.c.layouts import BINARY_LAYOUTS, LAYOUTS, FileLayout, Library, laid_out

if TYPE_CHECKING:
    from diagmem.backends.c.program import Program
    from diagmem.backends.c.selftest import SelfTest

__all__ = ["LAYOUTS", "MOST_TEXT_BYTES", "FileLayout", "emit", "weights_bytes"]

MOST_TEXT_BYTES = 2**21
"""Above so many bytes of weights a compiler takes too long over them as text, and the assembler includes a binary."""


def emit(
    program: Program,
    name: str | None = None,
    layout: FileLayout = "plain",
    model_sha256: str | None = None,
    most_text_bytes: int = MOST_TEXT_BYTES,
    test: SelfTest | None = None,
) -> dict[str, bytes]:
    """The files of the library, by path. The same program gives the same bytes.

    `most_text_bytes`: larger weights become a binary file, in layouts whose tools would find it. `test`: what the model
    tests itself with.
    """
    from diagmem.backends.c.kernels import kernels_of
    from diagmem.backends.c.literals import identifier
    from diagmem.backends.c.selftest import selftest_files
    from diagmem.backends.c.tables import Tables
    from diagmem.backends.c.text import model_source, origin, readme, rendered

    name = identifier(name or program.graph.name)
    tables = Tables(program, name)
    top = origin(program, name, model_sha256)
    is_binary = layout in BINARY_LAYOUTS and tables.size_bytes > most_text_bytes
    code = {
        f"{name}.h": top + rendered("model.h.j2", program, name),
        f"{name}.c": top + model_source(program, tables, name, is_tested=test is not None),
        f"{name}_values.c": top + rendered("values.c.j2", program, name),
        f"{name}_kernels.h": top + kernels_of([program], f"{name.upper()}_CODE_ATTR"),
        f"{name}_weights.h": top + tables.header(),
        **({} if test is None else {path: top + text for path, text in selftest_files(program, test, name).items()}),
        **(tables.assembly() if is_binary else {f"{name}_weights.c": top + tables.text()}),
    }
    files = {path: content.encode() for path, content in code.items()}
    if is_binary:
        files[f"{name}_weights.bin"] = tables.binary()
    about = readme(program, name, tables.size_bytes, test).encode()
    library = Library({name: program}, name, files, test.stack_bytes if test else 0)
    return {**laid_out(library, layout), "README.md": about}


def weights_bytes(program: Program) -> int:
    """Flash that constant data take: weights, biases, multipliers."""
    from diagmem.backends.c.tables import Tables

    return Tables(program, "model").size_bytes
