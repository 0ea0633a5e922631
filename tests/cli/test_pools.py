"""`diagmem plan --pool` and its like: what is said, what is written, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"


def test_pool_by_pool(tmp_path: Path) -> None:
    """Used, capacity and traffic of each; the plan is written, and judged to be safe."""
    path = tmp_path / "plan.json"
    done = call("plan", MODEL, "--pool", "fast:6K", "--pool", "slow:64K:3", "--json", str(path))
    assert done.returncode == 0
    pools = json.loads(path.read_text())["pools"]
    for pool in pools:
        assert any(f"{pool['used_bytes']:>9,} of" in line and pool["name"] in line for line in done.stdout.splitlines())
    assert "no plan for this order costs less" in done.stdout
    assert call("check", MODEL, "--plan", str(path)).returncode == 0


def test_a_step_that_costs_bytes_says_so() -> None:
    """What the ladder saves is negative; where several pools take more than whole tensors in one, that has a plus."""
    shown = call("plan", "zoo:vww_96_int8", "--pool", "dtcm:32K", "--pool", "axi:512K", "--verbose").stdout
    assert re.search(r"\+ overlap +[\d,]+ B +-33.3 %", shown)
    assert re.search(r"\+ pools +[\d,]+ B +\+17.5 %", shown)


def test_pools_too_small(tmp_path: Path) -> None:
    """Status 1, what is missing, and the option with which it fits, which is true."""
    done = call("plan", MODEL, "--pool", "fast:1K", "--pool", "slow:2K:3", "--json", str(tmp_path / "plan.json"))
    assert done.returncode == 1
    assert "slow is short by" in done.stdout
    given = done.stdout.split("it fits with --pool ")[1].split()[0]
    assert call("plan", MODEL, "--pool", "fast:1K", "--pool", given).returncode == 0
    assert call("check", MODEL, "--plan", str(tmp_path / "plan.json")).returncode == 1


def test_no_pool() -> None:
    """One line, status 2."""
    done = call("plan", MODEL, "--pool", "fast")
    assert done.returncode == 2
    assert "'fast' is not NAME:BYTES[:COST]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# --weights-pool


def test_copies_of_weights(tmp_path: Path) -> None:
    """How many ops copy theirs, what that is worth, and why others do not; the plan is safe, and read again."""
    path = tmp_path / "plan.json"
    words = ("--pool", "fast:12K", "--pool", "slow:64K:3", "-O", "weights_pool=fast:8")
    done = call("plan", MODEL, *words, "--verbose", "--json", str(path))
    assert done.returncode == 0
    found = json.loads(path.read_text())
    copied, told = found["weights"], found["weights_traffic"]
    assert f"weights      {len(copied)} of 10 ops have their weights copied to fast, " in done.stdout
    assert f"flash is read {told['flash_bytes']:,} B x 8, not {told['read_bytes']:,} B" in done.stdout
    assert "1 op reads weights too rarely for a copy to pay off" in done.stdout
    assert found["traffic"]["cost"] < told["cost_without"]
    assert call("check", MODEL, "--plan", str(path)).returncode == 0


def test_the_cost_of_a_chips_flash() -> None:
    """Is what its cache makes of the wait states, seven for eight words, unless another one is given."""
    words = ("plan", MODEL, "--target", "STM32F746", "--all-memories", "--effort", "quick", "--json", "-")
    for pool, cost in (("dtcm", 1.875), ("dtcm:3", 3)):
        found = json.loads(call(*words, "-O", f"weights_pool={pool}").stdout)
        assert found["weights_traffic"]["flash_cost"] == cost


# --fit


def command_of(said: str) -> tuple[str, ...]:
    """The command that it is said to fit with."""
    line = next(line for line in reversed(said.splitlines()) if line.startswith("next: diagmem"))
    return tuple(line.split()[2:])


@pytest.mark.parametrize(
    ("limit", "with_what"),
    [
        (("--budget", "10K"), set()),
        (("--budget", "4200"), set()),
        (("--budget", "4200", "--schedule", "best"), {"--schedule"}),
        (("--budget", "3800", "--effort", "normal"), {"--input-rows"}),
        (("--pool", "a:4K", "--pool", "b:1K"), {"--schedule"}),
    ],
)
def test_the_cheapest_that_fits(limit: tuple[str, ...], with_what: set[str]) -> None:
    """Rows before a streamed input, that before work; the command that is shown is true."""
    done = call("plan", MODEL, "--effort", "quick", *limit, "--fit")
    assert done.returncode == 0
    command = command_of(done.stdout)
    assert {word for word in command if word.startswith("--")} - {"--effort", limit[0]} == with_what - {limit[0]}
    assert call(*command).returncode == 0


def test_what_nothing_makes_fit() -> None:
    """Status 1; the plan shown is the one that is short by least. TFLM's kernels run nothing by rows."""
    done = call(
        "plan", MODEL, "--budget", "1K", "--kernels", "tflm-reference", "--fit", "--effort", "quick", "--json", "-"
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["fit"]["command"] is None
    short = [row["missing_bytes"] for row in found["fit"]["tried"]]
    assert found["arena_bytes"] - 1024 == min(short)


def test_all_memories_of_a_chip() -> None:
    """A model too large for any one memory of a chip is in several."""
    whole = ("plan", "zoo:mobilenet_v1_0.25_128_int8", "--no-overlap", "--schedule", "file", "--target", "STM32L476")
    assert call(*whole[:-1], "nRF52832").returncode == 1
    done = call(*whole, "--json", "-")
    assert done.returncode == 0
    pools = json.loads(done.stdout)["pools"]
    assert [pool["name"] for pool in pools] == ["sram1", "sram2"]
    assert all(pool["used_bytes"] > 0 for pool in pools)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fit",), "--budget, --target or --pool"),
        (("--all-memories",), "needs a target: name a chip"),
        (("-O", "weights_pool=fast"), "such as --pool fast:64K"),
    ],
)
def test_what_is_not_said(words: tuple[str, ...], said: str) -> None:
    done = call("plan", MODEL, *words)
    assert done.returncode == 2
    assert said in done.stderr


