"""What people see: whole names on a narrow terminal, hints at what exists, sizes as they write them."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from diagmem import zoo_models
from diagmem.frontends.source import Source
from diagmem.planning.options import Options
from diagmem.planning.planner import planned_front
from diagmem.targets import chips
from tests.backends.tflm import small_models
from tests.cli.calling import call


def on_a_terminal(*arguments: str) -> list[str]:
    """The lines that a command writes to a terminal of 80 columns."""
    own, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with subprocess.Popen([sys.executable, "-m", "diagmem", *arguments], stdout=its, stderr=its) as process:
        os.close(its)
        said = b""
        while chunk := _read(own):
            said += chunk
    os.close(own)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux: the other end is closed.
        return b""


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("targets",), [chip.name for chip in chips()]),
        (("zoo",), list(zoo_models())),
        (("inspect", "zoo:vww_96_int8"), ["DEPTHWISE_CONV_2D", "55,296  peak"]),
        (("overlap", "zoo:kws_dscnn_int8"), ["DEPTHWISE_CONV_2D", "7616"]),
    ],
    ids=lambda value: value[0],
)
def test_names_are_whole_at_80_columns(arguments: tuple[str, ...], names: list[str]) -> None:
    lines = on_a_terminal(*arguments)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    for name in names:
        assert any(name in line for line in lines), name


@pytest.mark.parametrize("text", ["65536", "64K", "64k", "64KB", "64KiB", "0.0625M"])
def test_sizes_are_read_as_people_write_them(text: str) -> None:
    assert (
        json.loads(call("plan", "zoo:kws_dscnn_int8", "--budget", text, "--json", "-").stdout)["limit_bytes"] == 65536
    )


@pytest.mark.parametrize("text", ["64Q", "-1", "0", "0.3", "K", ""])
def test_what_is_no_size_is_refused(text: str) -> None:
    done = call("plan", "zoo:kws_dscnn_int8", "--budget", text)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no number of bytes" in done.stderr


def test_standard_input_is_a_model(tmp_path: Path) -> None:
    content = small_models.branches()
    command = [sys.executable, "-m", "diagmem", "plan", "-", "--json", "-"]
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    (tmp_path / "model.tflite").write_bytes(content)
    assert json.loads(done.stdout) == json.loads(call("plan", str(tmp_path / "model.tflite"), "--json", "-").stdout)


@pytest.mark.parametrize(
    ("model", "hint"), [("vww_96_int8", "zoo:vww_96_int8"), ("zoo:vww", "did you mean vww_96_int8"), ("x/y.tflite", "")]
)
def test_models_that_are_not_there_hint_at_what_is(model: str, hint: str) -> None:
    done = call("plan", model)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert hint in done.stderr


def test_one_bad_model_does_not_end_a_batch(tmp_path: Path) -> None:
    """Its line says what is wrong, the others are planned, and the status is 2."""
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(b"nonsense")
    for jobs in ("1", "2"):
        done = call("plan", "zoo:kws_dscnn_int8", str(bad), "zoo:resnet8_int8", "--jobs", jobs)
        assert done.returncode == 2
        assert "10,008" in done.stdout
        assert "not a TensorFlow Lite file" in done.stdout


def test_a_plan_of_another_model_is_called_that(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    call("plan", "zoo:resnet8_int8", "--json", str(plan))
    for command in ("check", "verify"):
        done = call(command, "zoo:kws_dscnn_int8", "--plan", str(plan))
        assert done.returncode == 2
        assert "the plan is one of 'resnet8_int8', and the model is 'kws_dscnn_int8'" in done.stderr


def test_emit_alone_shows_its_help() -> None:
    done = call("emit")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tflm" in done.stdout


@pytest.mark.parametrize("words", [("--kernels", "tflm-reference"), ("--external-io",)])
def test_options_that_cannot_work_are_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    """C code runs our own kernels, and keeps inputs and outputs in its arena."""
    done = call("emit", "c", "zoo:kws_dscnn_int8", "-o", str(tmp_path / "c"), *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "plan again with" in done.stderr
    assert not list(tmp_path.iterdir())


def test_every_stage_of_planning_is_told() -> None:
    """In order, each with how many are done of how many."""
    told: list[tuple[str, int, int]] = []
    graph = Source("zoo:autoencoder_int8").graph
    planned_front(graph, Options(schedule="rows"), lambda *stage: told.append(stage))
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    assert all(done < total for _, done, total in told)
    assert len(told) == 4
