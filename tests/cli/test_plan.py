"""`diagmem plan`: the answers that people ask for, and the exit status that scripts ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from diagmem.frontends import tflite
from tests.cli.calling import call
from tests.state_files import to_tflite
from tests.streams import stream

MODEL = "zoo:mobilenet_v1_0.25_128_int8"


def test_json_has_the_keys_that_others_rely_on() -> None:
    found = json.loads(call("plan", "zoo:kws_dscnn_int8", "--json", "-").stdout)
    assert {
        *("model", "kernels", "arena_bytes", "baseline_bytes", "lower_bound_bytes", "optimal", "peak_op"),
        *("schedule", "tensors", "overlaps"),
    } <= set(found)
    assert {"name", "index", "offset", "bytes", "first_step", "last_step"} <= set(found["tensors"][0])
    assert {"op", "input", "output", "bytes"} <= set(found["overlaps"][0])


def test_json_is_the_same_every_time() -> None:
    arguments = ("plan", "zoo:resnet8_int8", "--json", "-")
    assert call(*arguments).stdout == call(*arguments).stdout


def test_the_paper_s_example_fits_its_chip_only_with_overlap() -> None:
    """MobileNet v1 0.25 128 in 8 bits: 96 KB without overlap, 64 KB with it, on a chip with 96 KB of SRAM."""
    before = call("plan", MODEL, "--schedule", "best", "--no-overlap", "--target", "STM32F103xF")
    after = call("plan", MODEL, "--schedule", "best", "--target", "stm32f103xf")
    assert (before.returncode, after.returncode) == (1, 0)
    assert "short by" in before.stdout
    assert "fits" in after.stdout
    assert "98,304 B" in after.stdout
    assert "64.8 KB of 96 KB" in after.stdout
    assert "arena 64.0, stack up to 0.8" in after.stdout


@pytest.mark.parametrize(("budget", "status"), [("98304", 0), ("1000", 1)])
def test_budget(budget: str, status: int) -> None:
    done = call("plan", MODEL, "--budget", budget, "--json", "-")
    assert done.returncode == status
    assert json.loads(done.stdout)["fits"] is (status == 0)


def test_several_models_at_once(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    done = call(
        "plan", "zoo:kws_dscnn_int8", "zoo:resnet8_int8", "--schedule", "best", "--jobs", "2", "--json", str(path)
    )
    assert done.returncode == 0
    assert [plan["model"] for plan in json.loads(path.read_text())["plans"]] == ["kws_dscnn_int8", "resnet8_int8"]
    assert "proven" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kernels", "nonsense"), "nonsense"),
        (("--align", "3"), "power of two"),
        (("--target", "STM32F103"), "did you mean"),
        (("--schedule", "nonsense"), "nonsense"),
        (("--schedule", "best", "--input-rows"), "need schedule 'rows'"),
    ],
)
def test_bad_options_are_one_line_and_status_2(arguments: tuple[str, ...], says: str) -> None:
    done = call("plan", MODEL, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_in_the_file_is_shown_and_judged(tmp_path: Path) -> None:
    """A plan for the reference kernels is safe for them, and is found unsafe for CMSIS-NN: exit status 1."""
    path = tmp_path / "planned.tflite"
    assert call("emit", "tflm", "zoo:kws_dscnn_int8", "-o", str(path), "--kernels", "tflm-reference").returncode == 0
    safe = call("plan", str(path), "--json", "-")
    assert safe.returncode == 0
    assert json.loads(safe.stdout)["embedded"]["safe"] is True
    unsafe = call("plan", str(path), "--kernels", "cmsis-nn")
    assert unsafe.returncode == 1
    assert "NOT SAFE" in unsafe.stdout


def test_a_real_file_for_tflm(shared: Path) -> None:
    for name, arena in {
        "vww_96_int8": 36880,
        "kws_ref_model": 9792,
        "pretrainedResnet_quant": 33312,
        "ad01_int8": 768,
    }.items():
        path = shared / "models" / "mlperf_tiny" / f"{name}.tflite"
        found = json.loads(
            call("plan", str(path), "--kernels", "tflm-reference", "--align", "16", "--json", "-").stdout
        )
        assert (found["arena_bytes"], found["optimal"]) == (arena, True)


def test_state_has_a_line_of_its_own(tmp_path: Path) -> None:
    """How much of the arena survives between runs; or, with a runtime that holds it itself, outside the arena."""
    path = tmp_path / "net.tflite"
    path.write_bytes(to_tflite(stream(3)))
    state_bytes = sum(t.size_bytes for t in tflite.parse(path.read_bytes(), "net").variables)
    assert re.search(
        rf"^ *state +{state_bytes} B.*of the arena survives between runs$", call("plan", str(path)).stdout, re.M
    )
    assert json.loads(call("plan", str(path), "--json", "-").stdout)["state_bytes"] == state_bytes
    beside = call("plan", str(path), "--kernels", "tflm").stdout
    assert re.search(rf"^ *state +{state_bytes} B.*outside the arena, held by the runtime$", beside, re.M)
    assert " state " not in call("plan", "zoo:kws_dscnn_int8").stdout
