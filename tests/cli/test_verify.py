"""`diagmem verify` and `diagmem profile` on the command line: what they refuse, and what they say of predictions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.cli.verify import _c_lines
from diagmem.costs import Cost, Flash, Ram
from diagmem.verification.harness import Run
from diagmem.verification.places import CVerdict
from tests.cli.calling import call

MODEL = "zoo:autoencoder_int8"

needs_core = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs an emulated core"
)


def verdict(stack_bytes: int) -> CVerdict:
    """Of three inputs on a core, for which 200 B of stack were predicted."""
    run = Run("cortex-m4", 3, None, 1000, stack_bytes=stack_bytes, instructions=1234)
    return CVerdict(run, Cost(None, "cortex-m4f", {}, Ram(1000, 200, 0), Flash(0, 0, 0), 0), ("numpy",))


@pytest.mark.parametrize(("stack_bytes", "excess_bytes"), [(199, 0), (200, 0), (201, 1), (1200, 1000)])
def test_more_stack_than_predicted_is_said(stack_bytes: int, excess_bytes: int) -> None:
    said = "\n".join(_c_lines(verdict(stack_bytes), by_turns=False))
    assert ("MORE THAN PREDICTED" in said) == (excess_bytes > 0)
    assert "predicted at most 200" in said
    if excess_bytes:
        assert f"{excess_bytes:,} MORE" in said


def test_instructions_of_several_inputs_are_the_most_of_them() -> None:
    assert "1,234 at most, of 3 inputs" in "\n".join(_c_lines(verdict(100), by_turns=False))
    one = replace(verdict(100), run=replace(verdict(100).run, inputs=1))
    assert "at most, of" not in "\n".join(_c_lines(one, by_turns=False))


@pytest.mark.parametrize("command", [["verify", "--inputs", "1"], ["profile"]], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("target", "core", "lacks"),
    [("NUCLEO-L4R5ZI", "cortex-m0", "the DSP extension"), ("cortex-m55", "cortex-m4", "Helium (MVE)")],
)
def test_a_plan_is_not_run_on_a_core_without_its_instructions(
    command: list[str], target: str, core: str, lacks: str, tmp_path: Path
) -> None:
    option = "--cpu" if target.startswith("cortex") else "--target"
    assert call("plan", MODEL, option, target, "-o", str(tmp_path / "plan.json")).returncode == 0
    done = call(*command, MODEL, "--plan", str(tmp_path / "plan.json"), "--on", core)
    assert done.returncode == 2
    assert lacks in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_core_that_is_not_emulated_is_said() -> None:
    done = call("verify", MODEL, "--target", "ESP32-S3", "--inputs", "1")
    assert done.returncode == 0
    assert "Xtensa LX7 is not emulated: this ran on the host only" in done.stdout
    done = call("profile", MODEL, "--target", "ESP32-S3")
    assert done.returncode == 2
    assert "Xtensa LX7 is not emulated; name another core, such as --on cortex-m4" in done.stderr


def test_cores_that_can_be_profiled_are_listed() -> None:
    known = call("profile", MODEL, "--on", "host").stderr
    assert "cortex-m55" in known
    assert "xtensa" not in known
    assert "avr" not in known


@needs_core
def test_milliseconds_are_those_of_the_targets_own_core() -> None:
    """On another core its clock says nothing."""
    own, other = (
        json.loads(call("profile", MODEL, "--target", "RP2040", *on, "--json", "-").stdout)
        for on in ([], ["--on", "cortex-m3"])
    )
    assert own["mhz"] == 133
    assert own["cost"]["ms"] is not None
    assert other["mhz"] is None
    assert other["cost"]["ms"] is None


@needs_core
def test_profile_and_verify_count_the_same_run() -> None:
    """Whatever inputs are verified, the cost has the instructions of the one that profile runs."""
    profile = pipeline.profile(MODEL, on="cortex-m4")
    for inputs in (1, 7):
        (found,) = pipeline.verify(MODEL, on=["cortex-m4"], inputs=inputs)
        assert found.to_json()["cost"] == profile.cost.to_json()
    assert profile.cost.instructions == profile.instructions
