"""The house keeps its shape: imports go one way, padding is resolved in one place, only cli/ touches the outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "diagmem"

LAYERS = (
    "errors",
    "views",
    "windows",
    "graph",
    "schedule",
    "ops",
    "turns",
    "kernels",
    "options",
    "storage",
    "validation",
    "rows",
    "lifetimes",
    "inspection",
    "frontends",
    "zoo",
    "models",
    "transforms",
    "overlap",
    "footprint",
    "schedulers",
    "problem",
    "posing",
    "plans",
    "allocators",
    "removal",
    "planner",
    "plan_json",
    "backends",
    "verification",
    "tracing",
    "targets",
    "reports",
    "pipeline",
    "paper",
    "cli",
)
"""Every module or package of the project, lowest first: a module imports only what stands before it."""

FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of each import of the project's own modules, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            base = "diagmem" if node.level else node.module or ""
            names = [f"diagmem.{alias.name}" for alias in node.names] if base == "diagmem" else [base]
        for name in names:
            parts = name.split(".")
            if parts[0] == "diagmem" and len(parts) > 1:
                yield node.lineno, parts[1]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    """A file imports only from rooms at or below its own."""
    if room(path) == "__init__":
        return
    assert room(path) in LAYERS, f"{room(path)} has no place in LAYERS"
    limit = LAYERS.index(room(path))
    wrong = [f"line {line}: {name}" for line, name in imported_rooms(path) if name in LAYERS[limit + 1 :]]
    assert not wrong


JUDGE = ("errors", "views", "windows", "graph", "schedule", "accesses", "ops", "kernels", "validation")
"""All that the validator may know of: the model and its kernels, nothing of how plans are made."""


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "validation"], ids=lambda p: p.name)
def test_validator_stands_alone(path: Path) -> None:
    """The validator shares nothing with what it checks: no separations, rows, problem or allocator, imported or
    named."""
    assert {name for _, name in imported_rooms(path)} <= set(JUDGE)
    assert "separation" not in re.sub(r'""".*?"""', "", path.read_text(), flags=re.S)


def test_validator_reaches_no_planning() -> None:
    """Nor does anything that it imports, at whatever distance; besides what it may know, only arithmetic is reached."""
    reached, waiting = set[str](), ["validation"]
    while waiting:
        found = {name for path in FILES if room(path) == waiting[-1] for _, name in imported_rooms(path)}
        reached.add(waiting.pop())
        waiting += found - reached - {"__init__"}
    assert "kernels" in reached
    assert reached <= {*JUDGE, "fixed_point", "single_precision"}


def test_padding_is_resolved_in_one_place() -> None:
    """Only windows.py turns SAME or VALID into numbers."""
    compared = re.compile(r"(is|is not|==|!=) Padding\.")
    assert {path.name for path in FILES if compared.search(path.read_text())} == {"windows.py"}


@pytest.mark.parametrize("path", [p for p in FILES if room(p) != "cli"], ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_the_command_line_prints(path: Path) -> None:
    """No print() outside cli/."""
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
    assert not [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
