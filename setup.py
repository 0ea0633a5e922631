"""Builds the package, with its loops compiled where there is a compiler. All else is in pyproject.toml.

Python's own syntax and Cython's types in .pxd files: one source that also runs where nothing is compiled.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

TYPES = [] if os.environ.get("DIAGMEM_PLAIN") else sorted(Path("src").rglob("*.pxd"))
"""Beside each module that is compiled; none if a plain package is asked for."""

SHARED = "diagmem.planning._cython"
"""What Cython itself needs, once for all modules."""

FLAGS = [] if os.name == "nt" else ["-g0"]
"""Without what only a debugger needs: half of the time that compiling takes."""

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "infer_types": True,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
}


class BuildLoops(build_ext):
    """Compiles all of the loops, or none: without a compiler they run as plain Python, with the same results."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.cython_directives, self.cython_include_dirs, self.cython_c_in_temp = DIRECTIVES, ["src"], True
        self.shared_utility_qualified_name = SHARED

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            print(f"diagmem: loops are not compiled and run as plain Python, ten times slower ({error})")
            for path in map(Path, self.get_outputs()):
                path.unlink(missing_ok=True)
            self.extensions = []


def extension(name: str, *sources: Path) -> Extension:
    return Extension(name, [source.as_posix() for source in sources], extra_compile_args=FLAGS)


def readme() -> str:
    """A package index has neither the documents nor the pictures: links to them become their text there."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


loops = [extension(".".join(types.with_suffix("").parts[1:]), types.with_suffix(".py")) for types in TYPES]
setup(
    ext_modules=[*loops, extension(SHARED)] if loops else [],
    cmdclass={"build_ext": BuildLoops},
    long_description=readme(),
    long_description_content_type="text/markdown",
)
