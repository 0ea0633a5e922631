"""Threads for cores: what is planned is right whoever is late, and what is not is seen to fail."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError
from diagmem.model.teamwork import How, Phases, Teamwork
from diagmem.verification.inputs import sample_inputs
from diagmem.verification.threads import run_on_threads
from tests.backends.c.models import compiler


@pytest.fixture(autouse=True)
def _gcc() -> None:
    compiler("gcc")


@cache
def program() -> Program:
    return Program.of(pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, cores=3))


@pytest.mark.parametrize("cores", [2, 3])
def test_a_planned_model_is_right_on_several_threads(cores: int) -> None:
    """One plan serves any number of them."""
    run = run_on_threads(program(), sample_inputs(program().graph, 4), cores)
    assert (run.ok, run.cores, run.failure) == (True, cores, None)


def broken(how: How, step: int | None = None) -> Program:
    """What is to be held back is done in another way, in longer steps if these are given."""
    team = program().teamwork
    assert team is not None

    def changed(phases: Phases) -> Phases:
        return Phases(phases.end, step or phases.step, how) if phases.how is How.HELD else phases

    sharings = (replace(s, phases=tuple(map(changed, s.phases))) for s in team.sharings)
    return replace(program(), teamwork=Teamwork(team.cores, tuple(sharings)))


@pytest.mark.parametrize("faulty", [broken(How.SHARED), broken(How.SHARED, 1000)], ids=["not held", "one phase"])
def test_what_is_written_too_early_is_seen(faulty: Program) -> None:
    """The thread sanitizer tells of a race, or an output is wrong and its operation named; mostly both."""
    failure = run_on_threads(faulty, sample_inputs(faulty.graph, 4), 2).failure
    assert failure is not None
    assert "data race" in failure or "should be" in failure


def test_more_cores_than_planned_for_are_refused() -> None:
    with pytest.raises(PlanError, match="up to 3 cores, not 4"):
        run_on_threads(program(), sample_inputs(program().graph, 1), 4)
