"""One truth: all commands, pages and JSON tell the same numbers of a plan, and the linked firmware has them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import diagmem
from diagmem import pipeline
from diagmem.costs import ms_text
from diagmem.frontends.source import Source
from diagmem.targets import chip_named
from diagmem.verification import tools
from tests.backends.c.models import compiler
from tests.cli.calling import call

WAYS = {
    "whole": "--schedule best",
    "rows": "--schedule rows",
    "streamed": "--input-rows",
    "dsp": "--kernels diagmem-dsp",
    "pools": "--pool fast:64K --pool slow:1M:3",
    "nothing removed": "--skip all",
    "external": "--external-io",
    "Cortex-M4F": "--target NUCLEO-L4R5ZI",
    "Cortex-M0+": "--target RP2040",
    "RISC-V": "--target ESP32-C3",
}

QUICK = {
    "zoo:autoencoder_int8": "nothing removed",
    "zoo:resnet8_int8": "whole",
    "mlperf_tiny/ad01_int8.tflite": "Cortex-M0+",
    "mlperf_tiny/kws_ref_model.tflite": "Cortex-M4F",
    "mlperf_tiny/vww_96_int8.tflite": "pools",
    "wild/wake_word_hey_jarvis.tflite": "external",
    "wild/mnist_lstm_int8.tflite": "RISC-V",
    "wild/audio_preprocessor_int8.tflite": "dsp",
    "wild/onnx/micro_kws_float.onnx": "rows",
    "wild/onnx/resnet8_qdq.onnx": "streamed",
}
"""Model -> the way that a quick run takes it; a full one takes all, except that each target has three of the models."""

TARGETS = {name: number for number, name in enumerate(WAYS) if "--target" in WAYS[name]}


def cases() -> Iterator[Any]:
    for number, (model, quick_way) in enumerate(QUICK.items()):
        for way in WAYS:
            if way == quick_way or way not in TARGETS or (number + TARGETS[way]) % 3 == 0:
                yield pytest.param(model, way, marks=[] if way == quick_way else pytest.mark.deep)


CORE = "cortex-m4"
"""Where a plan runs that names no target."""

LEAST_CODE, MOST_CODE, MOST_STACK = 0.75, 1.7, 5.5
"""Times what was measured: an estimate of code is not further from it, and a bound on the stack not further above."""
LEAST_ELSEWHERE, MOST_ELSEWHERE = 0.55, 2.2
"""The same of code on other cores: soft-float routines are not counted."""

FLAGS = ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=c99")

TIME = ("cycles", "flash_wait_cycles", "ms", "uj")
MOST_OFF = 0.05
"""How far an estimate of cycles may be from those that the emulator counted."""
FURTHER_OFF = {("wild/wake_word_hey_jarvis.tflite", "Cortex-M4F"): 0.17}
"""Where it is further off: 36 operations of a few thousand cycles each."""
NOT_ESTIMATED = {
    ("wild/audio_preprocessor_int8.tflite", "Cortex-M0+"),
    ("wild/mnist_lstm_int8.tflite", "RISC-V"),
    ("wild/onnx/resnet8_qdq.onnx", "RISC-V"),
}
"""Where kernels have not been measured on the core yet, or not well enough: plans tell no time."""

Cost = dict[str, Any]


@pytest.fixture(autouse=True)
def _built_once(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a compiler makes of the same files is made once: verify and profile build the same firmware."""
    compiler("arm-none-eabi-gcc")
    compiler("riscv64-unknown-elf-gcc")
    build, kept = tools.build, tmp_path_factory.mktemp("built")

    def built(command: Sequence[str], directory: Path) -> None:
        digest = hashlib.sha256("\n".join(command).encode())
        for path in sorted(directory.iterdir()):
            if path.suffix in (".c", ".h", ".S", ".ld", ".o", ".bin"):
                digest.update(path.name.encode() + path.read_bytes())
        made, output = kept / digest.hexdigest(), directory / command[-1]
        if not made.exists():
            build(command, directory)
            made.write_bytes(output.read_bytes())
        output.write_bytes(made.read_bytes())

    monkeypatch.setattr(tools, "build", built)


