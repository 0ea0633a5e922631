"""What a command writes is whole or not there, and never stands in the place of a device, a pipe or a model."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagmem.model.errors import PlanError
from tests.cli.calling import call

COMMAND = [sys.executable, "-c", "from diagmem.cli import main; main()"]
KWS = "zoo:kws_dscnn_int8"
INSPECT = ("inspect", "zoo:kws_dscnn_int8", "--json")


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    """What it points to is replaced, whether it is there already or not."""
    for name in ("there.json", "not_there.json"):
        file, link = tmp_path / name, tmp_path / f"link_{name}"
        link.symlink_to(name)
        if name == "there.json":
            file.write_text("old")
        assert call(*INSPECT, str(link)).returncode == 0
        assert link.is_symlink()
        assert json.loads(file.read_text())["peak_bytes"] == 16000


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.touch()
    path.chmod(0o640)
    assert call(*INSPECT, str(path)).returncode == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """As a shell's >(…) is one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        done = call(*INSPECT, str(pipe))
        assert done.returncode == 0, done.stderr
        assert reader.stdout is not None
        assert json.loads(reader.stdout.read())["peak_bytes"] == 16000
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_open_file_is_written_to() -> None:
    """/dev/fd/N, which is what a shell hands over for >(…)."""
    read_end, write_end = os.pipe()
    try:
        arguments = [*COMMAND, *INSPECT, f"/dev/fd/{write_end}"]
        done = subprocess.run(arguments, pass_fds=[write_end], stdout=subprocess.PIPE, check=False)
    finally:
        os.close(write_end)
    with os.fdopen(read_end) as file:
        assert json.loads(file.read())["peak_bytes"] == 16000
    assert done.returncode == 0


@pytest.mark.parametrize("is_file", [False, True])
def test_standard_output_by_its_device(tmp_path: Path, is_file: bool) -> None:
    """/dev/stdout stays what it is, and JSON comes before the text, in a pipe and in a file."""
    path = tmp_path / "all.txt"
    with path.open("w") as file:
        done = subprocess.run(
            [*COMMAND, *INSPECT, "/dev/stdout"], stdout=file if is_file else subprocess.PIPE, text=True, check=True
        )
    text = path.read_text() if is_file else done.stdout
    found, end = json.JSONDecoder().raw_decode(text)
    assert found["peak_bytes"] == 16000
    assert "peak" in text[end:]
    assert Path("/dev/stdout").is_symlink()


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """Seen through a link, so that a failure of this test harms nothing."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    assert call(*INSPECT, str(link)).returncode == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("link", [False, True])
def test_a_model_is_not_written_over(tmp_path: Path, link: bool) -> None:
    """Neither by its own name nor by another one: one line, status 2, and the model is what it was."""
    model = tmp_path / "model.tflite"
    assert call("zoo", "write", "kws_dscnn_int8", "-o", str(model)).returncode == 0
    before, output = model.read_bytes(), tmp_path / "other.tflite" if link else model
    if link:
        output.symlink_to(model)
    for arguments in (("emit", "tflm", str(model), "-o", str(output)), ("inspect", str(model), "--json", str(output))):
        done = call(*arguments)
        assert done.returncode == 2
        assert "is the model that was given" in done.stderr
        assert done.stderr.count("\n") == 1
        assert model.read_bytes() == before


def test_a_set_of_files_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A name that cannot be had leaves the other files as they were."""
    (tmp_path / "kws_dscnn_int8_weights.h").mkdir()
    (tmp_path / "kws_dscnn_int8.c").write_text("old")
    done = call("emit", "c", "zoo:kws_dscnn_int8", "-o", str(tmp_path))
    assert done.returncode == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kws_dscnn_int8.c", "kws_dscnn_int8_weights.h"]
    assert (tmp_path / "kws_dscnn_int8.c").read_text() == "old"


