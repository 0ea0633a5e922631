"""The page "Your first operation" is true: its files, written into a copy of the project, keep the contract."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from diagmem.ops import kinds

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first-operation.md"
BLOCK = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r'^\$ pytest (.*) -k "(.*)"$', re.MULTILINE)
LEAST_PASSED = 10


def files_of(page: str) -> dict[str, str]:
    """The files that a page writes: blocks that name the same file follow one another, blank lines between them."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in BLOCK.findall(page):
        found[name].append(text)
    return {name: "\n".join(texts) for name, texts in found.items()}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of what its tests need, with the page's files in it."""
    copy = tmp_path_factory.mktemp("project")
    kept = shutil.ignore_patterns("*.pyc.*", "docs")  # Bytecode is good for the copy, too, once it is written.
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=kept)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, text in files_of(PAGE.read_text()).items():
        assert not (copy / name).exists(), f"{name} is there already: the page needs another operation"
        (copy / name).write_text(text)
    return copy


def outcome(project: Path, paths: list[str]) -> subprocess.CompletedProcess[str]:
    """What the page's command says of the operation."""
    found = COMMAND.search(PAGE.read_text())
    assert found
    arguments = [*(paths or found[1].split()), "-k", found[2]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = os.pathsep.join((str(project / "src"), str(project)))
    return subprocess.run(
        command, cwd=project, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def test_the_operation_is_new() -> None:
    """The page adds a kind, a kernel and test cases, and an operation that the project does not have."""
    names = [Path(name).suffix for name in files_of(PAGE.read_text())]
    assert names == [".py", ".c", ".py"]
    assert "BUCKETIZE" not in kinds()


def test_the_operation_keeps_the_contract(project: Path) -> None:
    """The command that the page gives finds the operation, and all that it checks holds."""
    done = outcome(project, [])
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= LEAST_PASSED


def test_a_spoiled_line_is_noticed(project: Path) -> None:
    """The contract fails where the closed form is not what the accesses say."""
    kind = project / "src" / "diagmem" / "ops" / "elementwise" / "bucketize.py"
    right = kind.read_text()
    kind.write_text(right.replace("node.input(0).dtype.size_bytes\n", "node.input(0).dtype.size_bytes - 1\n"))
    assert kind.read_text() != right
    try:
        done = outcome(project, ["tests/ops/test_contract.py"])
    finally:
        kind.write_text(right)
    assert done.returncode == 1
    assert "test_contract[bucketize]" in done.stdout
