"""Whole models: every op's overlap, the plan checked against what was traced, and the arena that is really used."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.graph import DType, Graph
from diagmem.planning.plan import Plan
from diagmem.tracing.analysis import run_plan, trace_plan
from diagmem.tracing.model import apart, build_model
from diagmem.transforms import transformed
from tests.backends.c.models import with_weights
from tests.frontends.zoo.families import squeezenet
from tests.tracing.conftest import placed_at, require_cortex_m, require_native


def runnable(name: str) -> Graph:
    return Source(f"zoo:{name}").runnable


@pytest.fixture(scope="module")
def keyword_spotting() -> Plan:
    return pipeline.plan(runnable("kws_dscnn_int8"), schedule="best").plan


@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
def test_keyword_spotting_in_a_minute(on: str, keyword_spotting: Plan, tmp_path: Path) -> None:
    """All ops of the network: traced is exact, the plan loses nothing, and it takes less than 60 s."""
    (require_native if on == "x86" else require_cortex_m)()
    start = time.monotonic()
    found = trace_plan(build_model(apart(keyword_spotting), on, tmp_path), keyword_spotting)
    assert time.monotonic() - start < 60
    assert found.rows
    assert all(row.agrees for row in found.rows)
    assert not found.lost


def test_a_plan_that_loses_a_byte_is_found_out(keyword_spotting: Plan, tmp_path: Path) -> None:
    """Pushing an input one byte further over its output than was traced is seen, by name and address."""
    require_native()
    plan = keyword_spotting
    tight = max(plan.overlaps, key=lambda overlap: overlap.size_bytes)
    shifted = next(i for i, buffer in enumerate(plan.buffers) if tight.output in buffer.tensors)
    offsets = tuple(offset + (i == shifted) for i, offset in enumerate(plan.buffer_offsets))
    bad = placed_at(plan, offsets, plan.arena_bytes + 1)
    found = trace_plan(build_model(apart(bad), "x86", tmp_path), bad)
    pair = next(p for p in found.pairs if (p.op, p.output) == (tight.op, tight.output))
    assert pair.distance < pair.separation
    assert plan.buffers[shifted].name in {name for lost in found.lost for name in (lost.first, lost.second)}


@pytest.mark.deep
def test_traced_peak_is_the_arena(tmp_path: Path) -> None:
    """MobileNet v1 0.25 128: before and after overlap, the highest byte touched is the last one of the arena; after it,
    all that is in use at any moment lies below."""
    require_native()
    graph = runnable("mobilenet_v1_0.25_128_int8")
    before = pipeline.plan(graph, schedule="file", overlap=False).plan
    after = pipeline.plan(graph, schedule="best").plan
    assert before.arena_bytes == 96 * 1024 > after.arena_bytes
    for plan in (before, after):
        run = run_plan(build_model(Program.running(plan), "x86", tmp_path), plan)
        assert run.peak_bytes == plan.arena_bytes
        assert len(run.op_ends) == len(plan.graph.ops)
        assert run.raster.in_use.any(axis=1).all()
        assert run.raster.loaded.any()
        assert run.raster.stored.any()


@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
def test_parts_of_tensors(on: str, tmp_path: Path) -> None:
    """SqueezeNet without its concatenations: what is traced of kernels that write and read parts is exact too."""
    (require_native if on == "x86" else require_cortex_m)()
    graph = with_weights(squeezenet("squeezenet", width=0.25, resolution=48, dtype=DType.INT8, classes=10))
    plan = pipeline.plan(transformed(graph, ["remove-concat"])[0], schedule="best", skip="all").plan
    found = trace_plan(build_model(apart(plan), on, tmp_path), plan)
    spread = [row for row in found.rows if not plan.graph.tensors[row.output].is_in_one_piece]
    assert len(spread) == 16
    assert all(row.agrees for row in found.rows)
    assert not found.lost
