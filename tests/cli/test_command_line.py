"""The command line keeps its contract: exit statuses, one line for each error, JSON alone on standard output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call


def test_help_lists_commands_and_teaches_by_example() -> None:
    """`diagmem`, with or without --help, shows the commands and an example."""
    for arguments in ((), ("--help",), ("-h",)):
        done = call(*arguments)
        assert done.returncode == 0
        assert "inspect" in done.stdout
        assert "diagmem plan model.tflite --target" in done.stdout
        assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_every_command_has_help() -> None:
    """Each command's --help works and shows an example or its options."""
    listed = call("--help").stdout.split("Does it fit?")[1].split()
    from diagmem.cli import diagmem

    for name in diagmem.list_commands(diagmem.make_context("diagmem", ["completion"], resilient_parsing=True)):
        assert name in listed
        assert call(name, "--help").returncode == 0


def test_a_process_of_its_own() -> None:
    """The command as it is started by a shell: what it says and where, and its status."""
    from diagmem import __version__

    for arguments, status in ((["--version"], 0), (["inspect", "no/such/file.tflite"], 2)):
        command = [str(Path(sys.executable).parent / "diagmem"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        here = call(*arguments)
        assert done.returncode == here.returncode == status
        assert (done.stdout, done.stderr) == (here.stdout, here.stderr)
    assert call("--version").stdout == f"diagmem, version {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    """Start-up stays quick because numpy and everything above it load only where they are used."""
    code = "import sys; from diagmem.cli import diagmem as d; d(['-h'], standalone_mode=False); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert not [name for name in ("numpy", "rich", "tflite", "ortools", "matplotlib") if f"'{name}'" in loaded]


def test_a_plan_loads_only_what_it_needs() -> None:
    """A small network is planned in less time than all kinds of operations, and drawing on terminals, take to load."""
    code = "import sys; from diagmem.cli import diagmem as d; d(['plan', 'zoo:kws_dscnn_int8'], standalone_mode=False)"
    code += "; print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'diagmem.ops.convolution.conv_2d'" in loaded
    unused = ("rich.console", "logging", "numpy.ma", "tflite", "diagmem.ops.detection.detection_postprocess")
    assert not [name for name in unused if f"'{name}'" in loaded]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("inspect",), "Missing argument"),
        (("nonsense",), "No such command"),
        (("inspect", "no/such/file.tflite"), "No such file"),
        (("inspect", "."), "directory"),
        (("inspect", "zoo:nonsense"), "nonsense"),
        (("inspect", "--nonsense", "x"), "No such option"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments: tuple[str, ...], says: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert says.lower() in done.stderr.lower()
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`diagmem … | head` ends quietly, and not with the status of a "no"."""
    for arguments in (("plan", "zoo:kws_dscnn_int8"), ("zoo",), ("plan", "--help")):
        command = [sys.executable, "-m", "diagmem", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == b""
        assert process.returncode == 0


@pytest.mark.parametrize(("typed", "meant"), [("insepct", "inspect"), ("target", "targets"), ("emit tfl", "tflm")])
def test_a_mistyped_command_gets_the_nearest_one(typed: str, meant: str) -> None:
    done = call(*typed.split())
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr


@pytest.mark.parametrize("content", [b"", b"x", b"\x1c\x00\x00\x00TFL3", b"PK\x03\x04" + bytes(100), bytes(4096)])
def test_foreign_file_is_one_line_and_status_2(tmp_path: Path, content: bytes) -> None:
    """Not a model at all: the file's name and what is wrong with it."""
    path = tmp_path / "odd \n <b>name.tflite"
    path.write_bytes(content)
    done = call("inspect", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith("diagmem: ")
    assert "<b>name" in done.stderr
    assert done.stderr.count("\n") == 1


def test_json_to_standard_output_stands_alone() -> None:
    found = json.loads(call("inspect", "zoo:vww_96_int8", "--json", "-").stdout)
    assert len(found["ops"]) == 31
    assert (found["peak_bytes"], found["peak_op"]) == (55296, 2)
    assert found["macs"] == 7489664
    assert {"index", "kind", "inputs", "outputs", "live_bytes"} <= set(found["ops"][0])


def test_json_to_a_file_leaves_the_table(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = call("inspect", "zoo:kws_dscnn_int8", "--json", str(path))
    assert done.returncode == 0
    assert "peak" in done.stdout
    assert json.loads(path.read_text())["peak_bytes"] == 16000


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    done = call("inspect", "zoo:kws_dscnn_int8", "--json", str(tmp_path / "no" / "out.json"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_real_file(shared: Path) -> None:
    """The visual wake words model: 31 ops, its peak of 55296 bytes at op 2."""
    found = json.loads(call("inspect", str(shared / "models/mlperf_tiny/vww_96_int8.tflite"), "--json", "-").stdout)
    assert (len(found["ops"]), found["peak_bytes"], found["peak_op"]) == (31, 55296, 2)


def test_messages_about_files_are_alike(tmp_path: Path) -> None:
    """A file that is not there, is empty, has no name or is a plan: the same in every command, by its whole name."""
    empty, plan = tmp_path / "empty.tflite", tmp_path / "plan.json"
    empty.write_bytes(b"")
    plan.write_text("{}")
    for words in (("plan",), ("diff", "zoo:kws_dscnn_int8")):
        missing = call(*words, "none.tflite").stderr
        assert missing == "diagmem: none.tflite: No such file or directory\n"
        assert call(*words, str(empty)).stderr.startswith(f"diagmem: {empty}: not a TensorFlow Lite file")
        assert "the name of a model is empty. See" in call(*words, "").stderr
    said = call("plan", str(plan)).stderr
    assert said == f"diagmem: {plan} is a plan: give the model, and the plan with --plan\n"


def test_a_message_ends_once_and_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it ends with: a question, a list in brackets, or nothing."""
    monkeypatch.chdir(tmp_path)
    nearest = call("verify", "zoo:kws_dscnn_int8", "--on", "cortex-m77").stderr
    assert nearest.endswith("did you mean cortex-m7? See 'diagmem verify --help'.\n")
    for words in (
        ("plan", "--budgt", "1"),
        ("emit", "c", "m.tflite"),
        ("trace",),
        ("sweep", "zoo:kws_dscnn_int8", "--out", "b", "--on", "x"),
    ):
        said = call(*words).stderr
        assert f"See 'diagmem {' '.join(words[: 1 + (words[0] == 'emit')])} --help'." in said
        assert not said.partition(" See ")[0].endswith(("?.", ".."))


def test_targets_fit_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its width is given, and output goes elsewhere; chips without kernels stand below the table."""
    monkeypatch.setenv("COLUMNS", "80")
    said = call("targets").stdout
    assert max(map(len, said.splitlines())) <= 80
    assert said.endswith("No kernels run on ATmega328P (AVR), ATmega2560 (AVR).\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    assert "_DIAGMEM_COMPLETE" in call("completion", shell).stdout
