"""How build systems find the code: where each file lies, and the files in which they look for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from diagmem.model.errors import PlanError, one_line
from diagmem.model.tables import table

if TYPE_CHECKING:
    from diagmem.backends.c.program import Program

FileLayout = Literal["plain", "cmake", "arduino", "platformio", "zephyr", "esp-idf"]
LAYOUTS: tuple[FileLayout, ...] = get_args(FileLayout)

BINARY_LAYOUTS: tuple[FileLayout, ...] = ("plain", "cmake")
"""Those whose tools take weights as a binary that the assembler includes."""


@dataclass(frozen=True, slots=True)
class Library:
    """What is laid out: a model, or several. `code`: the files by their names. `stack_bytes`: that its test paints."""

    programs: Mapping[str, Program]
    name: str
    code: Mapping[str, bytes]
    stack_bytes: int = 0

    @property
    def macro(self) -> str:
        return self.name.upper()

    @property
    def header(self) -> str:
        return f"{self.name}.h"

    @property
    def headers(self) -> list[str]:
        """What programs may include."""
        tests = [f"{self.name}_selftest.h"] if self.is_tested else []
        return [self.header, *tests, *(f"{own}.h" for own in self.programs if own != self.name)]

    @property
    def is_tested(self) -> bool:
        return f"{self.name}_selftest.c" in self.code

    @property
    def what(self) -> str:
        """`The neural network NAME`, for people."""
        one = len(self.programs) == 1
        return f"The neural network {self.name}" if one else f"The neural networks {', '.join(self.programs)}"

    @property
    def has_assembly(self) -> bool:
        return any(file.endswith(".S") for file in self.code)

    @property
    def needs_libm(self) -> bool:
        return b"<math.h>" in self.code[f"{self.name}_kernels.h"]

    def lies_in(self, layout: _Layout) -> Iterator[tuple[str, bytes]]:
        """The code by path."""
        for file, data in self.code.items():
            folder = layout.headers if file in self.headers else layout.sources
            yield (f"{folder}/{file}" if folder else file), data


@dataclass(frozen=True, slots=True)
class _Layout:
    """`headers`, `sources`: in which folders they lie. `files`: what build systems look for, path -> template. `tests`:
    the same for an example that runs the model's test of itself, and whose it is."""

    headers: str
    sources: str
    files: Mapping[str, str]
    tests: Mapping[str, tuple[str, str]]


_LAYOUTS = {name: _Layout(**how) for name, how in table(__package__, "layouts").items()}


def laid_out(library: Library, layout: FileLayout) -> dict[str, bytes]:
    """All files of the library by path, but its README."""
    from diagmem.backends.c.text import filled

    if layout not in _LAYOUTS:
        raise PlanError(f"layout {one_line(repr(layout), 40)} is not known; known: {', '.join(_LAYOUTS)}")
    how = _LAYOUTS[layout]
    files = dict(library.lies_in(how))
    sources = [path for path in files if path.endswith((".c", ".S"))]
    given = {"library": library, "name": library.name, "sources": sources}
    examples = how.tests if library.is_tested else {}
    plain = {path: (template, "") for path, template in how.files.items()}
    for path, (template, platform) in {**plain, **examples}.items():
        text = filled(f"{template}.j2", headers=how.headers, folder=how.sources, platform=platform, **given)
        files[path.format(name=library.name)] = text.encode()
    return files
