"""The test that a model takes to its board: it passes where all is right, names the op that is wrong, and its report is
judged by what numpy computes."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.backends.c.selftest import Pattern
from diagmem.model.graph import DType, Tensor
from diagmem.model.schedule import PUSH
from diagmem.pipeline.running import board_report
from diagmem.planning.options import Options
from diagmem.verification.selftest import LogError
from tests.backends.c.models import compiler, tiny
from tests.cli.calling import call
from tests.streams import stream

GRAPH = tiny()
SAY = """
#include <stdio.h>
#include "net_selftest.h"
void net_selftest_putchar(int c) { (void)putchar(c); }
int main(void) { const int found = net_selftest(); printf("returned %d\\n", found); return 0; }
"""
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-ffp-contract=off")


def built(files: dict[str, bytes], place: Path) -> str:
    """What the test says on this machine."""
    for name, content in files.items():
        if "/" not in name and name.endswith((".c", ".h")):
            (place / name).write_bytes(content)
    (place / "main.c").write_text(SAY)
    sources = sorted(str(path) for path in place.glob("*.c"))
    subprocess.run([compiler("gcc"), *STRICT, *sources, "-lm", "-o", str(place / "t")], check=True, cwd=place)
    return subprocess.run([str(place / "t")], capture_output=True, text=True, check=True).stdout


WAYS: Sequence[dict[str, Any]] = [
    {"schedule": "best"},
    {"schedule": "rows"},
    {"input_rows": True},
    {"schedule": "best", "pools": ("fast:300", "slow:2K")},
    {"skip": ("all",), "schedule": "rows"},
]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_it_passes_where_all_is_right(options: dict[str, Any], tmp_path: Path) -> None:
    """Whole, by rows, streamed, in two memories: and the report is judged to be right."""
    log = built(diagmem.emit_c(GRAPH, name="net", selftest=2, **options).files, tmp_path)
    assert log.endswith("result ok\nreturned 0\n")
    found = board_report(diagmem.Source(GRAPH), log, Options.of(options))
    assert (found.ok, found.runs, found.arena_bytes <= found.cost.ram.arena_bytes) == (True, 2, True)
    assert all(op.cycles is None for op in found.ops)


@pytest.mark.parametrize("seed", [0, 3])
def test_state_goes_from_run_to_run(seed: int, tmp_path: Path) -> None:
    """As numpy has it."""
    graph = stream(seed)
    log = built(diagmem.emit_c(graph, name="net", selftest=3).files, tmp_path)
    assert "result ok" in log
    assert board_report(diagmem.Source(graph), log, Options()).ok


def test_inputs_of_ones_own(tmp_path: Path) -> None:
    """They are in the C, and the report names them."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(0, 1, (2, 8, 8, 3)).astype(np.float32))
    np.save(tmp_path / "z.npy", np.zeros((2, 8, 8, 3), np.float32))
    log = built(diagmem.emit_c(GRAPH, name="net", selftest=tmp_path / "x.npy").files, tmp_path)
    source = diagmem.Source(GRAPH)
    assert board_report(source, log, Options(), inputs=tmp_path / "x.npy").ok
    with pytest.raises(LogError, match="other inputs"):
        board_report(source, log, Options(), inputs=tmp_path / "z.npy")
    with pytest.raises(LogError, match="inputs of your own"):
        board_report(source, log, Options())


FAULTS = {
    "DEPTHWISE_CONV_2D": ("net_weights.c", r"(net_op1_filter\[\d+\] = \{\n\s*)-?\d+", r"\g<1>11"),
    "MAX_POOL_2D": ("net_kernels.h", r"value > largest", "value < largest"),
}


@pytest.mark.parametrize("schedule", ["best", "rows"])
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_found_and_its_op_named(kind: str, schedule: str, tmp_path: Path) -> None:
    """A weight that was lost, a kernel that takes the least: by the board itself, and by who reads the report."""
    options: dict[str, Any] = {"schedule": schedule, "skip": ("all",)}
    files = diagmem.emit_c(GRAPH, name="net", selftest=1, **options).files
    name, what, instead = FAULTS[kind]
    right = files[name].decode()
    wrong = re.sub(what, instead, right, count=1)
    assert wrong != right
    log = built({**files, name: wrong.encode()}, tmp_path)
    node = next(node for node in GRAPH.nodes if node.op.kind == kind)
    assert f"returned {1 + node.op.number}\n" in log
    failure = board_report(diagmem.Source(GRAPH), log, Options.of(options)).failure
    assert failure is not None
    assert kind in failure


