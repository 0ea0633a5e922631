"""How often kernels read their weights: what calls say, against loads of the compiled kernels, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import diagmem
from diagmem.model.graph import DType
from diagmem.planning.plan import Plan
from diagmem.tracing.model import apart, build_model
from diagmem.tracing.recording import Kind, TouchedBytes, observe
from tests.backends.c.models import tiny
from tests.tracing.conftest import require_cortex_m


def loaded_bytes(plan: Plan, on: str, place: Path) -> dict[int, int]:
    """Op -> the bytes that a run loads of the copy of its weights."""
    program = apart(plan)
    model = build_model(program, on, place)
    count = np.zeros(program.arena_bytes, dtype=np.int64)

    def take(touches: TouchedBytes) -> None:
        is_load = touches.events["kind"][touches.event] == Kind.LOAD
        np.add.at(count, touches.byte[is_load], 1)

    observe(model.executable, model.contents(1), take)
    sizes = {op: weights.size_bytes for op, weights in program.copied_weights.items()}
    return {op: int(count[at : at + sizes[op]].sum()) for op, at in program.weight_copies.items()}


@pytest.mark.parametrize(
    ("dtype", "kernels", "on", "schedule"),
    [
        (DType.INT8, "diagmem", "cortex-m0", "best"),
        (DType.INT8, "diagmem", "cortex-m0", "rows"),
        (DType.INT8, "diagmem-dsp", "cortex-m4", "best"),
        (DType.INT8, "diagmem-dsp", "cortex-m4", "rows"),
        (DType.FLOAT32, "diagmem", "cortex-m4", "best"),
    ],
)
def test_as_many_bytes_as_are_counted(dtype: DType, kernels: str, on: str, schedule: str, tmp_path: Path) -> None:
    """Convolutions of all kinds, whole and by rows, two pixels at a time or one: weights, biases and scales."""
    require_cortex_m()
    options = {"pools": ("ram:64K",), "weights_pool": "ram:50", "kernels": kernels, "schedule": schedule}
    plan = diagmem.plan(tiny(dtype), **options).plan
    assert plan.weights is not None
    assert len(plan.weight_copies) == 3
    counted = {weights.op: weights.read_bytes for weights in plan.weights.ops if weights.op in plan.weight_copies}
    assert loaded_bytes(plan, on, tmp_path) == counted
