"""Row by row on the command line: plans, what less memory costs, code, and verification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagmem.targets import chip_named
from tests.backends.c.models import compiler
from tests.cli.calling import call

MODEL = "zoo:vww_96_int8"
ROWS = ("--schedule", "rows", "--allocator", "greedy")


def test_plan_tells_how_rows_lie() -> None:
    done = call("plan", MODEL, *ROWS, "--json", "-")
    found = json.loads(done.stdout)
    assert len(found["rows"]) == len(found["schedule"])
    assert (found["input_rows"], found["recompute"]) == (False, 1.0)
    assert set(found["storage"].values()) <= {"linear", "ring", "table"}
    assert [rung["step"] for rung in found["ladder"]][-1] == "rows"


def test_plan_with_streamed_input_is_told_in_words() -> None:
    done = call("plan", MODEL, *ROWS, "--input-rows", "--verbose")
    assert done.returncode == 0
    for words in ("+ overlap", "+ streamed input", "nothing recomputed", "pushes the input row by row"):
        assert words in done.stdout
    assert "+ rows" not in done.stdout


def test_the_curve_of_memory_and_work() -> None:
    done = call("plan", MODEL, "--pareto", "--recompute", "1.1", "--allocator", "greedy", "--json", "-")
    found = json.loads(done.stdout)
    assert [point["how"] for point in found["pareto"]][:2] == ["layer by layer", "row by row"]
    assert found["pareto"][0]["arena_bytes"] > found["pareto"][1]["arena_bytes"]
    assert all(1 <= point["recompute"] <= 1.1 for point in found["pareto"])
    assert "x MACs  row by row" in call("plan", MODEL, "--pareto", "--recompute", "1.1", "--allocator", "greedy").stdout


CURVE = ("plan", "zoo:kws_dscnn_int8", "--pareto", "--recompute", "1.1", "--allocator", "greedy")


@pytest.mark.parametrize(("budget", "status"), [("1000", 1), ("5000", 0), ("20000", 0)])
def test_the_curve_says_what_fits(budget: str, status: int) -> None:
    """Each point is judged; the answer is no if none fits."""
    done = call(*CURVE, "--budget", budget, "--json", "-")
    found = json.loads(done.stdout)
    fitting = [point["arena_bytes"] <= int(budget) for point in found["pareto"]]
    assert (done.returncode, found["limit_bytes"]) == (status, int(budget))
    assert [point["fits"] for point in found["pareto"]] == fitting
    assert any(fitting) == (status == 0)
    told = call(*CURVE, "--budget", budget)
    assert told.returncode == status
    assert [("fits" in line, "too large" in line) for line in told.stdout.splitlines()] == [
        (fits, not fits) for fits in fitting
    ]


def test_the_curve_is_measured_by_a_chip() -> None:
    """What a target leaves to the arena is a limit too, and the least one counts."""
    limit = chip_named("STM32F103xF").arena_limit_bytes
    for more, least in ((), limit), (("--budget", "5000"), 5000), (("--budget", "999999"), limit):
        done = call(*CURVE, "--target", "STM32F103xF", *more, "--json", "-")
        assert (done.returncode, json.loads(done.stdout)["limit_bytes"]) == (0, least)


def test_without_a_limit_nothing_is_judged() -> None:
    found = json.loads(call(*CURVE, "--json", "-").stdout)
    assert "limit_bytes" not in found
    assert not any("fits" in point for point in found["pareto"])


def test_the_curve_of_what_is_kept_apart() -> None:
    """`--no-overlap` holds for each point."""
    with_overlap, apart = (
        [point["arena_bytes"] for point in json.loads(call(*CURVE, *more, "--json", "-").stdout)["pareto"]]
        for more in ((), ("--no-overlap",))
    )
    layer_by_layer = json.loads(
        call("plan", "zoo:kws_dscnn_int8", "--no-overlap", "--schedule", "best", "--json", "-").stdout
    )
    assert apart[0] == layer_by_layer["arena_bytes"] > with_overlap[0]
    assert apart[-1] > with_overlap[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*CURVE, "--svg", "curve.svg"), "--pareto lists several plans, and --svg draws one"),
        (("plan", MODEL, "--schedule", "best", "--recompute", "2"), "need schedule 'rows'"),
        (("plan", MODEL, "--pareto", "--kernels", "tflm-reference"), "running row by row needs diagmem's own kernels"),
        (("plan", MODEL, MODEL, "--pareto"), "--pareto lists plans of one MODEL"),
        (("verify", MODEL, "--on", "tflm", "--schedule", "rows"), "apply to C code"),
        (("verify", MODEL, "--plan", "plan.json", "--input-rows"), "--plan already contains its options"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_emit_and_verify(tmp_path: Path) -> None:
    """Code for a streamed input, and a plan from a file, run bit for bit like the layers."""
    compiler("gcc")
    model, plan = "zoo:kws_dscnn_int8", tmp_path / "plan.json"
    made = call("emit", "c", model, *ROWS, "--input-rows", "-o", str(tmp_path / "kws"), "--name", "kws", "--json", "-")
    assert "int kws_push_row(const void *row);" in (tmp_path / "kws" / "kws.h").read_text()
    call("plan", model, *ROWS, "--input-rows", "--json", str(plan))
    done = json.loads(call("verify", model, "--plan", str(plan), "--inputs", "2", "--json", "-").stdout)
    assert done["ok"]
    assert done["runs"][0]["arena_bytes"] == json.loads(made.stdout)["arena_bytes"]