# --together


def test_several_models_in_one_arena(tmp_path: Path) -> None:
    """What one arena for all takes, beside an arena for each; one library with a header for each model."""
    models = (MODEL, "zoo:autoencoder_int8")
    done = call("plan", *models, "--together", "keep-outputs", "--json", str(tmp_path / "plans.json"))
    assert done.returncode == 0
    found = json.loads((tmp_path / "plans.json").read_text())["together"]
    assert found["total_bytes"] == found["shared_bytes"] + found["kept_bytes"] < found["apart_bytes"]
    assert f"one arena of {found['shared_bytes']:,} B" in done.stdout
    done = call("emit", "c", *models, "--together", "keep-outputs", "-o", str(tmp_path / "c"), "--name", "both")
    assert done.returncode == 0
    assert {path.name for path in (tmp_path / "c").iterdir()} > {"both.c", "kws_dscnn_int8.h", "autoencoder_int8.h"}


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "--together"), (("--together", "keep-outputs", "--cores", "2"), "leave out cores")],
)
def test_several_models_that_are_no_library(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = call("emit", "c", MODEL, "zoo:autoencoder_int8", "-o", str(tmp_path), *words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.deep
def test_a_model_with_much_state_has_an_arena_of_its_own(shared: Path, tmp_path: Path) -> None:
    """Beside a shared arena its state would take more: all models never take more than their best plans alone."""
    models = [
        str(shared / "models" / "wild" / f"{n}.tflite") for n in ("audio_preprocessor_int8", "wake_word_hey_jarvis")
    ]
    quick = ("--effort", "quick", "--json")
    alone = [json.loads(call("plan", model, *quick, "-").stdout)["arena_bytes"] for model in models]
    path = tmp_path / "plans.json"
    done = call("plan", *models, "--together", "run-one-at-a-time", *quick, str(path))
    assert f"wake_word_hey_jarvis has an arena of its own, {alone[1]:,} B" in done.stdout
    assert f"separately they would take {sum(alone):,} B" in done.stdout
    told = json.loads(path.read_text())["together"]
    assert told["own_arenas"] == ["wake_word_hey_jarvis"]
    assert told["total_bytes"] == told["shared_bytes"] + told["kept_bytes"] <= told["apart_bytes"] == sum(alone)
    kws = call("plan", "zoo:kws_dscnn_int8", "zoo:vww_96_int8", "--together", "run-one-at-a-time")
    assert "of its own" not in kws.stdout


def test_verify_together() -> None:
    """Each model by its name, in text and JSON; what several models cannot have is refused in a line."""
    models = ("zoo:kws_dscnn_int8", "zoo:autoencoder_int8")
    done = call("verify", *models, "--together", "keep-outputs", "--inputs", "2", "--json", "-")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["ok"]
    assert [run["model"] for run in found["runs"]] == ["kws_dscnn_int8", "autoencoder_int8"]
    for words in ((), ("--together", "keep-outputs", "--on", "cortex-m4")):
        done = call("verify", *models, *words)
        assert done.returncode == 2
        assert "are verified together, on the host only" in done.stderr


def test_together_in_pools() -> None:
    """All models in all memories; what they keep is in the last one, and counted. It is never more than apart."""
    models = ("zoo:kws_dscnn_int8", "zoo:autoencoder_int8")
    pools = ("--pool", "fast:4K", "--pool", "slow:16K:3")

    def together(mode: str, *more: str) -> dict[str, Any]:
        done = call("plan", *models, "--together", mode, *more, "--json", "-")
        assert done.returncode == 0
        found: dict[str, Any] = json.loads(done.stdout)["together"]
        return found

    found = together("run-one-at-a-time", *pools)
    assert set(found["pools_bytes"]) == {"fast", "slow"}
    assert found["total_bytes"] < found["apart_bytes"]
    found = together("keep-outputs", *pools)
    assert found["own_arenas"] == ["kws_dscnn_int8", "autoencoder_int8"]
    assert found["total_bytes"] == found["apart_bytes"]
    found = together("keep-outputs", "--pool", "fast:192", "--pool", "slow:10432:3")
    assert found["apart_bytes"] is None
    assert found["pools_bytes"]["slow"] + found["kept_bytes"] <= 10432
    assert call("plan", *models, "--together", "keep-outputs", "--pool", "a:4K", "--pool", "b:6K").returncode == 1


def test_one_plan_of_several_is_read(tmp_path: Path) -> None:
    """The plan of a model is found in a file of several; where there is none of that name, a line says so."""
    path = tmp_path / "plans.json"
    models = ("zoo:kws_dscnn_int8", "zoo:autoencoder_int8")
    assert call("plan", *models, "--together", "keep-outputs", "--json", str(path)).returncode == 0
    assert [call("check", model, "--plan", str(path)).returncode for model in models] == [0, 0]
    done = call("check", "zoo:resnet8_int8", "--plan", str(path))
    assert done.returncode == 2
    assert "0 of them are of a model called 'resnet8_int8'" in done.stderr


def test_limits_of_what_is_beside_the_arena() -> None:
    """What all models take together counts, and what one takes beside what the caller holds."""
    models = ("zoo:kws_dscnn_int8", "zoo:autoencoder_int8")
    done = call("plan", *models, "--together", "keep-outputs", "--budget", "4K", "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["together"]["missing_bytes"] > 0
    assert call("plan", *models, "--together", "keep-outputs", "--budget", "5K").returncode == 0
    assert "--fit is for one model" in call("plan", *models, "--budget", "12K", "--fit").stderr
    done = call("plan", "zoo:vww_96_int8", "--buffer", "input=external", "--target", "STM32F030R8")
    assert done.returncode == 1
    assert "short by" in done.stdout


@pytest.mark.deep
def test_a_larger_pool_is_none_of_the_callers() -> None:
    """What --fit shows in the end names the pools that were given, and not what the caller holds; and it fits."""
    words = ("--pool", "fast:1K", "--pool", "slow:1K:3", "--buffer", "input=external", "--effort", "quick")
    done = call("plan", MODEL, *words, "--fit")
    assert done.returncode == 0
    command = command_of(done.stdout)
    assert "--pool input" not in " ".join(command)
    assert call(*command).returncode == 0


def test_a_front_has_one_memory() -> None:
    done = call("plan", MODEL, "--pareto", "--pool", "fast:1K")
    assert done.returncode == 2
    assert "leave out --pool" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--pool", "a:1K"),
        ("--buffer", "input=external"),
        ("--cores", "2"),
    ],
)
def test_what_a_file_for_tflm_cannot_say(words: tuple[str, ...], tmp_path: Path) -> None:
    """One line that names the option, and what to do."""
    done = call("emit", "tflm", MODEL, "-o", str(tmp_path / "planned.tflite"), *words)
    assert done.returncode == 2
    assert words[0] in done.stderr
    assert "`diagmem emit c` can" in done.stderr
    assert not list(tmp_path.iterdir())
