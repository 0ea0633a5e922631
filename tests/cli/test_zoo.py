"""`diagmem zoo` lists the models and writes them as files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import diagmem
from diagmem.frontends import zoo
from diagmem.frontends.source import Source
from diagmem.frontends.tflite.writer import to_tflite
from tests.cli.calling import call


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return call("zoo", *arguments)


def test_table_shows_every_model() -> None:
    """One line for each, with its size; in a pipe, plain text."""
    done = run()
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(zoo.models())
    vww = next(line.split() for line in lines if line.startswith("vww_96_int8"))
    assert vww[1:6] == ["31", "1x96x96x3", "int8", "219072", "55296"]
    assert "\x1b" not in done.stdout


def test_json_stands_alone() -> None:
    """With `--json -` nothing else is on standard output."""
    rows = json.loads(run("--json", "-").stdout)["models"]
    assert [row["name"] for row in rows] == list(zoo.models())
    vww = next(row for row in rows if row["name"] == "vww_96_int8")
    assert (vww["ops"], vww["input"], vww["dtype"]) == (31, [1, 96, 96, 3], "int8")
    assert (vww["file_weights_bytes"], vww["peak_bytes"]) == (219072, 55296)
    assert vww["file_macs"] == sum(diagmem.inspect("zoo:vww_96_int8").macs)


def test_write(tmp_path: Path) -> None:
    """The file is the one that the library makes from the same seed, and nothing is left beside it."""
    path = tmp_path / "kws.tflite"
    done = run("write", "kws_dscnn_int8", "-o", str(path), "--seed", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(path) in done.stdout
    assert path.read_bytes() == to_tflite(zoo.build("kws_dscnn_int8"), 7)
    assert len(Source(path).graph.ops) == 13
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("write", "kws_dscnn", "-o", "x.tflite"), "did you mean kws_dscnn_int8"),
        (("write", "kws_dscnn_int8"), "--output"),
        (("write", "kws_dscnn_int8", "-o", "."), "directory"),
        (("write", "kws_dscnn_int8", "-o", "no/such/x.tflite"), "no/such/x.tflite: No such file"),
        (("write", "kws_dscnn_int8", "-o", "x.tflite", "--seed", "-1"), "--seed"),
        (("--json", "x.json", "write", "kws_dscnn_int8", "-o", "x.tflite"), "--json"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no file appears."""
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
