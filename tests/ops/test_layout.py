"""The directory of op kinds keeps its shape: C files are found by name, and private modules stay in their package."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from diagmem.ops import kind_of, kinds

SOURCE = Path(__file__).parents[2] / "src" / "diagmem"
C_FILES = sorted((SOURCE / "ops").rglob("*.[ch]"))
PRIVATE = re.compile(
    r"^\s*from diagmem\.ops((?:\.\w+)*)\.(_\w+) import|^\s*from diagmem\.ops((?:\.\w+)*) import (_\w+)", re.M
)


def test_names_of_c_files_are_unique() -> None:
    """A kernel is called by the name of its file alone."""
    counts = Counter(path.name for path in C_FILES)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: p.name)
def test_includes_are_where_they_are_said_to_be(path: Path) -> None:
    """An editor or compiler finds what a file includes, though the C backend only looks at names."""
    included = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
    assert [name for name in included if not (path.parent / name).is_file()] == []


def test_private_modules_are_imported_beside_them_only() -> None:
    """A module of ops/ whose name begins with an underscore is imported only within its own package."""
    found = {
        (path, f"diagmem.ops{match[1] or match[3] or ''}")
        for path in sorted(SOURCE.rglob("*.py"))
        for match in PRIVATE.finditer(path.read_text())
    }
    assert found
    wrong = {
        (str(path), package)
        for path, package in found
        if package != ".".join(path.parent.relative_to(SOURCE.parent).parts)
    }
    assert wrong == set()


def test_a_kind_is_found_by_name_as_among_all() -> None:
    """A kind that is loaded alone, because its file has the name, is the one that all files together give."""
    for name, kind in kinds().items():
        assert kind_of.__wrapped__(name) is kind
    assert kind_of("NO_SUCH_OPERATION") is None


def test_lines_of_c_fit_the_page() -> None:
    """120 columns, as .clang-format says."""
    lines = (f"{path}: {line}" for path in SOURCE.rglob("*.[ch]") for line in path.read_text().splitlines())
    assert [line for line in lines if len(line.split(": ", 1)[1]) > 120] == []
