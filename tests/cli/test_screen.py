"""What `diagmem plan` says unless more is asked for: one screen, the verdict first, and a command that works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"
WIDTH, HEIGHT = 80, 24


def next_words(said: str) -> list[str]:
    """The command that is said to come next."""
    line = said.splitlines()[-1]
    assert line.startswith("next: diagmem ")
    return shlex.split(line)[2:]


@pytest.mark.parametrize("name", ["kws_ref_model", "vww_96_int8", "pretrainedResnet_quant", "ad01_int8"])
def test_a_model_on_a_chip_is_one_screen(shared: Path, name: str, tmp_path: Path) -> None:
    """No line is wider than a terminal but the command to type."""
    path, plan = shared / "models" / "mlperf_tiny" / f"{name}.tflite", tmp_path / "plan.json"
    done = call("plan", str(path), "--target", "STM32L4R5ZI", "--effort", "quick", "--json", str(plan))
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    assert first == f"{name} on STM32L4R5ZI (Cortex-M4F, 120 MHz): fits"
    assert len(others) < HEIGHT
    assert all(len(line) <= WIDTH for line in others[:-1])
    found = json.loads(plan.read_text())
    assert f"{found['arena_bytes']:,} B" in done.stdout
    assert f"{found['flash_bytes'] / 1024:,.1f} KB of 2,048 KB" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--schedule", "best", "--align=4"),
        ("--budget", "3800", "--effort", "normal"),
        ("--kernels", "diagmem-dsp", "--why", "--layers"),
        ("--kernels", "cmsis-nn"),
        ("--pool", "a:4K", "--pool", "b:64K:3"),
        ("--pool", "a:4K", "--pool", "b:1K"),
        ("--cores", "2"),
        ("--external-io",),
    ],
)
def test_what_comes_next_can_be_typed(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("plan", MODEL, "--effort", "quick", *words, "--json", "plan.json")
    assert all(len(line) <= WIDTH for line in done.stdout.splitlines()[:-1])
    after = call(*next_words(done.stdout))
    assert (after.returncode, after.stderr) == (0, "")
    assert [path for path in tmp_path.iterdir() if path.name != "plan.json"] or "plan" in next_words(done.stdout)


def test_what_does_not_fit_says_what_would(shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By how much it is short, what each way to run it takes, and the command for the one that fits."""
    monkeypatch.chdir(tmp_path)
    path = shared / "models" / "mlperf_tiny" / "vww_96_int8.tflite"
    done = call("plan", str(path), "--budget", "20K")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "vww_96_int8 in 20,480 B of RAM: does not fit, RAM short by 7,270 B"
    assert "  input streamed      9,922 B   pushes 96 rows of 288 bytes  (--input-rows)" in done.stdout
    words = next_words(done.stdout)
    assert words == ["emit", "c", str(path), "--input-rows", "-o", "firmware"]
    assert json.loads(call(*words, "--json", "-").stdout)["arena_bytes"] == 9922


def test_what_no_way_makes_fit_is_looked_for_further() -> None:
    done = call("plan", MODEL, "--budget", "1K", "--effort", "quick")
    assert done.returncode == 1
    assert next_words(done.stdout) == ["plan", MODEL, "--budget", "1K", "--effort", "quick", "--fit"]


def test_the_table_of_layers() -> None:
    """A line for each op, in text and JSON; what they do adds up to the whole."""
    done = call("plan", MODEL, "--layers", "--json", "-")
    layers = json.loads(done.stdout)["layers"]
    assert sum(layer["macs"] for layer in layers) == json.loads(call("inspect", MODEL, "--json", "-").stdout)["macs"]
    assert sum(layer["share"] for layer in layers) == pytest.approx(1)
    for words in ((), ("--verbose",)):
        said = call("plan", MODEL, "--layers", *words).stdout
        assert "\nop  kind " in said
        for layer in layers:
            assert f" {layer['macs']:,} " in said
            assert f" {layer['live_bytes']:,} " in said
    assert "live RAM" not in call("plan", MODEL).stdout
