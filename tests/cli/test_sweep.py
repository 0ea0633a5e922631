"""`diagmem sweep`: a line for each model, errors beside plans, and a file to go on from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import diagmem
from diagmem.frontends.tflite.writer import to_tflite
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType
from diagmem.pipeline.several import Candidate, keys_of, record_of, swept
from diagmem.planning.options import Options
from tests.cli.calling import call


def small(*channels: int) -> bytes:
    """A model of some convolutions."""
    b = Builder("small", DType.INT8)
    x = b.input(1, 6, 6, 3)
    for count in channels:
        x = b.conv(x, count, 3)
    return to_tflite(b.graph(x))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Three small models, and one that is none."""
    for number in range(3):
        (tmp_path / f"m{number}.tflite").write_bytes(small(4 + number, 8))
    (tmp_path / "n.tflite").write_bytes(b"not a model")
    return tmp_path


def records(path: Path) -> dict[str, dict[str, Any]]:
    """By the model's file name."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {Path(line["model"]).name: line for line in lines}


def test_each_model_has_a_line(models: Path) -> None:
    """What its plan takes, as `plan` says; or its error, and then the status is 2."""
    out = models / "out.jsonl"
    done = call("sweep", str(models / "*.tflite"), "--out", str(out), "--jobs", "1")
    assert done.returncode == 2
    found = records(out)
    assert sorted(found) == ["m0.tflite", "m1.tflite", "m2.tflite", "n.tflite"]
    for name in ("m0.tflite", "m1.tflite", "m2.tflite"):
        made = diagmem.plan(str(models / name))
        assert (found[name]["arena_bytes"], found[name]["optimal"]) == (made.arena_bytes, made.optimal)
        cost = made.costs.on()
        assert (found[name]["weights_bytes"], found[name]["macs"]) == (cost.flash.weights_bytes, cost.macs)
        assert found[name]["weights_bytes"] != diagmem.inspect(str(models / name)).weights_bytes
    assert "error" in found["n.tflite"]
    assert "4 models" in done.stdout
    assert "1 failed" in done.stdout
    assert done.stderr.startswith("diagmem: ")
    assert "n.tflite: not a TensorFlow Lite file" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_sweep_goes_on_where_it_ended(models: Path) -> None:
    """Models with a line are left out, a line that was cut off is written anew, a changed model too; with other options
    all are."""
    out, asked = models / "out.jsonl", (str(models / "m*.tflite"), "--jobs", "1")
    assert call("sweep", *asked, "--out", str(out)).returncode == 0
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:1]) + lines[1][:20])
    assert "2 models" in call("sweep", *asked, "--out", str(out)).stdout
    assert sorted(records(out)) == ["m0.tflite", "m1.tflite", "m2.tflite"]
    assert "0 models" in call("sweep", *asked, "--out", str(out)).stdout
    (models / "m1.tflite").write_bytes(small(3, 3))
    assert "1 model in" in call("sweep", *asked, "--out", str(out)).stdout
    assert "3 models" in call("sweep", *asked, "--no-overlap", "--out", str(out)).stdout


def test_a_table_of_parquet_is_gone_on_from(models: Path) -> None:
    """The same records as lines, a row each. A sweep that was stopped leaves lines beside the table; both count."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'sweep'")
    out, lines, asked = models / "out.parquet", models / "out.jsonl", ("--jobs", "1")
    assert call("sweep", str(models / "m0.tflite"), "--out", str(out), *asked).returncode == 0
    call("sweep", str(models / "*.tflite"), "--out", str(lines), *asked)
    stopped = [json.dumps(records(lines)["m1.tflite"]), json.dumps(records(lines)["m2.tflite"])[:30]]
    (models / "out.parquet.jsonl").write_text("\n".join(stopped))
    assert "2 models" in call("sweep", str(models / "*.tflite"), "--out", str(out), *asked).stdout
    rows = {Path(row["model"]).name: row for row in parquet.read_table(out).to_pylist()}
    assert rows.keys() == records(lines).keys()
    for name, record in records(lines).items():
        row = {key: value for key, value in rows[name].items() if value is not None}
        assert {**row, "seconds": 0} == {**record, "seconds": 0}
    assert not (models / "out.parquet.jsonl").exists()
    out.write_bytes(b"hello")
    assert "no table of a sweep" in call("sweep", str(models / "m0.tflite"), "--out", str(out)).stderr
    assert out.read_bytes() == b"hello"


def test_what_cannot_be_swept_is_said_in_one_line(models: Path) -> None:
    """Nothing matches; a file that is something else; a place that is nowhere."""
    out = models / "out.jsonl"
    assert "nothing matches" in call("sweep", str(models / "x*.tflite"), "--out", str(out)).stderr
    out.write_text("hello\n")
    done = call("sweep", str(models / "m0.tflite"), "--out", str(out))
    assert (done.returncode, "line 1 is no record" in done.stderr) == (2, True)
    assert out.read_text() == "hello\n"
    assert call("sweep", "zoo:kws_dscnn_int8", "--out", str(models / "o"), "--on", "moon").returncode == 2


def test_candidates_are_read_as_they_are_needed() -> None:
    """No more are taken than are handed out."""
    taken = 0

    def candidates() -> Iterator[Candidate]:
        nonlocal taken
        for _ in range(10):
            taken += 1
            yield Candidate("zoo:autoencoder_int8", "zoo:autoencoder_int8")

    with ThreadPoolExecutor(1) as pool:
        found = swept(candidates(), pool, 2, Options())
        next(found)
        assert taken < 5
        assert len(list(found)) == 9


def test_a_bug_in_one_model_is_kept_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a plan raises, the sweep has a record of it."""

    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("diagmem.pipeline.several.planned", fails)
    error = record_of(Candidate("m", b""), Options())["error"]
    assert error.startswith("a bug, please report it: ZeroDivisionError: oh")
    assert error.isprintable()


def test_records_are_those_of_the_same_options() -> None:
    """Options that are not given count as those by default do; sequences are compared by what is in them."""
    line = json.dumps(record_of(Candidate("zoo:autoencoder_int8", "zoo:autoencoder_int8"), Options(align=4)))
    assert keys_of(line, Options(align=4, time_limit=None))
    assert not keys_of(line, Options(align=8))


@pytest.mark.deep
def test_a_cluster_of_two_workers(models: Path) -> None:
    """The same records from Dask as from this machine; a scheduler that is not there is said to be."""
    distributed = pytest.importorskip("distributed", reason="needs the extra 'sweep'")
    here, there = models / "here.jsonl", models / "there.jsonl"
    call("sweep", str(models / "*.tflite"), "--out", str(here), "--jobs", "1")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        place = cluster.scheduler_address.replace("tcp://", "dask://")
        assert call("sweep", str(models / "*.tflite"), "--out", str(there), "--on", place).returncode == 2
    one, other = records(here), records(there)
    assert one.keys() == other.keys()
    for name, record in one.items():
        assert {**record, "seconds": 0} == {**other[name], "seconds": 0}
    assert "no Dask scheduler" in call("sweep", "zoo:x", "--out", str(there), "--on", "dask://localhost:1").stderr
