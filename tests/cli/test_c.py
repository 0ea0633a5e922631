"""`diagmem emit c` and `diagmem verify` on the command line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.backends.c.models import compiler
from tests.cli.calling import call

MODEL = "zoo:kws_dscnn_int8"


def test_emit_writes_a_library_that_compiles(tmp_path: Path) -> None:
    """All files, in a directory that it makes, under the name that was asked for."""
    done = call("emit", "c", MODEL, "-o", str(tmp_path / "new" / "kws"), "--name", "kws", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    written = {path.name for path in (tmp_path / "new" / "kws").iterdir()}
    assert written == set(found["files"]) >= {"kws.h", "kws.c", "kws_weights.c", "README.md", "CMakeLists.txt"}
    assert f"#define KWS_ARENA_BYTES {found['arena_bytes']}" in (tmp_path / "new" / "kws" / "kws.h").read_text()
    command = [compiler("gcc"), "-std=c99", "-fsyntax-only", "kws.c", "kws_weights.c"]
    subprocess.run(command, cwd=tmp_path / "new" / "kws", check=True)


def test_emit_refuses_before_it_writes(tmp_path: Path) -> None:
    """A model that C cannot run leaves no directory behind, and takes one line to say why."""
    done = call("emit", "c", MODEL, "-o", str(tmp_path / "none"), "--kernels", "tflm-reference")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "none").exists()


def test_emit_for_a_core(tmp_path: Path) -> None:
    """The file names the kernels of the core; without a core it is for any. A plan leaves no choice."""
    for cpu, kernels in ((["--cpu", "cortex-m4"], "diagmem-dsp"), (["--cpu", "generic"], "diagmem"), ([], "diagmem")):
        assert call("emit", "c", MODEL, "-o", str(tmp_path), "--name", "kws", *cpu).returncode == 0
        assert f" * kernels: {kernels}; arena:" in (tmp_path / "kws.c").read_text()
    plan = tmp_path / "plan.json"
    assert call("plan", MODEL, "--json", str(plan)).returncode == 0
    done = call("emit", "c", MODEL, "-o", str(tmp_path), "--plan", str(plan), "--cpu", "cortex-m4")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_verify_runs_the_kernels_of_a_core_on_the_host() -> None:
    compiler("gcc")
    done = call("verify", MODEL, "--on", "host", "--cpu", "cortex-m4", "--inputs", "2", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")


def test_verify_tells_what_others_rely_on() -> None:
    compiler("gcc")
    done = call("verify", MODEL, "--on", "host", "--inputs", "6", "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert {
        *("on", "ok", "inputs", "arena_bytes", "stack_bytes", "static_bytes", "code_bytes", "weights_bytes"),
        "instructions",
    } <= set(found["runs"][0])
    assert (found["runs"][0]["on"], found["runs"][0]["inputs"]) == ("host", 6)
    assert "numpy" in found["runs"][0]["compared_with"]


def test_verify_of_a_wrong_plan_says_no(tmp_path: Path) -> None:
    """A plan whose overlap is enlarged by one element is refused; run all the same: status 1, and the operation is
    named."""
    compiler("gcc")
    path = tmp_path / "plan.json"
    assert call("plan", MODEL, "--schedule", "best", "--json", str(path)).returncode == 0
    assert call("verify", MODEL, "--plan", str(path), "--inputs", "6").returncode == 0
    plan = json.loads(path.read_text())
    tightest = next(o for o in plan["overlaps"] if o["op"] == 1)
    for row in plan["tensors"]:
        row["offset"] += 1
        if row["index"] == tightest["input"]:
            row["offset"] -= 1
    plan["arena_bytes"] += 1
    path.write_text(json.dumps(plan))
    refused = call("verify", MODEL, "--plan", str(path), "--inputs", "6")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "overwritten" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    done = call("verify", MODEL, "--plan", str(path), "--inputs", "6", "--no-check")
    assert done.returncode == 1
    assert "FAILED: input" in done.stdout
    assert "op 1 " in done.stdout


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"kernels": "diagmem"}'])
def test_verify_refuses_what_is_no_plan(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    done = call("verify", MODEL, "--plan", str(tmp_path / "plan.json"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_what_does_not_fit_its_target_is_said_first(tmp_path: Path) -> None:
    """Status 1, though the files are written: their weights are more than the chip's flash."""
    words = ("emit", "c", "zoo:autoencoder_int8", "-o", str(tmp_path / "c"), "--target")
    done = call(*words, "STM32G071RB")
    assert done.returncode == 1
    assert re.match(r"zoo:autoencoder_int8 on STM32G071RB: does not fit, flash short by [\d,]+ B\n", done.stdout)
    assert (tmp_path / "c" / "README.md").is_file()
    assert call(*words, "STM32G0B1RE").returncode == 0