@pytest.fixture
def model_at(shared: Path, tmp_path: Path) -> Any:
    """The path of a model's file; a built-in one is written."""

    def at(name: str) -> str:
        if not name.startswith("zoo:"):
            return str(shared / "models" / name)
        path = tmp_path / f"{name[4:]}.tflite"
        path.write_bytes(Source(name).content)
        return str(path)

    return at


def told_by(*words: str, fits: bool = True) -> dict[str, Any]:
    """The JSON of a command."""
    done = call(*words, "--json", "-")
    assert done.returncode in (0, 0 if fits else 1), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def planned(model: str, words: str, path: Path) -> tuple[dict[str, Any], str]:
    """The JSON of `diagmem plan`, which is left at the path, and its screen."""
    done = call("plan", model, *words.split(), "--json", str(path))
    assert done.returncode in (0, 1), done.stderr
    told: dict[str, Any] = json.loads(path.read_text())
    return told, done.stdout


@pytest.mark.parametrize(("name", "way"), [*cases()])
def test_all_tell_the_same(name: str, way: str, model_at: Any, tmp_path: Path) -> None:
    """Plan, the API, the report with its page, emit, verify and profile; to the byte."""
    model, path = model_at(name), tmp_path / "plan.json"
    if way == "streamed" and Source(model).graph.variables:
        pytest.skip("models with state run layer by layer")
    plan, screen = planned(model, WAYS[way], path)
    cost, made = plan["cost"], pipeline.with_baseline(Source(model), path)
    if way in TARGETS:
        assert_screen_tells(screen, cost)
        assert diagmem.plan(model, target=WAYS[way].split()[1]).to_json()["cost"] == cost
    files = pipeline.report_of(made)
    assert json.loads(files["plan.json"])["cost"] == made.to_json()["cost"] == cost
    assert_page_tells(files["report.html"].decode(), cost)
    layers = made.costs.layers()
    assert sum(layer.macs for layer in layers) == cost["macs"] == plan["macs"]
    if cost["cycles"] is not None:
        assert sum(layer.cycles or 0 for layer in layers) == pytest.approx(cost["cycles"], abs=len(layers))
        assert sum(layer.ms or 0 for layer in layers) == pytest.approx(cost["ms"])
    if way == "external":  # There is no C of it.
        return
    assert sum(layer.weights_bytes or 0 for layer in layers) == cost["flash"]["weights_bytes"]
    given = (model, "--plan", str(path))
    assert told_by("emit", "c", *given, "-o", str(tmp_path / "c"), "--name", "model")["cost"] == cost
    if way not in TARGETS:
        assert_objects_have(tmp_path / "c", cost, made.plan.pools.missing_bytes)
    core = made.plan.options.core
    place = CORE if core is None else core.cpu
    (run,) = told_by("verify", *given, "--on", place, "--inputs", "1")["runs"]
    assert run["ok"]
    assert_firmware_is_as_told(run)
    profile = told_by("profile", *given, "--on", place)
    assert profile["cost"] == run["cost"]
    assert profile["instructions"] == run["cost"]["instructions"] >= sum(op["instructions"] for op in profile["ops"])
    assert sum(op["macs"] for op in profile["ops"]) == cost["macs"]
    if way in TARGETS:
        if (name, way) in NOT_ESTIMATED:
            assert {cost[one] for one in (*TIME, "error_percent")} == {None}
            cost = {**cost, "error_percent": run["cost"]["error_percent"]}
        else:
            assert_time_is_near(cost, run["cost"], FURTHER_OFF.get((name, way), MOST_OFF))
        assert {**run["cost"], **{name: cost[name] for name in ("instructions", *TIME)}} == cost
    else:
        assert run["cost"]["macs"] == cost["macs"]
        for part in ("ram", "flash"):
            known = {key: value for key, value in cost[part].items() if value is not None and key != "total_bytes"}
            assert known.items() <= run["cost"][part].items()


