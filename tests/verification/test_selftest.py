"""The test that a model takes to its board: it passes where all is right, names the op that is wrong, and its report is
judged by what numpy computes."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import time
import zlib
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
from diagmem.verification.reference import runs
from diagmem.verification.selftest import CANDIDATES, LogError, selftest_of
from tests.backends.c.models import compiler, tiny
from tests.cli.calling import call
from tests.profiles import some
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
    assert re.search(r"\nresult ok [0-9a-f]{8}\nreturned 0\n$", log)
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


def sealed(log: str) -> str:
    """With the CRC that belongs to its lines."""
    text = re.sub(r"^(result \w+) .*\n", r"\1 ", log, flags=re.MULTILINE).split("returned")[0]
    return f"{text}{zlib.crc32(text.encode()):08x}\n"


def test_what_a_board_says_of_itself_is_not_believed(tmp_path: Path) -> None:
    """A changed CRC counts, whatever stands behind it; what is missing, another plan and other inputs are said."""
    options: dict[str, Any] = {"schedule": "best"}
    log = built(diagmem.emit_c(GRAPH, name="net", selftest=2, **options).files, tmp_path)
    source, asked = diagmem.Source(GRAPH), Options.of(options)
    assert board_report(source, sealed(log), asked).ok
    changed = sealed(re.sub(r"^(op 1 0 )[0-9a-f]{8}", r"\g<1>00000000", log, flags=re.MULTILINE))
    failure = board_report(source, changed, asked).failure
    assert failure is not None
    assert "in run 1" in failure
    assert not board_report(source, sealed(log.replace("guards ok", "guards BROKEN")), asked).ok
    line = re.search(r"^op 1 0 .*\n", log, re.MULTILINE)
    assert line is not None
    for text, why in (
        (log.replace(line[0], ""), "no line for op 0 in run 1"),
        (log.replace(line[0], line[0] * 2), "op 0 of run 1 twice"),
        (log.replace(line[0], line[0] + "op 1 99 00000000 0 ok\n"), "lines of its own"),
        (re.sub("plan .{8}", "plan 12345678", log), "another plan"),
        (re.sub("inputs .*", "inputs 1:99:3", log), "names no inputs"),
        (re.sub("plan .*\n", "", log), "no plan"),
    ):
        with pytest.raises(LogError, match=why):
            board_report(source, sealed(text), asked)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report as it comes from a board."""
    options: dict[str, Any] = {"schedule": "best"}
    return built(diagmem.emit_c(GRAPH, name="net", selftest=2, **options).files, tmp_path_factory.mktemp("whole"))


def judge(log: str) -> bool:
    return board_report(diagmem.Source(GRAPH), log, Options.of({"schedule": "best"})).ok


def test_what_terminals_and_others_add_is_left_out(whole: str) -> None:
    """Line ends, times, colours, lines of an operating system, half a report before and one begun behind."""
    timed = "".join(f"12:34:56.789 -> {line}\r\n" for line in whole.splitlines())
    coloured = "".join(f"\x1b[0;32m{line}\x1b[0m\n" for line in whole.splitlines())
    chatty = whole.replace("\nop 1 0", "\nE (5303) task_wdt: \x00\xff idle\nop 1 0")
    for log in (timed, coloured, chatty, whole[150:] + whole, whole + whole[:150], whole * 3):
        assert judge(log)


def test_text_that_was_lost_or_garbled(whole: str) -> None:
    """Whatever happens to a report on its way is said in one line, and nothing of it taken for true."""
    rng = np.random.default_rng(0)
    report = whole.split("returned")[0]
    lines = report.splitlines(keepends=True)
    for _ in range(some(150)):
        at, length = int(rng.integers(0, len(report) - 2)), int(rng.integers(1, 60))
        first, second = sorted(rng.choice(len(lines), 2, replace=False))
        swapped = [*lines]
        swapped[first], swapped[second] = lines[second], lines[first]
        other = chr(32 + (ord(report[at]) - 31) % 90)
        for log in (report[:at], report[:at] + report[at + length :], report[:at] + other + report[at + 1 :]):
            if log.strip() != report.strip():
                with pytest.raises(LogError, match="no whole report"):
                    judge(log)
        if lines[first] != lines[second]:
            for log in ("".join(swapped), "".join([*lines[:second], lines[first], *lines[second:]])):
                with pytest.raises(LogError, match=r"no whole report|names no plan"):
                    judge(log)


