"""Threads for cores: what is planned is right whoever is late, and what is not is seen to fail."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from diagmem import pipeline
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType
from diagmem.model.schedule import How, Multicore, Phases, Split, Step
from diagmem.planning.cores.split import SharedOp, SharedTurns
from diagmem.planning.plan import Plan
from diagmem.verification.host import run_on_threads
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler
from tests.row_networks import image_net, image_to_image, with_values


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


@cache
def program_by_rows(input_rows: bool) -> Program:
    options = {"schedule": "rows", "input_rows": input_rows}
    return Program.of(pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, cores=3, **options))


@pytest.mark.parametrize(("input_rows", "cores"), [(False, 3), (True, 2)])
def test_rows_are_right_on_several_threads(input_rows: bool, cores: int) -> None:
    """Also those that the caller hands over to the first of them."""
    made = program_by_rows(input_rows)
    assert made.input_rows == input_rows
    assert run_on_threads(made, sample_inputs(made.graph, 2), cores).failure is None


@pytest.mark.parametrize("seed", [2, 5, pytest.param(4, marks=pytest.mark.deep)])
def test_any_network_is_right_row_by_row(seed: int) -> None:
    """With strides, residuals, joins, rows that are recomputed, and ops that one thread does alone."""
    graph, streamed = image_net(seed), seed % 2 == 1
    options: dict[str, Any] = {"schedule": "rows", "input_rows": streamed, "recompute": 3.0, "skip": "all"}
    plan = pipeline.plan(graph, cores=3, **options).plan
    made = Program.running(replace(plan, multicore=every_step_shared(plan)))
    assert made.visits
    assert made.multicore is not None
    assert made.multicore.splits
    assert run_on_threads(made, sample_inputs(made.graph, 2), 3).failure is None


@pytest.mark.parametrize("options", [{}, {"schedule": "rows", "input_rows": True}], ids=["whole", "rows"])
def test_images_from_images_are_right(options: dict[str, Any]) -> None:
    """Transposed convolutions, slices and a join, all of them shared."""
    planned = pipeline.plan(image_to_image(DType.INT8), cores=3, **options)
    made = Program.running(replace(planned.plan, multicore=every_step_shared(planned.plan)), planned.model)
    assert made.multicore is not None
    kinds = {planned.plan.graph.ops[split.op].kind for split in made.multicore.splits}
    assert {"CONV_2D", "TRANSPOSE_CONV", "SLICE", "CONCATENATION"} <= kinds
    assert run_on_threads(made, sample_inputs(made.graph, 2), 3).failure is None


@pytest.mark.deep
def test_rows_whose_table_is_in_pieces_are_held_back() -> None:
    """And find their place again."""
    b = Builder("tall", DType.INT8)
    x = b.conv(b.conv(b.conv(b.input(1, 200, 6, 3), 8, 3), 16, 3), 8, 3)
    graph = with_values(b.graph(b.mean(b.conv(b.depthwise(x, 3), 8, 1), keep_dims=True)), 1)
    planned = pipeline.plan(graph, cores=3, schedule="rows", input_rows=True)
    made = Program.running(replace(planned.plan, multicore=every_step_shared(planned.plan)), planned.model)
    assert made.multicore is not None
    held = {planned.plan.graph.nodes[split.op].output.index for split in made.multicore.splits if split.most_held}
    assert held & {*made.in_pieces}
    assert run_on_threads(made, sample_inputs(made.graph, 1), 3).failure is None


def every_step_shared(plan: Plan) -> Multicore:
    """Though waiting takes longer than so small ops do."""
    splits = list[Split]()
    for node in plan.graph.nodes:
        if Step(node.op.index) in plan.schedule.steps:
            whole = SharedOp(plan, node, 3)
            found = (whole.split(cut) for cut in whole.cuts)
            splits += [split for split in found if split is not None][:1]
        else:
            splits += SharedTurns(plan, node, 3).splits(
                lambda turn: next((s for cut in turn.cuts if (s := turn.split(cut)) is not None), None)
            )
    return Multicore(3, tuple(splits))


NO_BARRIER = "-DMODEL_BARRIER(team, core, cores)=((void)(team), (void)(core), (void)(cores))"


def test_rows_that_nobody_waits_for_are_seen() -> None:
    """Without barriers between steps a row is read before it is made."""
    made = program_by_rows(False)
    failure = run_on_threads(made, sample_inputs(made.graph, 2), 2, hooks=(NO_BARRIER,)).failure
    assert failure is not None
    assert "data race" in failure or "should be" in failure


def test_rows_that_are_not_held_back_are_seen() -> None:
    """A row over one that it is made of, written at once."""
    made = program_by_rows(True)
    assert made.multicore is not None
    assert any(split.most_held and split.turns for split in made.multicore.splits)
    assert run_on_threads(not_held(made), sample_inputs(made.graph, 4), 2).failure is not None


def not_held(made: Program) -> Program:
    assert made.multicore is not None
    shared = (
        replace(s, phases=tuple(Phases(p.end, p.step, How.SHARED) for p in s.phases)) for s in made.multicore.splits
    )
    return replace(made, multicore=Multicore(made.multicore.cores, tuple(shared)))


def broken(how: How, step: int | None = None) -> Program:
    """What is to be deferred is done in another way, in longer steps if these are given."""
    team = program().multicore
    assert team is not None

    def changed(phases: Phases) -> Phases:
        return Phases(phases.end, step or phases.step, how) if phases.how is How.HELD else phases

    splits = (replace(s, phases=tuple(map(changed, s.phases))) for s in team.splits)
    return replace(program(), multicore=Multicore(team.cores, tuple(splits)))


@pytest.mark.parametrize("faulty", [broken(How.SHARED), broken(How.SHARED, 1000)], ids=["not held", "one phase"])
def test_what_is_written_too_early_is_seen(faulty: Program) -> None:
    """The thread sanitizer tells of a race, or an output is wrong and its operation named; mostly both."""
    failure = run_on_threads(faulty, sample_inputs(faulty.graph, 4), 2).failure
    assert failure is not None
    assert "data race" in failure or "should be" in failure


def test_more_cores_than_planned_for_are_refused() -> None:
    with pytest.raises(PlanError, match="up to 3 cores, not 4"):
        run_on_threads(program(), sample_inputs(program().graph, 1), 4)
