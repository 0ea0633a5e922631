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
    assert "  input streamed     9,922 B  pushes 96 rows of 288 B (--input-rows)" in done.stdout
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


def test_hints_are_for_what_was_not_asked() -> None:
    said = call("plan", MODEL, "--why", "--layers").stdout
    assert "(--why)" not in said
    assert "(--layers)" not in said


def test_the_verdict_is_not_broken_inside_a_number(tmp_path: Path) -> None:
    """A size and its unit stay on one line."""
    for name in ("one", "nine letters", "a board of a rather long name indeed"):
        board = tmp_path / f"{name}.toml"
        board.write_text('core = "m0"\nram = [{ name = "SRAM", kb = 3 }]\nflash_kb = 4\n')
        said = call("plan", "zoo:mobilenet_v1_0.25_128_int8", "--target", str(board), "--effort", "quick").stdout
        verdict = said.partition("\n\n")[0].splitlines()
        assert all(len(line) <= WIDTH for line in verdict)
        assert " short by " in " ".join(verdict)
        assert not [line for line in verdict if line.startswith("B")]


def test_memory_that_must_stay_free_is_said(tmp_path: Path) -> None:
    """Where the bar is not full and the plan does not fit all the same. What the stack takes, --fit counts, too."""
    board = tmp_path / "tight.toml"
    board.write_text('core = "m0"\nram = [{ name = "SRAM", kb = 5 }]\nflash_kb = 64\n')
    done = call("plan", MODEL, "--target", str(board), "--json", str(tmp_path / "plan.json"))
    found = json.loads((tmp_path / "plan.json").read_text())
    short = found["ram_bytes"] - found["limit_bytes"]
    assert short > 0
    assert done.returncode == 1
    assert f"RAM short by {short:,} B" in done.stdout
    assert "must stay free" not in done.stdout
    fitted = call("plan", MODEL, "--target", str(board), "--fit")
    assert f"as asked       {found['arena_bytes']:,} B: short by {short:,} B" in fitted.stdout
    assert "--input-rows" in next_words(fitted.stdout)
    assert call(*next_words(fitted.stdout)).returncode == fitted.returncode == 0
    board.write_text('core = "m4"\nram = [{ name = "SRAM", kb = 1 }]\n')
    assert "1.0 KB of the RAM must stay free" in call("plan", "zoo:autoencoder_int8", "--target", str(board)).stdout


def test_limits_on_a_chip_are_in_the_verdict() -> None:
    done = call("plan", MODEL, "--target", "RP2040", "--budget", "500", "--effort", "quick")
    assert done.stdout.startswith("kws_dscnn_int8 on RP2040 in 500 B of RAM: does not fit, RAM short by ")


def test_verbose_is_the_screen_and_more() -> None:
    """The verdict first, its bars, the ways to run the model, the command that comes next."""
    words = ("plan", MODEL, "--target", "NUCLEO-L4R5ZI", "--effort", "quick")
    short, long = call(*words).stdout, call(*words, "--verbose").stdout
    head, after = short.partition("\n  without overlap")[0], short.splitlines()[-1]
    assert long.startswith(head)
    assert long.splitlines()[-1] == after
    assert "\nladder " in long
    assert "\nladder " not in short


def test_memory_in_pools_is_counted_whole(tmp_path: Path) -> None:
    """What the screen calls the arena is what the JSON does, also where it lies in several memories."""
    path = tmp_path / "plan.json"
    words = ("plan", "zoo:vww_96_int8", "--pool", "a:16K", "--pool", "b:1M:3", "--effort", "quick", "--json", str(path))
    for more in ((), ("--verbose",)):
        said = call(*words, *more).stdout
        found = json.loads(path.read_text())
        assert found["arena_bytes"] == sum(pool["used_bytes"] for pool in found["pools"])
        assert f"{found['arena_bytes']:,}" in said.replace(str(found["arena_bytes"]), f"{found['arena_bytes']:,}")
        assert found["single_pool_bytes"] < found["arena_bytes"]


TOGETHER = ("plan", MODEL, "zoo:autoencoder_int8", "--together", "run-one-at-a-time", "--effort", "quick")


def test_models_together_are_judged_as_one(tmp_path: Path) -> None:
    """Their weights add up, so each may fit a chip that all of them do not; what fits them is said to be typed."""
    board, path = tmp_path / "board.toml", tmp_path / "plans.json"
    sizes = {}
    for name in (MODEL, "zoo:autoencoder_int8"):
        one = json.loads(call("plan", name, "--cpu", "m4", "--flash", "1M", "--effort", "quick", "--json", "-").stdout)
        sizes[name] = one["flash_bytes"]
    for flash_kb, fits in ((max(sizes.values()) // 1024 + 1, False), (sum(sizes.values()) // 1024 + 1, True)):
        board.write_text(f'core = "m4"\nram = [{{ name = "SRAM", kb = 64 }}]\nflash_kb = {flash_kb}\n')
        done = call(*TOGETHER, "--target", str(board), "--json", str(path))
        found = json.loads(path.read_text())
        assert all(plan["fits"] for plan in found["plans"])
        assert found["together"]["fits"] is fits
        assert done.returncode == 1 - fits
        assert ("all together: fits" in done.stdout) is fits
        assert ("all together: does not fit, flash short by" in done.stdout) is not fits
        emitted = call("emit", "c", *TOGETHER[1:], "--target", str(board), "-o", str(tmp_path / "c"), "--json", "-")
        assert json.loads(emitted.stdout)["cost"] == found["together"]["cost"]


@pytest.mark.deep
def test_state_beside_a_shared_arena_counts_before_and_after(shared: Path) -> None:
    """A model's line does not compare a plan with its state to one without it."""
    models = [shared / "models" / "wild" / f"{n}.tflite" for n in ("audio_preprocessor_int8", "wake_word_hey_jarvis")]
    alone = call("plan", str(models[0]), "--json", "-")
    told = json.loads(alone.stdout)
    said = call("plan", *map(str, models), "--together", "run-one-at-a-time").stdout
    row = next(line for line in said.splitlines() if line.startswith("audio_preprocessor_int8")).split()
    assert row[1:3] == [f"{told['baseline_bytes']:,}", f"{told['arena_bytes']:,}"]
