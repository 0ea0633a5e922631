"""One truth: all commands, pages and JSON tell the same numbers of a plan, and the linked firmware has them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.frontends.source import Source
from diagmem.planning.options import Options
from tests.backends.c.models import compiler
from tests.cli.calling import call

MODELS = (
    *("zoo:autoencoder_int8", "zoo:resnet8_int8"),
    *(f"mlperf_tiny/{name}.tflite" for name in ("ad01_int8", "kws_ref_model", "vww_96_int8")),
    *(f"wild/{name}.tflite" for name in ("wake_word_hey_jarvis", "mnist_lstm_int8", "audio_preprocessor_int8")),
    *(f"wild/onnx/{name}.onnx" for name in ("micro_kws_float", "resnet8_qdq")),
)

WAYS: dict[str, dict[str, Any]] = {
    "whole": {"schedule": "best"},
    "rows": {"schedule": "rows"},
    "streamed": {"input_rows": True},
    "dsp": {"kernels": "diagmem-dsp"},
    "pools": {"pools": ("fast:64K", "slow:1M:3")},
    "nothing removed": {"skip": ("all",)},
    "external": {"external_io": True},
}

CORE = "cortex-m4"
LEAST_CODE, MOST_CODE, MOST_STACK = 0.75, 1.7, 4.0
"""Times what was measured: an estimate of code is not further from it, and a bound on the stack not further above."""


class Told:
    """What each command says of one plan."""

    def __init__(self, model: str, options: Options, place: Path) -> None:
        self.model, self.place, self.plan = model, place, str(place / "plan.json")
        self.made = pipeline.planned(Source(model), options, is_measured=True)
        Path(self.plan).write_text(json.dumps(self.made.to_json()))

    def by(self, command: str, *more: str) -> dict[str, Any]:
        """The JSON of a command that is given this plan."""
        done = call(*command.split(), self.model, "--plan", self.plan, *more, "--json", "-")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def difference(self) -> dict[str, Any]:
        """Of the plan and itself."""
        found: dict[str, Any] = json.loads(call("diff", self.plan, self.plan, "--json", "-").stdout)
        return found


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, shared: Path) -> str:
    name = str(request.param)
    return name if name.startswith("zoo:") else str(shared / "models" / name)


@pytest.mark.parametrize("way", WAYS)
def test_all_tell_the_same(model: str, way: str, tmp_path: Path) -> None:
    """The API, the report with its page, emit, verify, profile and diff; to the byte."""
    compiler("arm-none-eabi-gcc")
    if way == "streamed" and Source(model).graph.variables:
        pytest.skip("a model with state runs whole")
    told = Told(model, Options(**WAYS[way]), tmp_path)
    made, cost = told.made, told.made.to_json()["cost"]
    files = pipeline.report_of(made)
    assert json.loads(files["plan.json"])["cost"] == cost
    assert_page_tells(files["report.html"].decode(), cost)
    layers = made.costs.layers()
    assert sum(layer.macs for layer in layers) == cost["macs"]
    found = told.difference()
    assert found["cost"] == {"before": cost, "after": cost}
    assert found["ops"] == []
    if way == "external":  # There is no C of it.
        return
    assert sum(layer.weights_bytes or 0 for layer in layers) == cost["flash"]["weights_bytes"]
    assert told.by("emit c", "-o", str(tmp_path / "c"), "--name", "model")["cost"] == cost
    assert_objects_have(tmp_path / "c", cost, told.made.plan.pools.missing_bytes)
    (run,) = told.by("verify", "--on", CORE, "--inputs", "1")["runs"]
    assert run["ok"]
    assert_firmware_is_as_told(run)
    profile = told.by("profile", "--on", CORE)
    assert profile["cost"] == {**run["cost"], "instructions": profile["instructions"]}
    for part in ("ram", "flash"):
        known = {key: value for key, value in cost[part].items() if value is not None and key != "total_bytes"}
        assert known.items() <= run["cost"][part].items()
    assert run["cost"]["macs"] == cost["macs"] == sum(op["macs"] for op in profile["ops"])


def assert_page_tells(page: str, cost: dict[str, Any]) -> None:
    assert f"{cost['macs']:,} multiply-accumulates" in page
    flash = page[page.index('<th scope="col">Flash</th>') :]
    told = dict(re.findall(r'<th scope="row">(\w+)</th><td class="number">([\d,]+)', flash[: flash.index("</tbody>")]))
    parts = {name: cost["flash"][f"{name}_bytes"] for name in ("weights", "tables", "code")}
    assert told == {name: f"{size:,}" for name, size in parts.items() if size}


def assert_objects_have(folder: Path, cost: dict[str, Any], missing_bytes: int) -> None:
    """The tables of weights, symbol by symbol, and the arena, of what the compiler makes for a core."""
    gcc = compiler("arm-none-eabi-gcc")
    subprocess.run(
        [gcc, "-mthumb", "-mcpu=cortex-m4", "-std=c99", "-c", *map(str, folder.glob("*.c"))], cwd=folder, check=True
    )
    nm = ["arm-none-eabi-nm", "-S", "-td", *map(str, folder.glob("*.o"))]
    listed = subprocess.run(nm, check=True, capture_output=True, text=True, cwd=folder).stdout
    sizes = re.findall(r"^\d+ (\d+) (\w) (\w+)$", listed, re.MULTILINE)
    weights = {name: int(size) for size, kind, name in sizes if kind == "R" and not name.endswith(("puts", "arenas"))}
    assert sum(weights.values()) == cost["flash"]["weights_bytes"]
    arenas = sum(int(size) for size, kind, name in sizes if kind == "b" and name.startswith("static_"))
    assert 0 <= arenas - cost["ram"]["arena_bytes"] < 64  # Each ends on a multiple of its alignment.


def assert_firmware_is_as_told(run: dict[str, Any]) -> None:
    """Sections of the linked ELF, and the stack of a run, beside what was foretold."""
    ram, flash = run["cost"]["ram"], run["cost"]["flash"]
    assert run["arena_bytes"] == ram["arena_bytes"]
    assert run["static_bytes"] == ram["static_bytes"]
    # Padding; and tables of a few bytes whose values the compiler has put into code.
    assert -64 <= run["weights_bytes"] - flash["weights_bytes"] <= 1024
    assert run["stack_bytes"] <= ram["stack_bytes"] <= MOST_STACK * run["stack_bytes"]
    code = flash["code_bytes"] + flash["tables_bytes"]
    assert LEAST_CODE * run["code_bytes"] <= code <= MOST_CODE * run["code_bytes"]
