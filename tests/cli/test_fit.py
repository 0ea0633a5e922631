"""`diagmem plan --target`: RAM and flash are both asked for, and a chip on which nothing runs is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import diagmem
from diagmem.backends.c.flash import code_sizes, flash_of
from diagmem.backends.c.kernels import sources
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.kernels import kernels_for
from diagmem.verification.cortex_m import CORES, run_on_core
from diagmem.verification.inputs import sample_inputs
from tests.backends.c.models import compiler
from tests.cli.calling import call


def test_weights_that_flash_does_not_hold_do_not_fit() -> None:
    """The autoencoder's arena is tiny, its weights are not: status 1, and what is missing."""
    done = call("plan", "zoo:autoencoder_int8", "--target", "STM32G071RB")
    assert done.returncode == 1
    assert "too large" in done.stdout
    assert "left for stack" in done.stdout
    assert "flash" in done.stdout.split("short by")[0].splitlines()[-1]


def test_json_says_both() -> None:
    """`fits` is about RAM and flash; an external flash has no limit that is known."""
    for chip, fits, limit in (("nRF52840", True, 2**20), ("STM32F030R8", False, 2**16), ("RP2040", True, None)):
        found = json.loads(call("plan", "zoo:vww_96_int8", "--target", chip, "--json", "-").stdout)
        assert (found["fits"], found["flash_limit_bytes"]) == (fits, limit)
        assert found["flash_bytes"] > 220_000
        assert found["ram_bytes"] == found["arena_bytes"]


def test_flash_is_that_of_the_emitted_code() -> None:
    """Weights to the byte; steps of a run row by row are counted too."""
    model = Source("zoo:kws_dscnn_int8").runnable
    whole, rows = (Program.of(diagmem.plan(model, schedule=s)) for s in ("best", "rows"))
    assert flash_of(whole, "Cortex-M4F").weights_bytes >= sum(
        t.data.nbytes for t in model.tensors if t.data is not None
    )
    assert flash_of(whole, "Cortex-M4F").sequence_bytes == 0
    assert flash_of(rows, "Cortex-M4F").sequence_bytes > len(rows.steps)


def test_every_kernel_was_measured() -> None:
    """A new one makes this fail until tools/measure-kernels has run."""
    assert set(code_sizes()["kernels"]) == {name for name in sources() if name.endswith(".c")}


@pytest.mark.parametrize("model", ["kws_dscnn_int8", "resnet8_int8", "autoencoder_int8"])
def test_code_is_about_as_large_as_said(model: str, tmp_path: Path) -> None:
    """Compiled, it takes no more than was said, and no less than half of that."""
    gcc = compiler("arm-none-eabi-gcc")
    program = Program.of(diagmem.plan(Source(f"zoo:{model}").runnable))
    for name, content in diagmem.emit_c(f"zoo:{model}", name="model").files.items():
        (tmp_path / name).write_bytes(content)
    flags = ["-mthumb", "-mcpu=cortex-m4", "-std=c99", "-O2", "-DMODEL_NO_STATIC_ARENA"]
    subprocess.run([gcc, *flags, "-c", "model.c", "-o", "model.o"], cwd=tmp_path, check=True)
    listed = subprocess.run(["arm-none-eabi-size", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True)
    built_bytes = int(listed.stdout.splitlines()[1].split()[0])
    assert built_bytes <= flash_of(program, "Cortex-M4F").code_bytes <= 2 * built_bytes


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m4", "cortex-m55", "riscv32"])
@pytest.mark.parametrize("schedule", ["best", "rows"])
def test_flash_and_stack_are_about_those_of_the_firmware(core: str, schedule: str) -> None:
    """Weights to the byte, code up to two fifths too large, and a stack that holds what a run takes of it."""
    made = diagmem.plan(Source("zoo:kws_dscnn_int8").runnable, kernels=kernels_for(core), schedule=schedule)
    program = Program.of(made)
    said = flash_of(program, core)
    built = run_on_core(program, sample_inputs(program.graph, 1, 0), CORES[core])
    assert built.code_bytes is not None
    assert built.stack_bytes is not None
    assert built.weights_bytes is not None
    assert said.weights_bytes <= built.weights_bytes <= said.weights_bytes + program.align_bytes * len(program.calls)
    assert 1.0 <= (said.code_bytes + said.sequence_bytes) / built.code_bytes <= 1.4
    assert 1.0 <= said.stack_bytes / built.stack_bytes <= 2.5


@pytest.mark.parametrize("chip", ["ATmega328P", "Arduino Uno"])
def test_chips_that_run_nothing_are_refused_with_a_reason(chip: str) -> None:
    done = call("plan", "zoo:kws_dscnn_int8", "--target", chip)
    assert done.returncode == 2
    assert "no kernels run there" in done.stderr
    assert done.stderr.count("\n") == 1


def test_compilers_with_small_ints_are_told(tmp_path: Path) -> None:
    """As AVR's are; one is mimicked here by its own macros."""
    for name, content in diagmem.emit_c("zoo:kws_dscnn_int8", name="model", layout="arduino").files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        if name == "library.properties":
            assert b"architectures=*" not in content
            assert b"avr" not in content
    limits = tmp_path / "small" / "limits.h"
    limits.parent.mkdir()
    limits.write_text("#define INT_MAX 32767\n")
    command = [compiler("gcc"), "-I", str(limits.parent), "-fsyntax-only", str(tmp_path / "src" / "model.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "int of 32 bits" in done.stderr