def test_two_plans_are_told_apart_as_each_is_told(model_at: Any, tmp_path: Path) -> None:
    """Diff, of two plans that were written and of the two models."""
    models = [model_at(f"{name}.tflite") for name in ("mlperf_tiny/ad01_int8", "wild/mnist_lstm_int8")]
    paths = [tmp_path / f"{number}.json" for number in range(2)]
    costs = [
        planned(model, "--target NUCLEO-L4R5ZI", path)[0]["cost"] for model, path in zip(models, paths, strict=True)
    ]
    assert costs[0] != costs[1]
    for found in (
        told_by("diff", *map(str, paths)),
        told_by("diff", *models, "--target", "NUCLEO-L4R5ZI"),
    ):
        assert found["cost"] == {"before": costs[0], "after": costs[1]}
        for part, figure in (("ram", "arena_bytes"), ("ram", "stack_bytes"), ("flash", "code_bytes")):
            assert found[figure] == {"before": costs[0][part][figure], "after": costs[1][part][figure]}
        for figure in ("macs", "cycles"):
            assert found[figure] == {"before": costs[0][figure], "after": costs[1][figure]}
        assert found["ops"]


def test_models_together_are_as_told(model_at: Any, tmp_path: Path) -> None:
    """Plan, emit, and the firmware that links what was emitted."""
    models = [model_at(f"mlperf_tiny/{name}.tflite") for name in ("ad01_int8", "kws_ref_model")]
    words = [*models, "--together", "run-one-at-a-time", "--target", "NUCLEO-L4R5ZI"]
    emitted = told_by("emit", "c", *words, "-o", str(tmp_path / "c"))
    cost = emitted["cost"]
    done = call("plan", *words, "--json", str(tmp_path / "plan.json"))
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["together"]["cost"] == cost
    assert plan["together"]["total_bytes"] == emitted["arena_bytes"] == cost["ram"]["arena_bytes"]
    assert sum(one["macs"] for one in plan["plans"]) == cost["macs"]
    assert sum(one["weights_bytes"] for one in plan["plans"]) == cost["flash"]["weights_bytes"]
    assert_screen_tells(done.stdout, cost)
    assert_objects_have(tmp_path / "c", cost, 0)
    calls = "".join(f"    {Path(model).stem}_invoke();\n" for model in models)
    names = "".join(f'#include "{Path(model).stem}.h"\n' for model in models)
    (tmp_path / "c" / "main.c").write_text(f"{names}int main(void) {{\n{calls}    return 0;\n}}\n")
    sources = [path.name for path in (tmp_path / "c").glob("*.c")]
    options = [*FLAGS, "-O2", "-ffunction-sections", "-fdata-sections", "--specs=nosys.specs", "-nostartfiles"]
    linked = ["arm-none-eabi-gcc", *options, *sources, "-Wl,--gc-sections,-e,main", "-lm", "-o", "firmware.elf"]
    subprocess.run(linked, cwd=tmp_path / "c", check=True, capture_output=True)
    size = subprocess.run(
        ["arm-none-eabi-size", "firmware.elf"], cwd=tmp_path / "c", check=True, capture_output=True, text=True
    )
    text, data, bss = map(int, size.stdout.splitlines()[1].split()[:3])
    assert 0 <= data + bss - cost["ram"]["arena_bytes"] < 64
    code = cost["flash"]["code_bytes"] + cost["flash"]["tables_bytes"]
    assert LEAST_CODE <= code / (text - cost["flash"]["weights_bytes"]) <= MOST_CODE


def assert_screen_tells(screen: str, cost: Cost) -> None:
    """The bars of RAM and flash, in KB."""
    for title, part in (("RAM", cost["ram"]), ("flash", cost["flash"])):
        bar = re.search(rf"^  {title} +([\d.,]+) KB.*(?:\n {{20,}}.*)*", screen, re.MULTILINE)
        assert bar is not None
        assert bar[1] == in_kb(part["total_bytes"])
        told = dict(re.findall(r"(arena|stack|weights|tables|code)\b[a-z ]* ([\d.,]+\d)", bar[0]))
        parts = {key.removesuffix("_bytes"): value for key, value in part.items() if key != "total_bytes"}
        assert told == {name: in_kb(value) for name, value in parts.items() if value}

    time = re.search(r"^  time +([\d.,]+) ms (?:± [\d.]+ %|\(not validated\)) +([\d,]+) cycles", screen, re.MULTILINE)
    assert (time is None) == (cost["cycles"] is None)
    if time is not None:
        assert (time[1], time[2]) == (ms_text(cost["ms"]), f"{cost['cycles']:,}")
        assert re.search(rf"^> .* {re.escape(time[1])} ms ", screen, re.MULTILINE) or "how it runs" not in screen


