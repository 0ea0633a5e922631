"""Plans that run row by row, traced: the separation of every row, the arena that is used, values that are lost."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.schedule import PUSH
from diagmem.planning.plan import Plan
from diagmem.tracing.analysis import ModelTrace, TracedWindows, run_plan, trace_plan
from diagmem.tracing.model import apart, build_model
from tests.row_networks import image_net
from tests.tracing.conftest import placed_at, require_cortex_m, require_native


@pytest.fixture(scope="module", params=[False, True], ids=["input in the arena", "input streamed"])
def keyword_spotting(request: pytest.FixtureRequest) -> Plan:
    return pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, schedule="rows", input_rows=request.param).plan


def traced(plan: Plan, place: Path, on: str = "x86") -> ModelTrace:
    return trace_plan(build_model(apart(plan), on, place), plan)


@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
def test_every_row_as_the_closed_form_says(on: str, keyword_spotting: Plan, tmp_path: Path) -> None:
    """Each turn of each op is traced; separations are exact, the plan keeps them, and its arena is what is used."""
    (require_native if on == "x86" else require_cortex_m)()
    plan = keyword_spotting
    found = traced(plan, tmp_path, on)
    steps = [step for step in plan.schedule.steps if step.op != PUSH and step.turn is not None]
    assert sum(turns.turns for turns in found.turns) == len(steps)
    assert sum(turns.pairs for turns in found.turns) > len(steps)
    assert not sum(turns.differing for turns in found.turns)
    assert all(row.agrees for row in found.rows)
    assert {pair.turn is None for pair in found.pairs} == {False, True}
    assert all(pair.distance >= pair.separation for pair in found.pairs)
    assert not found.lost
    run = run_plan(build_model(Program.running(plan), on, tmp_path), plan)
    assert run.peak_bytes == plan.arena_bytes


def test_a_row_too_far_is_found_out(keyword_spotting: Plan, tmp_path: Path) -> None:
    """A row moved by one byte over the one that it is made of, as far as was traced, destroys it."""
    require_native()
    plan = keyword_spotting
    pairs = [pair for pair in traced(plan, tmp_path).pairs if pair.turn is not None]
    tight = min(pairs, key=lambda pair: pair.distance - pair.separation)
    shifted = next(
        i for i, b in enumerate(plan.buffers) if tight.output in b.tensors and b.rows and tight.turn == b.rows.start
    )
    too_far = 1 + tight.distance - tight.separation
    offsets = tuple(offset + too_far * (i == shifted) for i, offset in enumerate(plan.buffer_offsets))
    found = traced(placed_at(plan, offsets, plan.arena_bytes + too_far), tmp_path)
    pair = next(p for p in found.pairs if (p.op, p.turn, p.row) == (tight.op, tight.turn, tight.row))
    assert pair.distance == pair.separation - 1
    assert plan.buffers[shifted].name in {name for lost in found.lost for name in (lost.first, lost.second)}


@pytest.mark.parametrize("moved", ["rows", "sums", "state"])
def test_what_lies_on_something_in_use_is_found_out(moved: str, tmp_path: Path) -> None:
    """A row, sums or the state of a run put where something else is held: both are named."""
    require_native()
    plan = pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, schedule="rows", input_rows=True).plan
    wanted = {
        "rows": [i for i, b in enumerate(plan.buffers) if b.rows is not None],
        "sums": [i for i, b in enumerate(plan.buffers) if b.scratch_of not in (None, PUSH)],
        "state": [i for i, b in enumerate(plan.buffers) if b.scratch_of == PUSH],
    }[moved]
    first, other = next(
        (i, j)
        for i, j in itertools.product(wanted, range(len(plan.buffers)))
        if i != j and plan.buffers[j].rows is not None and steps_together(plan, i, j) > 2
    )
    buffer = plan.buffers[first]
    offsets = tuple(plan.buffer_offsets[other] if i == first else o for i, o in enumerate(plan.buffer_offsets))
    found = traced(placed_at(plan, offsets, plan.arena_bytes + buffer.size_bytes), tmp_path)
    assert {buffer.name, plan.buffers[other].name} in [{lost.first, lost.second} for lost in found.lost]


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        pytest.param(0, {}, marks=pytest.mark.deep),
        pytest.param(4, {"input_rows": True}, marks=pytest.mark.deep),
        (5, {"input_rows": True, "recompute": 3.0}),
        *(pytest.param(seed, {}, marks=pytest.mark.deep) for seed in (3, 9)),
        *(pytest.param(seed, {"input_rows": True}, marks=pytest.mark.deep) for seed in (8, 11)),
    ],
)
def test_networks_at_random(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """Strides, pads, dilations, residuals, pools and rows that are recomputed."""
    require_native()
    plan = pipeline.plan(image_net(seed), schedule="rows", **options).plan
    assert plan.runs_by_rows
    assert (plan.recompute > 1) == ("recompute" in options)
    found = traced(plan, tmp_path)
    assert found.turns
    assert not sum(turns.differing for turns in found.turns)
    assert not found.lost
    run = run_plan(build_model(Program.running(plan), "x86", tmp_path), plan)
    assert plan.arena_bytes - plan.options.align_bytes - 3 <= run.peak_bytes <= plan.arena_bytes


def steps_together(plan: Plan, first: int, second: int) -> int:
    a, b = plan.buffers[first], plan.buffers[second]
    return min(a.end_step, b.end_step) - max(a.first_step, b.first_step)


@pytest.mark.deep
def test_rows_that_are_recomputed_live_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its lives a row's place is free; held from the first to the last, it would be in the way."""
    require_native()
    plan = pipeline.plan(image_net(5), schedule="rows", input_rows=True, recompute=3.0).plan
    assert not traced(plan, tmp_path).lost
    monkeypatch.setattr(TracedWindows, "end_lives", lambda *_: None)
    assert traced(plan, tmp_path).lost