def test_nothing_is_written_where_a_command_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if it is the last line to be shown that cannot be made."""

    def lines(*_: object) -> Iterator[str]:
        yield "all is well"
        raise PlanError("it is not")

    monkeypatch.setattr("diagmem.cli.plan.plan_lines", lines)
    monkeypatch.setattr("diagmem.cli.emit.cost_lines", lines)
    monkeypatch.setattr("diagmem.cli.report.cost_lines", lines)
    names = {name: str(tmp_path / name) for name in ("json", "plan", "svg", "report.html")}
    for words in (
        ("plan", KWS, "--json", names["json"], "-o", names["plan"], "--svg", names["svg"]),
        ("emit", "c", KWS, "-o", str(tmp_path)),
        ("report", KWS, "-o", names["report.html"], "--json", names["json"]),
    ):
        done = call(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "it is not" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_too_large_is_refused_by_its_size(tmp_path: Path) -> None:
    """Before a byte of it is read."""
    path = tmp_path / "large.tflite"
    with path.open("wb") as file:
        file.truncate(2**33)
    tracemalloc.start()
    done = call("inspect", str(path))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.returncode == 2
    assert "it is larger than 2147483647 bytes" in done.stderr
    assert done.stderr.count("\n") == 1
    assert peak_bytes < 2**30


READING = {
    "model": ("plan", "{}"),
    "model.tflite": ("inspect", "{}.tflite"),
    "model.onnx": ("inspect", "{}.onnx"),
    "plan": ("check", KWS, "--plan", "{}"),
    "side": ("diff", "{}", "{}"),
    "target": ("plan", KWS, "--target", "{}.toml"),
    "settings": ("plan", KWS, "--config", "{}"),
    "traces": ("plan", KWS, "--kernels", "traced:{}"),
    "profile": ("report", KWS, "-o", "{}-report", "--profile", "{}"),
    "buffers": ("place", "{}"),
    "object": ("trace", "--elf", "{}", "--call", "f(input int8[4], output int8[4])"),
    "calls": ("trace", "--elf", sys.executable, "--call", "{}.toml"),
}
"""Commands that read a file."""


@pytest.mark.parametrize("case", READING)
def test_what_is_no_regular_file_is_not_read(case: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to, or a device without end, gets one line, and nobody waits for it."""
    for name in ("pipe", "device", "folder"):
        for suffix in ("", ".tflite", ".onnx", ".toml"):
            path = tmp_path / f"{name}{suffix}"
            if name == "pipe":
                os.mkfifo(path)
            elif name == "device":
                path.symlink_to("/dev/zero")
            else:
                path.mkdir()
        signal.alarm(20)
        done = call(*(word.format(tmp_path / name) for word in READING[case]))
        signal.alarm(0)
        assert done.returncode == 2, done.stdout
        assert done.stderr.count("\n") == 1
        assert name == "folder" or "it is no regular file" in done.stderr


def test_a_plan_from_elsewhere_opens_no_device(tmp_path: Path) -> None:
    """The traces that it names are read from a regular file, and not without end."""
    plan, pipe, large = (tmp_path / name for name in ("plan.json", "pipe", "large"))
    assert call("plan", KWS, "--json", str(plan)).returncode == 0
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(1 << 40)
    content = json.loads(plan.read_text())
    for path, why in ((pipe, "it is no regular file"), ("/dev/zero", "it is no regular file"), (large, "larger than")):
        plan.write_text(json.dumps({**content, "kernels": f"traced:{path}"}))
        signal.alarm(20)
        done = call("check", KWS, "--plan", str(plan))
        signal.alarm(0)
        assert done.returncode == 2
        assert why in done.stderr
        assert done.stderr.count("\n") == 1


def test_truncated_files_say_so_in_plain_words(tmp_path: Path) -> None:
    """Wherever a file is cut off, no word of Python's is in the message."""
    path = tmp_path / "cut.tflite"
    assert call("zoo", "write", "kws_dscnn_int8", "-o", str(path)).returncode == 0
    whole = path.read_bytes()
    said = set()
    for size in (*range(0, 64, 7), *range(64, len(whole), len(whole) // 24)):
        path.write_bytes(whole[:size])
        done = call("inspect", str(path))
        assert done.returncode == 2
        said.add(done.stderr)
        assert not [word for word in ("Error", "unpack", "buffer of", "object", "None") if word in done.stderr]
    assert any("damaged or truncated" in line for line in said)
