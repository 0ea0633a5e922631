"""The house keeps its shape: imports go one way, padding is resolved in one place, only cli/ touches the outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "diagmem"

LAYERS = (
    "model",
    "ops",
    "kernels",
    "validation",
    "frontends",
    "transforms",
    "planning",
    "backends",
    "verification",
    "tracing",
    "reports",
    "pipeline",
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
    if room(path) in ("__init__", "__main__"):
        return
    assert room(path) in LAYERS, f"{room(path)} has no place in LAYERS"
    limit = LAYERS.index(room(path))
    wrong = [f"line {line}: {name}" for line, name in imported_rooms(path) if name in LAYERS[limit + 1 :]]
    assert not wrong


JUDGE = ("model", "ops", "kernels", "validation")
"""All that the validator may know of: the model and its kernels, nothing of how plans are made."""


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "validation"], ids=lambda p: p.name)
def test_validator_stands_alone(path: Path) -> None:
    """The validator shares nothing with what it checks: no separations, rows, problem or allocator, imported or
    named."""
    assert {name for _, name in imported_rooms(path)} <= set(JUDGE)
    assert "separation" not in re.sub(r'""".*?"""', "", path.read_text(), flags=re.S)


def test_validator_reaches_no_planning() -> None:
    """Nor does anything that it imports, at whatever distance."""
    reached, waiting = set[str](), ["validation"]
    while waiting:
        found = {name for path in FILES if room(path) == waiting[-1] for _, name in imported_rooms(path)}
        reached.add(waiting.pop())
        waiting += found - reached - {"__init__"}
    assert "kernels" in reached
    assert reached <= set(JUDGE)


def test_padding_is_resolved_in_one_place() -> None:
    """Only sliding_window.py turns SAME or VALID into numbers."""
    compared = re.compile(r"(is|is not|==|!=) Padding\.")
    assert {path.name for path in FILES if compared.search(path.read_text())} == {"sliding_window.py"}


@pytest.mark.parametrize("path", [p for p in FILES if room(p) != "cli"], ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_the_command_line_prints(path: Path) -> None:
    """No print() outside cli/."""
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
    assert not [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]


def test_the_house_is_small() -> None:
    """From `ls` one sees the architecture."""
    assert len([p for p in SOURCE.iterdir() if p.name != "__pycache__"]) <= 16


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_what_is_private_stays_at_home(path: Path) -> None:
    """A module whose name begins with an underscore is imported only inside its own package, its parts included."""
    own = ".".join(("diagmem", *path.relative_to(SOURCE).parent.parts))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("diagmem"):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                package, _, last = name.rpartition(".")
                private = (
                    last.startswith("_")
                    and last != "__version__"
                    and (SOURCE.parent / f"{name.replace('.', '/')}.py").exists()
                )
                assert not private or f"{own}.".startswith(f"{package}."), f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_grows_too_large(path: Path) -> None:
    """No file over 400 lines, no function over 60, none but the public ones with more than 7 parameters."""
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            own = [a for a in given if a.arg not in ("self", "cls")]
            assert len(own) <= 7 or room(path) in ("cli", "pipeline"), node.name
