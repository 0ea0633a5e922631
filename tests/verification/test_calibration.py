"""What a board has measured, beside what was predicted, and what later estimates make of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.model.errors import PlanError
from diagmem.planning.options import Options
from tests.backends.c.models import compiler
from tests.cli.calling import call
from tests.verification.test_selftest import built, sealed

MODELS = ("zoo:kws_dscnn_int8", "zoo:autoencoder_int8")
TARGET = "NUCLEO-L4R5ZI"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """As a board would say it whose ops take so many cycles: those predicted times 1.5, and some more or less."""
    found = {}
    for model in MODELS:
        place = tmp_path_factory.mktemp("board")
        compiler("arm-none-eabi-gcc")
        compiler("qemu-system-arm")
        log = built(diagmem.emit_c(model, name="net", selftest=1, target=TARGET).files, place)
        (place / "log").write_text(sealed(re.sub(r"0( ok)$", r"1\1", log, flags=re.MULTILINE)))
        plain = call("verify", model, "--target", TARGET, "--board", str(place / "log"), "--json", "-")
        predicted = {op["index"]: op["predicted_cycles"] for op in json.loads(plain.stdout)["ops"]}
        rng = np.random.default_rng(0)
        cycles = {op: round((wanted or 0) * rng.uniform(1.4, 1.6)) for op, wanted in predicted.items()}

        def told(line: re.Match[str], cycles: dict[int, int] = cycles) -> str:
            return f"{line[1]}{cycles[int(line[2])]}{line[3]}"

        found[model] = sealed(re.sub(r"^(op \d+ (\d+) \S+ )\d+( ok)$", told, log, flags=re.MULTILINE))
    return found


def calibrated(model: str, log: str, place: Path, *more: str) -> Any:
    """What `verify --board` says, and writes."""
    (place / "log").write_text(log)
    asked = ["--target", TARGET, "--board", str(place / "log"), "--calibration", str(place / "cal.json"), *more]
    return call("verify", model, *asked)


@pytest.mark.deep
def test_measured_beside_predicted(logs: dict[str, str], tmp_path: Path) -> None:
    """Factor and error as they are worked out here; estimates take both."""
    done = calibrated(MODELS[0], logs[MODELS[0]], tmp_path, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    both = [(op["cycles"], op["predicted_cycles"]) for op in found["ops"] if op["cycles"] and op["predicted_cycles"]]
    assert len(both) > 8
    measured, predicted = (np.array(column, float) for column in zip(*both, strict=True))
    factor = measured.sum() / predicted.sum()
    percent = 100 * np.abs(measured - factor * predicted).sum() / measured.sum()
    assert 0.5 < percent < 10
    kept = json.loads((tmp_path / "cal.json").read_text())
    assert kept["factor"] == pytest.approx(factor, abs=1e-4)
    assert kept["error_percent"] == pytest.approx(percent, abs=0.06)
    assert (kept["chip"], kept["core"], kept["mhz"]) == ("STM32L4R5ZI", "cortex-m4f", 120)
    before = diagmem.profile(MODELS[0], target=TARGET).cost
    after = diagmem.profile(MODELS[0], target=TARGET, calibration=str(tmp_path / "cal.json")).cost
    assert before.cycles is not None
    assert before.ms is not None
    assert after.cycles == pytest.approx(before.cycles * kept["factor"], abs=1)
    assert after.ms == pytest.approx(before.ms * kept["factor"])
    assert after.error_percent == kept["error_percent"]
    shown = call("profile", MODELS[0], "--target", TARGET, "--calibration", str(tmp_path / "cal.json"), "--json", "-")
    assert json.loads(shown.stdout)["cost"]["cycles"] == after.cycles


def test_it_is_for_one_chip(logs: dict[str, str], tmp_path: Path) -> None:
    """Another one, or none, is refused in one line; the table shows both cycles."""
    done = calibrated(MODELS[1], logs[MODELS[1]], tmp_path)
    assert re.search(r"cycles [\d,]+, predicted [\d,]+ \(\+\d\d\.\d %\)", done.stdout)
    for target, why in (("STM32F401RE", "is for STM32L4R5ZI, and the target is STM32F401RE"), ("", "name it as the")):
        options = ["--calibration", str(tmp_path / "cal.json"), *(["--target", target] if target else [])]
        done = call("plan", MODELS[0], *options)
        assert (done.returncode, done.stderr.count("\n"), why in done.stderr) == (2, 1, True), done.stderr


@pytest.mark.deep
def test_what_cannot_be_calibrated(logs: dict[str, str], tmp_path: Path) -> None:
    """A wrong output is no measurement and nothing is written; nor is a counter that stands still, or another chip."""
    log = logs[MODELS[0]]
    wrong = sealed(re.sub(r"^(op 0 3 )\S{8}", r"\g<1>00000000", log, flags=re.MULTILINE))
    assert calibrated(MODELS[0], wrong, tmp_path).returncode == 1
    still = sealed(re.sub(r"^(op 0 \d+ \S{8}) \d+", r"\1 0", log, flags=re.MULTILINE))
    done = calibrated(MODELS[0], still, tmp_path)
    assert (done.returncode, "counted no cycles" in done.stderr) == (2, True)
    assert not (tmp_path / "cal.json").exists()
    done = call("verify", MODELS[0], "--calibration", str(tmp_path / "cal.json"))
    assert (done.returncode, "--board" in done.stderr) == (2, True)


GOOD = {"chip": "STM32L4R5ZI", "factor": 0.8333, "error_percent": 0.0}


@pytest.mark.parametrize(
    "change",
    [
        {"factor": None},
        {"factor": "1.0"},
        {"factor": -1},
        {"factor": 1e30},
        {"factor": float("nan")},
        {"error_percent": float("inf")},
        {"error_percent": []},
        {"chip": 7},
        {"chip": "a:b"},
        {"chip": "../x"},
    ],
    ids=str,
)
def test_files_that_are_no_calibration(change: dict[str, Any], tmp_path: Path) -> None:
    """One line, whatever they hold; what `verify` wrote is read."""
    path = tmp_path / "cal.json"
    path.write_text(json.dumps(GOOD))
    assert Options(target=TARGET, calibration=str(path)).calibration == "STM32L4R5ZI:0.8333:0.0"
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(PlanError, match=r"no calibration|the calibration is for 7"):
        Options(target=TARGET, calibration=str(path))
    for text in ("", "[]", "{", "[" * 100_000, "null"):
        path.write_text(text)
        with pytest.raises(PlanError, match="it is no calibration"):
            Options(target=TARGET, calibration=str(path))
