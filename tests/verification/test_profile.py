"""Instructions of each op: counted exactly, and none of them twice."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.model.errors import DiagmemError
from tests.backends.c.models import tiny
from tests.backends.c.test_steps import tall

pytestmark = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs an emulated core"
)

FEW = 64
"""Instructions of a run that belong to no op: those of the call and of the return."""


@pytest.mark.parametrize("by_rows", [False, True], ids=["whole", "rows"])
def test_marks_change_nothing(by_rows: bool) -> None:
    """The ops make up the run, up to the call and the return, and a run without marks takes as many instructions."""
    options: dict[str, Any] = {"schedule": "rows", "input_rows": True} if by_rows else {"schedule": "best"}
    found = pipeline.profile(tall(), on="cortex-m4", **options)
    assert 0 <= found.instructions - sum(op.instructions for op in found.ops) <= FEW
    (verdict,) = pipeline.verify(tall(), on=["cortex-m4"], inputs=6, **options)
    unmarked = verdict.to_json()["instructions"]
    assert abs(unmarked - found.instructions) < 0.01 * unmarked


def test_bytes_are_those_of_the_arena() -> None:
    """Layer by layer, every op writes each element of its output once; an addition reads both inputs once; the weights
    are not counted. The kernels are those for any core: others keep scratch in the arena, too."""
    found = {op.node.op.kind: op for op in pipeline.profile(tiny(), on="cortex-m4", cpu="generic", schedule="best").ops}
    for op in found.values():
        assert op.written_bytes == sum(t.size_bytes for t in op.node.outputs) or op.node.op.kind == "SOFTMAX"
    assert found["ADD"].read_bytes == sum(t.size_bytes for _, t in found["ADD"].node.activations())


def test_what_the_json_holds() -> None:
    found = pipeline.profile(tiny(), on="cortex-m3", mhz=100)
    told = found.to_json()
    assert told["mhz"] == 100
    assert told["peak_op"] in [op["index"] for op in told["ops"]]
    assert all({"index", "kind", "instructions", "macs"} <= set(op) for op in told["ops"])
    assert abs(sum(op["share"] for op in told["ops"]) - 1) < 0.02


def test_a_core_that_is_not_known() -> None:
    with pytest.raises(DiagmemError, match="cortex-m4"):
        pipeline.profile(tiny(), on="pdp-11")


@pytest.mark.parametrize("options", [{"schedule": "best"}, {"schedule": "rows"}], ids=["whole", "rows"])
def test_a_plan_that_was_written_is_profiled_alike(options: dict[str, Any]) -> None:
    """Read from JSON, it costs the same, op by op, and needs the same bytes."""
    made = pipeline.plan(tall(), **options)
    read = pipeline.profile(tall(), on="cortex-m4", plan=made.to_json())
    planned = pipeline.profile(tall(), on="cortex-m4", cpu="generic", **options)
    assert read.instructions == planned.instructions
    assert [op.live_bytes for op in read.ops] == [op.live_bytes for op in planned.ops]
