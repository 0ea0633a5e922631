"""Several cores where a chip has several memories, or where somebody else says what lies where."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.backends.json import from_json, to_json
from diagmem.frontends.source import Source
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import How
from diagmem.planning.plan import findings_of
from diagmem.planning.planner import Planned
from diagmem.verification.host import run_on_threads
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler
from tests.networks import Net
from tests.row_networks import with_values

POOLS = ("dtcm:6K", "axi:64K:3")

GIVEN: list[dict[str, Any]] = [
    {"pools": POOLS},
    {"pools": ("dtcm:1K", "axi:64K:3"), "schedule": "rows", "input_rows": True},
    {"buffers": {"input": "external"}},
    {"buffers": {"input": "@16"}},
    {"keep_inputs": True},
]


@cache
def planned(case: int, cores: int) -> Planned:
    options = GIVEN[case]
    model = small() if "schedule" in options else Source("zoo:kws_dscnn_int8").runnable
    return pipeline.plan(model, cores=cores, **{"schedule": "best", **options})


def small() -> Graph:
    """A few layers whose rows are worth split."""
    b = Builder("small", DType.INT8)
    x = b.conv(b.input(1, 20, 12, 3), 16, 3)
    for _ in range(2):
        x = b.conv(b.depthwise(x, 3), 16, 1)
    return with_values(b.graph(b.mean(x, keep_dims=True)), 1)


@pytest.mark.parametrize("case", range(len(GIVEN)))
def test_cores_share_what_lies_where_it_was_put(case: int) -> None:
    """In the same bytes of each memory as one core, safe, and the same when it is read again."""
    made, alone = planned(case, 2), planned(case, 1)
    plan = made.plan
    assert plan.multicore is not None
    assert plan.multicore.splits
    assert plan.arena_bytes == alone.arena_bytes
    assert [use.used_bytes for use in plan.pools.uses] == [use.used_bytes for use in alone.plan.pools.uses]
    assert findings_of(plan) == []
    again = from_json(to_json(made), made.model)
    assert again.multicore == plan.multicore
    assert findings_of(again) == []


def test_what_lies_in_another_pool_is_no_hindrance() -> None:
    """An op from one memory to another is done in one phase; in a single one of the same size it is not."""
    net = Net()
    graph = net.graph(net.conv(net.input(1, 16, 16, 8), 8))
    near = pipeline.plan(graph, cores=2, skip="all").plan
    apart = pipeline.plan(graph, cores=2, skip="all", pools=("a:2K", "b:64K")).plan
    assert {use.used_bytes > 0 for use in apart.pools.uses} == {True}
    phases = []
    for plan in (near, apart):
        assert plan.multicore is not None
        (split,) = plan.multicore.splits
        phases.append(list(split.each_phase()))
    assert len(phases[0]) > 1
    assert [phase.how for phase in phases[1]] == [How.SHARED]


@pytest.mark.parametrize("case", range(3))
def test_it_runs_on_threads(case: int) -> None:
    """With an arena in each memory."""
    compiler("gcc")
    made = Program.of(planned(case, 2))
    assert run_on_threads(made, sample_inputs(made.graph, 2), 2).failure is None


def test_models_that_share_an_arena_have_one_core() -> None:
    with pytest.raises(PlanError, match="cores"):
        pipeline.plan("zoo:kws_dscnn_int8", cores=2, together="run-one-at-a-time")
