"""The validator and cores that share an op: what is safe in any order is accepted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.model.teamwork import Along, Cut, How, Phase, Phases, Sharing, Teamwork
from diagmem.ops import Order, kind_of
from diagmem.planning.checked import findings_of
from diagmem.planning.plan import Plan
from diagmem.planning.storage import Storage
from diagmem.validation import Fault
from tests.networks import Net

MODELS = ("vww_96_int8", "kws_dscnn_int8", "resnet8_int8")


@cache
def planned(model: str) -> Plan:
    return pipeline.plan(f"zoo:{model}", cores=2).plan


def with_phases(plan: Plan, op: int, phases: Sequence[Phase]) -> Plan:
    """The plan with other phases of one op."""
    assert plan.teamwork is not None
    rows = tuple(Phases(phase.end, phase.units, phase.how) for phase in phases)
    others = (replace(s, phases=rows) if s.op == op else s for s in plan.teamwork.sharings)
    return replace(plan, teamwork=Teamwork(plan.teamwork.cores, tuple(others)))


def faults(plan: Plan) -> set[Fault]:
    return {finding.fault for finding in findings_of(plan)}


def longer(phases: list[Phase], at: int) -> list[Phase] | None:
    """Phase `at` takes two units of the next."""
    first, second = phases[at], phases[at + 1]
    if first.how is not How.SHARED or second.units < 3:
        return None
    moved = [first._replace(end=first.end + 2), second._replace(first=second.first + 2)]
    return [*phases[:at], *moved, *phases[at + 2 :]]


def without_barrier(phases: list[Phase], at: int) -> list[Phase] | None:
    """Nobody waits between phase `at` and the next."""
    if phases[at].how is not How.SHARED or phases[at + 1].how is not How.SHARED:
        return None
    return [*phases[:at], phases[at]._replace(end=phases[at + 1].end), *phases[at + 2 :]]


def not_held(phases: list[Phase], at: int) -> list[Phase] | None:
    """What is to be held back is written at once."""
    if phases[at].how is not How.HELD:
        return None
    return [*phases[:at], phases[at]._replace(how=How.SHARED), *phases[at + 1 :]]


@pytest.mark.parametrize("model", MODELS)
def test_plans_for_cores_are_safe(model: str) -> None:
    """As the planner makes them, with phases of several sorts among them."""
    plan = planned(model)
    assert findings_of(plan) == []
    assert plan.teamwork is not None
    assert any(len(sharing.phases) > 1 or sharing.most_held for sharing in plan.teamwork.sharings)


@pytest.mark.parametrize("fault", [longer, without_barrier, not_held])
def test_faults_in_phases_are_found(fault: Callable[[list[Phase], int], list[Phase] | None]) -> None:
    """Wherever one is planted in a model."""
    planted = 0
    for plan in map(planned, MODELS):
        assert plan.teamwork is not None
        for sharing in plan.teamwork.sharings:
            phases = list(sharing.each_phase())
            for at in range(len(phases) - 1):
                changed = fault(phases, at)
                if changed is not None:
                    assert faults(with_phases(plan, sharing.op, changed)) == {Fault.RACE}, (sharing.op, at)
                    planted += 1
                    break
    assert planted >= 2


def small() -> Plan:
    """A convolution whose output lies anywhere below its input, or on it."""
    net = Net()
    graph = net.graph(net.conv(net.input(1, 4, 4, 2), 2))
    return pipeline.plan(graph, cores=2, remove=()).plan


PIXELS = Cut(Along.PIXELS, 16, can_hold=True)


def moved(plan: Plan, apart: int, phases: tuple[Phases, ...], cut: Cut = PIXELS) -> Plan:
    """The input so many bytes above the output, in an arena that is large enough."""
    source, target = plan.graph.nodes[0].input(0), plan.graph.nodes[0].output
    storage = {
        target.index: Storage.linear(0, target.rows, target.row_bytes),
        source.index: Storage.linear(apart, source.rows, source.row_bytes),
    }
    return replace(plan, storage=storage, arena_bytes=4096, teamwork=Teamwork(2, (Sharing(0, cut, phases),)))


def is_racy(plan: Plan, apart: int) -> bool:
    """Byte by byte, by the definition: all that are between the same two barriers come in every order."""
    assert plan.teamwork is not None
    node, (sharing,) = plan.graph.nodes[0], plan.teamwork.sharings
    kind = kind_of(node.op.kind)
    assert kind is not None
    reads = kind.accesses(node, Order.REFERENCE).reads[0]
    assert reads is not None
    when: dict[int, tuple[int, int, int]] = {}
    for number, phase in enumerate(sharing.each_phase()):
        for unit in range(phase.first, phase.end):
            core = -1 - number if phase.how is How.ALONE else unit
            when[unit] = number, number + (phase.how is How.HELD), core
    for element, first, last in zip(*(array.tolist() for array in reads.touches()), strict=True):
        byte = element + apart
        for step in range(first, last + 1):
            read, _, reader = when[step // 2]
            if 0 <= byte < 32:
                _, written, writer = when[byte // 2]
                if read > written or (read == written and reader != writer):
                    return True
    return False


@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, 6), st.sampled_from(How)), max_size=6))
@settings(max_examples=150, deadline=None)
def test_what_is_racy_is_found_and_nothing_else(apart: int, drawn: list[tuple[int, How]]) -> None:
    """Any phases at any distance: a race is found where there is one byte by byte."""
    ends, phases = 0, list[Phases]()
    for units, how in drawn:
        ends = min(16, ends + units)
        if not phases or ends > phases[-1].end:
            phases.append(Phases(ends, units, how))
    if ends < 16:
        phases.append(Phases(16, 16, How.SHARED))
    plan = moved(small(), apart, tuple(phases))
    assert (Fault.RACE in faults(plan)) == is_racy(plan, apart)


@pytest.mark.parametrize(
    ("cut", "phases", "fault"),
    [
        (PIXELS, (Phases(15, 15, How.SHARED),), Fault.PHASES_AMISS),
        (PIXELS, (), Fault.PHASES_AMISS),
        (PIXELS, (Phases(8, 8, How.SHARED), Phases(8, 8, How.SHARED), Phases(16, 8, How.SHARED)), Fault.PHASES_AMISS),
        (PIXELS, (Phases(16, 0, How.SHARED),), Fault.PHASES_AMISS),
        (Cut(Along.CHANNELS, 2, 8), (Phases(2, 2, How.HELD),), Fault.HELD_AMISS),
        (Cut(Along.CHANNELS, 2, 8), (Phases(2, 1, How.SHARED),), Fault.PHASES_AMISS),
        (replace(PIXELS, units=32), (Phases(32, 32, How.SHARED),), Fault.SHARED_UNKNOWN),
        (replace(PIXELS, grain=2), (Phases(16, 16, How.SHARED),), Fault.SHARED_UNKNOWN),
    ],
)
def test_phases_that_make_no_sense_are_refused(cut: Cut, phases: tuple[Phases, ...], fault: Fault) -> None:
    """Units that do not exist, are left out or done twice."""
    assert faults(moved(small(), 100, phases, cut)) == {fault}


def test_ops_that_are_not_run_cannot_be_shared() -> None:
    plan = moved(small(), 100, (Phases(16, 16, How.SHARED),))
    twice = Teamwork(2, (Sharing(7, PIXELS, ()), *(plan.teamwork.sharings if plan.teamwork else ()) * 2))
    assert [finding.fault for finding in findings_of(replace(plan, teamwork=twice))] == [Fault.SHARED_UNKNOWN] * 2


def test_a_part_alone_asks_for_a_kernel_that_may_begin_anywhere() -> None:
    """One that reads pixels in pairs may not."""
    net = Net()
    plan = pipeline.plan(net.graph(net.conv(net.input(1, 4, 4, 8), 8)), cores=2, remove=(), kernels="diagmem-dsp").plan
    cut = plan.options.library.cuts(plan.graph.nodes[0])[0]
    assert cut.grain == 2
    phases = (Phases(3, 3, How.ALONE), Phases(16, 13, How.SHARED))
    lone = replace(plan, teamwork=Teamwork(2, (Sharing(0, cut, phases),)))
    assert Fault.ALONE_AMID in faults(lone)


def test_scratch_is_there_for_each_core() -> None:
    """A plan for one core has too little for two."""
    net = Net()
    graph = net.graph(net.conv(net.input(1, 4, 4, 8), 8))
    plan = pipeline.plan(graph, remove=(), kernels="diagmem-dsp").plan
    assert plan.scratch
    assert findings_of(plan) == []
    assert faults(replace(plan, teamwork=Teamwork(2, ()))) & {Fault.OUTSIDE, Fault.OVERWRITTEN}
