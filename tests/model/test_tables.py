"""Tables of facts: all of the package can be read, and what is wrong with a user's is said in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagmem
from diagmem.model.tables import parsed_toml, table, tuples

PACKAGE = Path(diagmem.__file__).parent
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_all_tables_of_the_package_can_be_read(path: Path) -> None:
    """As its modules read them; none is empty."""
    assert table(".".join(("diagmem", *path.parts[:-1])), path.stem)


def test_there_are_tables() -> None:
    """The files are found where the package is."""
    assert Path("cli/commands.toml") in FILES


def test_lists_become_tuples() -> None:
    """Inside tables and lists too, so that what is made of them cannot change."""
    found = tuples(parsed_toml('[a]\nb = [1, ["c", 2]]\nd = "e"'))
    assert found == {"a": {"b": (1, ("c", 2)), "d": "e"}}


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "a = " + "[" * 5000])
def test_what_is_no_table_is_refused(text: str) -> None:
    """Also what is nested deeper than anything that makes sense."""
    with pytest.raises(ValueError):
        parsed_toml(text)