def test_what_a_board_says_of_itself_is_not_believed(tmp_path: Path) -> None:
    """A changed CRC counts, whatever stands behind it; lost lines and another plan are said."""
    options: dict[str, Any] = {"schedule": "best"}
    log = built(diagmem.emit_c(GRAPH, name="net", selftest=2, **options).files, tmp_path)
    source, asked = diagmem.Source(GRAPH), Options.of(options)
    changed = re.sub(r"^(op 1 0 )[0-9a-f]{8}", r"\g<1>00000000", log, flags=re.MULTILINE)
    failure = board_report(source, changed, asked).failure
    assert failure is not None
    assert "in run 1" in failure
    assert board_report(source, "noise\r\n" + log.replace("\n", "\r\n"), asked).ok
    assert not board_report(source, log.replace("guards ok", "guards BROKEN"), asked).ok
    for text, why in (
        (re.sub(r"^op 1 0 .*\n", "", log, flags=re.MULTILINE), "was text lost"),
        (log.replace("result ok", ""), "does not come to its end"),
        ("nothing", "no line begins with"),
        (re.sub("plan .{8}", "plan 12345678", log), "another plan"),
        (re.sub("inputs .*", "inputs 1:99:3", log), "names no inputs"),
    ):
        with pytest.raises(LogError, match=why):
            board_report(source, text, asked)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32, DType.INT32])
def test_drawn_values_stay_in_range(dtype: DType) -> None:
    """All of the type's range is drawn of small types; indices are 0 or 1."""
    tensor = Tensor(0, "x", (1, 50, 40), dtype)
    strong, weak = (Pattern(1, 0, contrast).values(tensor, 0).astype(np.float64) for contrast in (256, 48))
    assert strong.shape == tensor.shape
    assert np.ptp(weak) <= np.ptp(strong)
    low, high = {DType.FLOAT32: (-4, 4), DType.INT32: (0, 1)}.get(dtype, (0, 0))
    if low == high:
        low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    assert low <= strong.min() < strong.max() <= high
    assert np.ptp(strong) > 0.97 * (high - low)


def test_every_step_has_its_places() -> None:
    """Parts cover each byte of what ops write once."""
    from diagmem.backends.c.selftest import parts

    for options in WAYS[:3]:
        program = diagmem.plan(GRAPH, **options).costs.firmware
        found = list(parts(program))
        for op, node in enumerate(program.nodes):
            made = sum(part.size_bytes * part.count for part in found if part.place == op)
            assert made == sum(t.size_bytes for t in node.outputs)
        assert max(part.step for part in found) < sum(step.op != PUSH for step in program.steps)


BOARDS = {
    "mps2-an386": ("cortex-m4", "qemu-system-arm"),
    "mps3-an547": ("cortex-m55", "qemu-system-arm"),
    "virt": ("riscv32", "qemu-system-riscv32"),
}


def on_board(files: dict[str, bytes], board: str, place: Path) -> str:
    """What comes over the emulated serial port, until the report is whole."""
    _, emulator = BOARDS[board]
    diagmem.pipeline.Files(files).write(place)
    cmake = [compiler("cmake"), "-S", str(place / "selftest"), "-B", str(place / "build"), f"-DBOARD={board}"]
    subprocess.run(cmake, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(place / "build")], check=True, capture_output=True)
    plain = ["-nographic", "-monitor", "none", "-serial", "stdio", *(["-bios", "none"] if board == "virt" else [])]
    command = [compiler(emulator), "-M", board, *plain, "-kernel", str(place / "build" / "net_selftest")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        said, since = "", time.monotonic()
        for line in running.stdout:
            said += line
            if line.startswith(("result", "fault")) or time.monotonic() - since > 300:
                break
        running.kill()
    return said


@pytest.mark.parametrize("board", BOARDS)
def test_on_a_board(board: str, tmp_path: Path) -> None:
    """Over its serial port, and read by `verify --board`."""
    if shutil.which("arm-none-eabi-gcc" if board != "virt" else "riscv64-unknown-elf-gcc") is None:
        pytest.skip("needs a cross compiler")
    core = BOARDS[board][0]
    log = on_board(diagmem.emit_c("zoo:kws_dscnn_int8", name="net", selftest=1, cpu=core).files, board, tmp_path)
    (tmp_path / "log.txt").write_text(log)
    done = call("verify", "zoo:kws_dscnn_int8", "--cpu", core, "--board", str(tmp_path / "log.txt"))
    assert done.returncode == 0, done.stderr + done.stdout + log[-300:]
    assert "OK, 13 ops in 1 run" in done.stdout


@pytest.mark.deep
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    "model",
    [
        *("mlperf_tiny/ad01_int8", "mlperf_tiny/kws_ref_model", "mlperf_tiny/pretrainedResnet_quant"),
        *("mlperf_tiny/vww_96_int8", "wild/wake_word_hey_jarvis"),
    ],
)
def test_published_networks_on_boards(model: str, board: str, shared: Path, tmp_path: Path) -> None:
    """MLPerf Tiny's and a wake word."""
    source, core = diagmem.Source(shared / "models" / f"{model}.tflite"), BOARDS[board][0]
    log = on_board(diagmem.emit_c(source, name="net", selftest=1, cpu=core).files, board, tmp_path)
    assert board_report(source, log, Options.of({"cpu": core})).ok
