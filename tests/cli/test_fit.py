"""`diagmem plan --target`: RAM and flash are both asked for, and a chip on which nothing runs is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import diagmem
from tests.backends.c.models import compiler
from tests.cli.calling import call


def test_weights_that_flash_does_not_hold_do_not_fit() -> None:
    """The autoencoder's arena is tiny, its weights are not: status 1, and what is missing."""
    done = call("plan", "zoo:autoencoder_int8", "--target", "STM32G071RB")
    assert done.returncode == 1
    assert "does not fit, flash short by" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "next: diagmem plan zoo:autoencoder_int8 --target STM32G0B1RE"
    told = call("plan", "zoo:autoencoder_int8", "--target", "STM32G071RB", "--verbose").stdout
    assert "flash short by" in told.splitlines()[0]
    assert "fits on " in told


def test_json_says_both() -> None:
    """`fits` is about RAM and flash; an external flash has no limit that is known."""
    for chip, fits, limit in (("nRF52840", True, 2**20), ("STM32F030R8", False, 2**16), ("RP2040", True, None)):
        found = json.loads(call("plan", "zoo:vww_96_int8", "--target", chip, "--json", "-").stdout)
        assert (found["fits"], found["flash_limit_bytes"]) == (fits, limit)
        assert found["flash_bytes"] > 220_000
        assert found["ram_bytes"] == found["arena_bytes"]


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
