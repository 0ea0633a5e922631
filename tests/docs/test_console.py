"""What documents show on a console is what happens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diagmem.frontends.source import Source
from tests.docs.console import Block, blocks, documents, is_said, run

MODEL = "zoo:mobilenet_v1_0.25_128_int8"
"""What documents call model.tflite."""

FROM_NOTHING = ("first-model.md",)
"""Documents that begin without a model: each of their commands works in a directory that was empty."""

CARRIED_OUT = [d for d in documents() if any(block.is_console and block.reason is None for block in blocks(d))]


@pytest.fixture(scope="module")
def model() -> bytes:
    return Source(MODEL).content


@pytest.mark.parametrize("document", CARRIED_OUT, ids=lambda path: path.name)
def test_documents_are_true(document: Path, model: bytes, tmp_path: Path) -> None:
    """Every console block is carried out, one after the other, in a directory with a model.tflite, or in an empty
    one; blocks that name a file are written before."""
    if document.name == "first-operation.md":
        pytest.skip("it is carried out by a test of its own")
    if document.name not in FROM_NOTHING:
        (tmp_path / "model.tflite").write_bytes(model)
    for block in blocks(document):
        if block.file and block.reason is None:
            (tmp_path / block.file).write_text(block.body)
        if block.is_console and block.reason is None:
            _carry_out(block, tmp_path)


def _carry_out(block: Block, place: Path) -> None:
    for command, expected in block.commands():
        tool = command.split()[0]
        if tool != "diagmem" and not shutil.which(tool) and not tool.startswith("./"):
            pytest.skip(f"{tool} is not installed")
        said = run(command, place)
        assert is_said(expected, said), f"{command} says:\n{said}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_lines_are_short(document: Path) -> None:
    """At most 120 columns, but for tables, links and pictures."""
    long = [
        number
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.lstrip().startswith(("|", "![", "separations   ")) and "](" not in line
    ]
    assert not long


def test_what_is_compared_can_differ() -> None:
    """The comparison itself can fail."""
    assert is_said(["a …", "…", "z"], "a b\nc\nd\nz\n")
    assert not is_said(["a"], "b\n")
    assert not is_said(["a", "c"], "a\nb\nc\n")