def test_hostile_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of every value, one endless line, many beginnings, pipes and devices: one line each, and nothing of them
    in a terminal."""
    every = bytes(range(256)) * 40
    begin, path = b"diagmem selftest 1 net\n", tmp_path / "log"
    for content in (
        b"",
        every,
        b"op 0 0 \x1b]0;owned\x07" * 1000,
        begin * 20_000,
        begin + b"x" * 3_000_000,
        begin + b"plan 00000000 inputs \x1b[31mred\nresult ok 00000000\n",
        begin + b"result ok 00000000\n" * 100_000,
    ):
        path.write_bytes(content)
        for where in (str(path), "-"):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
            done = call("verify", "zoo:kws_dscnn_int8", "--board", where)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr[:300]
            assert (done.stderr[:-1] + done.stdout).isprintable()
    with path.open("wb") as file:
        file.truncate(2**25)
    os.mkfifo(tmp_path / "pipe")
    for bad, why in ((path, "larger"), (tmp_path / "pipe", "no regular file"), (Path("/dev/zero"), "no regular file")):
        done = call("verify", "zoo:kws_dscnn_int8", "--board", str(bad))
        assert (done.returncode, done.stderr.count("\n"), why in done.stderr) == (2, 1, True), done.stderr


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


def test_inputs_are_chosen_for_the_ranges_that_they_reach() -> None:
    """More of them than the first ones of all that are tried, and more with more inputs; the README says how much, as
    it is worked out here."""
    source = diagmem.Source(diagmem.Source("zoo:vww_96_int8").runnable)
    program = diagmem.plan(source).costs.firmware

    def reach(count: int) -> float:
        test = selftest_of(program, count, None)
        tensor = program.graph.tensors[program.graph.inputs[0]]
        assert len(test.inputs) == len(test.expected) == count
        inputs = [[pattern.values(tensor, 0)] for pattern in test.inputs if isinstance(pattern, Pattern)]
        made = [t.index for node in program.nodes for t in node.outputs]
        edges = [[(int(v[t].min()), int(v[t].max())) for t in made] for v in runs(program.model, inputs, range(count))]
        wide = [max(high for _, high in of) - min(low for low, _ in of) for of in zip(*edges, strict=True)]
        found = float(np.mean([w / 255 for w in wide]))
        assert test.reach == pytest.approx(found)
        return found

    one, three = reach(1), reach(3)
    assert one < three
    tensor = program.graph.tensors[program.graph.inputs[0]]
    plain = [CANDIDATES[0].values(tensor, 0)]
    (values,) = runs(program.model, [plain])
    outputs = [t.index for node in program.nodes for t in node.outputs]
    assert one > np.mean([np.ptp(values[t].astype(int)) / 255 for t in outputs])
    text = diagmem.emit_c(source, selftest=3).files["README.md"].decode()
    assert f"through {100 * three:.0f} % of" in text


@pytest.mark.parametrize(
    ("tool", "flags"),
    [
        ("arm-none-eabi-gcc", ("-mcpu=cortex-m0", "-mthumb")),
        ("arm-none-eabi-gcc", ("-mcpu=cortex-m7", "-mthumb")),
        ("riscv64-unknown-elf-gcc", ("-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs")),
        (
            "riscv64-unknown-elf-gcc",
            ("-march=rv32imc_zicsr", "-mabi=ilp32", "--specs=picolibc.specs", "-DPICO_RISCV=1"),
        ),
        ("gcc", ("-DESP_PLATFORM", "-Istub")),
    ],
    ids=str,
)
def test_it_compiles_with_each_counter_of_cycles(tool: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    """Without a warning, with SysTick, `DWT`, `mcycle`, and what ESP-IDF offers."""
    diagmem.emit_c(GRAPH, name="net", selftest=1).write(tmp_path)
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "esp_cpu.h").write_text("static inline int esp_cpu_get_cycle_count(void) { return 1; }\n")
    for name in ("net.c", "net_selftest.c"):
        subprocess.run([compiler(tool), *STRICT, *flags, "-c", name, "-o", "out.o"], check=True, cwd=tmp_path)


def test_a_counter_of_ones_own(tmp_path: Path) -> None:
    """It is asked before and after each operation; what starts and stops it is called once."""
    files = diagmem.emit_c(GRAPH, name="net", selftest=3, schedule="best").files
    own = """
