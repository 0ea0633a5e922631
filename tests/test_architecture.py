"""The house keeps its shape: imports go one way, padding is resolved in one place, only cli/ touches the outside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "diagmem"

LAYERS = (
    "model",
    "targets",
    "ops",
    "kernels",
    "validation",
    "frontends",
    "transforms",
    "planning",
    "backends",
    "costs",
    "verification",
    "tracing",
    "reports",
    "pipeline",
    "cli",
)
"""Every module or package of the project, lowest first: a module imports only what stands before it."""

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """A file as the parser reads it."""
    return ast.parse(path.read_text())


def room(path: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Line and room of each import of the project's own modules, also inside functions."""
    for node in ast.walk(tree(path)):
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


def test_imports_go_one_way() -> None:
    """A file imports only from rooms at or below its own."""
    inside = [path for path in FILES if room(path) not in ("__init__", "__main__")]
    assert {room(path) for path in inside} == set(LAYERS)
    assert not [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in inside
        for line, name in imported_rooms(path)
        if name in LAYERS[LAYERS.index(room(path)) + 1 :]
    ]


JUDGE = ("model", "ops", "kernels", "validation")
"""All that the validator may know of: the model and its kernels, nothing of how plans are made."""


def test_validator_stands_alone() -> None:
    """The validator shares nothing with what it checks: no separations, rows, problem or allocator, imported or
    named."""
    for path in (p for p in FILES if room(p) == "validation"):
        assert {name for _, name in imported_rooms(path)} <= set(JUDGE), path
        assert "separation" not in re.sub(r'""".*?"""', "", path.read_text(), flags=re.S), path


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


def test_only_the_command_line_prints() -> None:
    """No print() outside cli/."""
    for path in (p for p in FILES if room(p) != "cli"):
        calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        assert not [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path


def test_the_house_is_small() -> None:
    """From `ls` one sees the architecture."""
    assert len([p for p in SOURCE.iterdir() if p.name != "__pycache__"]) <= 18


def private_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each import of a module whose name begins with an underscore."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("diagmem"):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                last = name.rpartition(".")[2]
                is_module = (SOURCE.parent / f"{name.replace('.', '/')}.py").exists()
                if last.startswith("_") and last != "__version__" and is_module:
                    yield node.lineno, name


def test_what_is_private_stays_at_home() -> None:
    """A module whose name begins with an underscore is imported only inside its own package, its parts included."""
    for path in FILES:
        own = ".".join(("diagmem", *path.relative_to(SOURCE).parent.parts))
        for line, name in private_imports(path):
            assert f"{own}.".startswith(f"{name.rpartition('.')[0]}."), f"{path}:{line} imports {name}"


BUDGETS = {"": (55_712, 253), "planning": (8_747, 33)}
"""Package -> lines of Python and files that it may have. These numbers only ever fall: a feature pays by what it makes
simpler."""


@pytest.mark.parametrize("package", BUDGETS)
def test_the_sum_stays_within_its_budget(package: str) -> None:
    """All files of a package together stay small enough to be read."""
    files = sorted((SOURCE / package).rglob("*.py"))
    lines = sum(path.read_text().count("\n") for path in files)
    most_lines, most_files = BUDGETS[package]
    assert lines <= most_lines, f"src/diagmem/{package} has {lines} lines"
    assert len(files) <= most_files, f"src/diagmem/{package} has {len(files)} files"


def test_nothing_grows_too_large() -> None:
    """No file over 600 lines, no function over 60, none but the public ones with more than 7 parameters."""
    for path in FILES:
        assert path.read_text().count("\n") <= 600, path
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path}: {node.name}"
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                own = [a for a in given if a.arg not in ("self", "cls")]
                assert len(own) <= 7 or room(path) in ("cli", "pipeline"), f"{path}: {node.name}"


def test_what_planted_faults_and_mutants_name_is_there() -> None:
    """What has moved or gone would not be looked at any longer."""
    from tests.validation.test_planted_faults import FAULTS, place_of

    places = {target: place_of(target) for fault in FAULTS.values() for target in fault[::2] if isinstance(target, str)}
    assert not [target for target, (owner, name) in places.items() if name not in vars(owner)]
    constants = (node for node in ast.walk(tree(ROOT / "tools/mutate")) if isinstance(node, ast.Constant))
    texts = {node.value for node in constants if isinstance(node.value, str)}
    named = {text.partition("::")[0] for text in texts if re.match(r"tests/[\w/]*[a-z](\.py)?(::|$)", text)}
    patterns = {text for text in texts if re.fullmatch(r"[\w*\[\]]+/[\w/*]+\.py", text)} - named
    assert len(named) > 10
    assert len(patterns) > 10
    assert not [path for path in named if not (ROOT / path).exists()]
    assert not [pattern for pattern in patterns if not next(SOURCE.glob(pattern), None)]
