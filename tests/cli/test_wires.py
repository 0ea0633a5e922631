"""`--wire`: several files, one plan, in every command that takes a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.backends.c.models import tiny
from tests.cli.calling import call
from tests.cut_models import cut
from tests.tflite_files import file_of

WIRE = ("--wire", "front:0=back:0")


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    front, back, _ = cut(tiny(), 6)
    paths = []
    for graph in (front, back):
        path = tmp_path / f"{graph.name}.tflite"
        path.write_bytes(file_of(graph))
        paths.append(str(path))
    return paths[0], paths[1]


def test_plan_and_check(models: tuple[str, str], tmp_path: Path) -> None:
    """One plan, which is read again, and found safe; of the models alone it is none."""
    path = tmp_path / "plan.json"
    assert call("plan", *models, *WIRE, "--json", str(path)).returncode == 0
    assert json.loads(path.read_text())["model"] == "front+back"
    assert call("check", *models, *WIRE, "--plan", str(path)).returncode == 0
    assert call("check", models[0], "--plan", str(path)).returncode == 2


def test_emit(models: tuple[str, str], tmp_path: Path) -> None:
    """As one C library; a file for TFLM there is none."""
    assert call("emit", "c", *models, *WIRE, "-o", str(tmp_path / "c")).returncode == 0
    assert (tmp_path / "c" / "front_back.h").exists()
    done = call("emit", "tflm", *models, *WIRE, "-o", str(tmp_path / "planned.tflite"))
    assert done.returncode == 2
    assert "no common file" in done.stderr


@pytest.mark.parametrize(
    ("command", "wires", "said"),
    [
        ("inspect", (), "2 are given: connect them with --wire"),
        ("plan", ("--wire", "nonsense"), "'nonsense' is not a wire"),
        ("plan", ("--wire", "front:0=other:0"), "no model is called 'other'; the models: front, back"),
        ("inspect", ("--wire", "front:0=front:0"), "wire them all"),
    ],
)
def test_refusals(command: str, wires: tuple[str, ...], said: str, models: tuple[str, str]) -> None:
    """One line, status 2."""
    done = call(command, *models, *wires)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_same_file_twice(models: tuple[str, str]) -> None:
    """By numbers; a third model that is not wired is planned by itself."""
    done = call("plan", models[0], models[1], models[1], "--wire", "0:0=1:0", "--json", "-")
    assert [plan["model"] for plan in json.loads(done.stdout)["plans"]] == ["front+1", "back"]
