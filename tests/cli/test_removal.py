"""What removes ops, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagmem.cli.ui import switches
from diagmem.transforms import TRANSFORMS
from tests.cli.calling import call

MODEL = "zoo:squeezenet_1.1_int8"


def test_every_transform_can_be_switched_off() -> None:
    """The page knows them all by their meaning, and the command line names them where one is mistyped."""
    assert list(switches.TRANSFORMS) == list(TRANSFORMS)
    done = call("plan", MODEL, "--skip", "remove-concats")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"known: all, {', '.join(TRANSFORMS)}\n")


def test_plan_shows_what_each_step_is_worth() -> None:
    """The ladder, in bytes and percent, and what was removed."""
    done = call("plan", MODEL, "--schedule", "best", "--verbose")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ladder       whole tensors, file order     982,144 B" in done.stdout
    assert "+ overlap                     790,564 B   -19.5 %" in done.stdout
    assert "removed      8 ops by remove-concat" in done.stdout


def test_json_holds_the_ladder_and_what_was_removed() -> None:
    done = call("plan", MODEL, "--schedule", "best", "--json", "-")
    found = json.loads(done.stdout)
    assert [rung["step"] for rung in found["ladder"]] == ["whole tensors", "best order", "overlap", "removal"]
    assert found["ladder"][0] == {"step": "whole tensors", "arena_bytes": found["baseline_bytes"], "saved_percent": 0.0}
    assert found["ladder"][-1]["arena_bytes"] == found["arena_bytes"]
    gone = [op for row in found["removed"] for op in row["ops"]]
    assert sorted([*gone, *found["schedule"]]) == list(range(40))
    views = [tensor for tensor in found["tensors"] if "view" in tensor]
    assert len(views) == 17
    assert all(tensor["view"].keys() == {"base", "offset_elems", "strides"} for tensor in views)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (
            ("--skip", "remove-concat"),
            39,
        ),
        (("--skip", "remove-concat", "--skip", "drop-no-ops"), 40),
        (("--skip", "remove-concat,drop-no-ops"), 40),
        (
            ("--skip", "all"),
            40,
        ),
        (("--kernels", "tflm-reference"), 40),
        (("--kernels", "tflm-reference", "--skip", "fold-pad"), 40),
    ],
)
def test_ops_stay_that_are_asked_to(options: tuple[str, ...], left: int) -> None:
    done = call("plan", MODEL, "--schedule", "best", "--json", "-", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["schedule"]) == left


def test_emit_keeps_ops_too(tmp_path: Path) -> None:
    """The same options as for `plan`: the reshape is an operation again."""
    for option, is_there in (
        ((), False),
        (
            ("--skip", "drop-no-ops"),
            True,
        ),
    ):
        words = ("zoo:kws_dscnn_int8", "-o", str(tmp_path), "--name", "kws", "--schedule", "best", *option)
        assert call("emit", "c", *words).returncode == 0
        assert ("(RESHAPE)" in (tmp_path / "kws.c").read_text()) == is_there