def in_kb(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.1f}"


def assert_time_is_near(cost: Cost, counted: Cost, most_off: float) -> None:
    """What is known of the time of a run, estimated and counted."""
    for name in TIME:
        assert (cost[name] is None) == (counted[name] is None)
    assert cost["error_percent"] == counted["error_percent"]
    for told in (cost, counted):
        assert told["ms"] == pytest.approx(told["cycles"] / told_mhz(told))
    assert cost["cycles"] == pytest.approx(counted["cycles"], rel=most_off)
    if cost["flash_wait_cycles"] is not None:
        assert abs(cost["flash_wait_cycles"] - counted["flash_wait_cycles"]) <= most_off * counted["cycles"]


def told_mhz(cost: Cost) -> float:
    """Thousands of cycles in a millisecond."""
    return 1000 * (chip_named(cost["target"]).mhz or 0)


def assert_page_tells(page: str, cost: Cost) -> None:
    assert f"{cost['macs']:,} multiply-accumulates" in page
    if cost["cycles"] is not None:
        assert f"({cost['cycles']:,} cycles" in page
    flash = page[page.index('<th scope="col">Flash</th>') :]
    told = dict(re.findall(r'<th scope="row">(\w+)</th><td class="number">([\d,]+)', flash[: flash.index("</tbody>")]))
    parts = {name: cost["flash"][f"{name}_bytes"] for name in ("weights", "tables", "code")}
    assert told == {name: f"{size:,}" for name, size in parts.items() if size}


def assert_objects_have(folder: Path, cost: Cost, missing_bytes: int) -> None:
    """The tables of weights, symbol by symbol, and the arena, of what the compiler makes for a core."""
    subprocess.run(["arm-none-eabi-gcc", *FLAGS, "-c", *map(str, folder.glob("*.c"))], cwd=folder, check=True)
    nm = ["arm-none-eabi-nm", "-S", "-td", *map(str, folder.glob("*.o"))]
    listed = subprocess.run(nm, check=True, capture_output=True, text=True, cwd=folder).stdout
    sizes = re.findall(r"^\d+ (\d+) (\w) (\w+)$", listed, re.MULTILINE)
    weights = {name: int(size) for size, kind, name in sizes if kind == "R" and not name.endswith(("puts", "arenas"))}
    assert sum(weights.values()) == cost["flash"]["weights_bytes"]
    arenas = sum(int(size) for size, kind, name in sizes if kind == "b" and "static_" in name)
    assert 0 <= arenas - cost["ram"]["arena_bytes"] < 64  # Each ends on a multiple of its alignment.


def assert_firmware_is_as_told(run: dict[str, Any]) -> None:
    """Sections of the linked ELF, and the stack of a run, beside what was predicted."""
    ram, flash = run["cost"]["ram"], run["cost"]["flash"]
    assert run["arena_bytes"] == ram["arena_bytes"]
    assert run["static_bytes"] == ram["static_bytes"]
    # Padding; and tables of a few bytes whose values the compiler has put into code.
    assert -64 <= run["weights_bytes"] - flash["weights_bytes"] <= 1024
    assert run["stack_bytes"] <= ram["stack_bytes"] <= MOST_STACK * run["stack_bytes"]
    code = flash["code_bytes"] + flash["tables_bytes"]
    least, most = LEAST_CODE, MOST_CODE
    if run["on"] != CORE:
        least, most = LEAST_ELSEWHERE, MOST_ELSEWHERE
    assert least * run["code_bytes"] <= code <= most * run["code_bytes"]