#include <stdint.h>
static uint32_t now;
static inline uint32_t count(void) { return now += 7; }
#define NET_SELFTEST_START() (now = 0xFFFFFFF0u)
#define NET_SELFTEST_CYCLES() count()
"""
    test = files["net_selftest.c"].decode()
    log = built({**files, "net_selftest.c": (own + test).encode()}, tmp_path)
    found = board_report(diagmem.Source(GRAPH), log, Options.of({"schedule": "best"}))
    assert found.ok
    assert [op.cycles for op in found.ops] == [7] * len(found.ops)


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


PLANTED = re.compile(r"(void diagmem_fully_connected\w*\([^{]*\{\n    for \([^{]*\{.*?)(\n    \}\n)", re.DOTALL)


def with_fault(files: dict[str, bytes]) -> dict[str, bytes]:
    """Dense layers get one bit of their first output wrong: in the kernel, whichever a core has."""
    right = files["net_kernels.h"].decode()
    wrong, count = PLANTED.subn(r"\1\n        out[0] = (int8_t)(out[0] ^ 1);\2", right, count=1)
    assert count == 1
    return {**files, "net_kernels.h": wrong.encode()}


def check_on_board(source: diagmem.Source, board: str, place: Path) -> str:
    """The report, which is right; with a fault in a kernel the board itself, and who reads it, name the op."""
    if shutil.which("arm-none-eabi-gcc" if board != "virt" else "riscv64-unknown-elf-gcc") is None:
        pytest.skip("needs a cross compiler")
    asked: dict[str, Any] = {"cpu": BOARDS[board][0]}
    files = diagmem.emit_c(source, name="net", selftest=1, **asked).files
    log = on_board(files, board, place / "right")
    assert board_report(source, log, Options.of(asked)).ok
    wrong = on_board(with_fault(files), board, place / "wrong")
    node = next(node for node in source.runnable.nodes if node.op.kind == "FULLY_CONNECTED")
    failure = board_report(source, wrong, Options.of(asked)).failure
    assert failure is not None
    assert failure.startswith(node.label)
    first = next(line for line in wrong.splitlines() if line.endswith("DIFFERS"))
    assert first.split()[2] == str(node.op.number)
    assert "result FAILED" in wrong
    return log


@pytest.mark.parametrize(
    "board", [board if board == "mps2-an386" else pytest.param(board, marks=pytest.mark.deep) for board in BOARDS]
)
def test_on_a_board(board: str, tmp_path: Path) -> None:
    """Over its serial port, and read by `verify --board`."""
    log = check_on_board(diagmem.Source("zoo:kws_dscnn_int8"), board, tmp_path)
    (tmp_path / "log.txt").write_text(log)
    done = call("verify", "zoo:kws_dscnn_int8", "--cpu", BOARDS[board][0], "--board", str(tmp_path / "log.txt"))
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
    check_on_board(diagmem.Source(shared / "models" / f"{model}.tflite"), board, tmp_path)


FLOATS = ["wild/kws_hybrid.tflite", "wild/voice_activity.tflite", "wild/onnx/resnet8_float.onnx"]


@pytest.mark.deep
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", FLOATS)
def test_other_networks_on_boards(model: str, board: str, shared: Path, tmp_path: Path) -> None:
    """Real numbers, which compilers round as numpy does; state; ONNX; with the input row by row where that goes."""
    asked: dict[str, Any] = {"cpu": BOARDS[board][0]}
    source = diagmem.Source(shared / "models" / model)
    log = on_board(diagmem.emit_c(source, name="net", selftest=2, **asked).files, board, tmp_path)
    assert board_report(source, log, Options.of(asked)).ok
