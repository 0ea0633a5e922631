"""Two emulated cores share one arena: the bytes of one core, in half the time."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError
from diagmem.model.schedule import How, Multicore, Phases
from diagmem.planning.cores.multicore import running_steps
from diagmem.verification.cortex_m import CORES, run_on_cores
from diagmem.verification.reference import sample_inputs

TWO = CORES["cortex-m33x2"]


@pytest.fixture(autouse=True)
def _tools() -> None:
    for tool in (TWO.made_by.emulator, f"{TWO.made_by.prefix}gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


@cache
def program() -> Program:
    return Program.of(pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, cores=2))


def test_two_cores_are_twice_as_fast() -> None:
    """Layer by layer, every output bit for bit, in the arena of one core; counted phase by phase, with 100 instructions
    a barrier."""
    made = program()
    run = run_on_cores(made, sample_inputs(made.graph, 2), TWO)
    assert (run.failure, run.cores) == (None, 2)
    assert run.arena_bytes == pipeline.plan("zoo:kws_dscnn_int8", schedule="best").arena_bytes
    assert made.multicore is not None
    assert run.barriers == made.multicore.barriers([step for step in made.steps if made.calls[step.op] is not None])
    assert run.speedup is not None
    assert 1.95 < run.speedup < 2.05
    assert [200 < used < 4000 for used in run.core_stacks_bytes] == [True, True]
    assert run.stack_bytes == max(run.core_stacks_bytes)
    assert run.to_json()["stack_bytes_by_core"] == list(run.core_stacks_bytes)


def test_rows_are_shared_by_two_cores() -> None:
    """The caller's rows too, in the arena of one core that takes them; every barrier of the plan is one in C."""
    options: dict[str, Any] = {"schedule": "rows", "input_rows": True}
    planned = pipeline.plan(Source("zoo:resnet8_int8").runnable, cores=2, **options)
    made = Program.of(planned)
    run = run_on_cores(made, sample_inputs(made.graph, 1), TWO)
    assert run.failure is None
    assert run.arena_bytes == pipeline.plan("zoo:resnet8_int8", **options).arena_bytes
    assert made.multicore is not None
    assert run.barriers == made.multicore.barriers(running_steps(planned.plan))
    assert run.speedup is not None
    assert 1.95 < run.speedup < 2.05


def test_what_is_not_held_back_is_wrong() -> None:
    """The second core begins with the pixel that overwrites the last one that the first core needs."""
    team = program().multicore
    assert team is not None
    splits = (replace(s, phases=tuple(Phases(p.end, p.step, How.SHARED) for p in s.phases)) for s in team.splits)
    broken = replace(program(), multicore=Multicore(2, tuple(splits)))
    assert run_on_cores(broken, sample_inputs(broken.graph, 3), TWO).failure is not None


def test_a_plan_for_one_core_is_refused() -> None:
    made = Program.of(pipeline.plan(Source("zoo:kws_dscnn_int8").runnable))
    with pytest.raises(PlanError, match="has 2 cores"):
        run_on_cores(made, sample_inputs(made.graph, 1), TWO)
