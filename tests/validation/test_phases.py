"""The validator and cores that share an op: what is safe in any order is accepted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.model.graph import DType
from diagmem.model.schedule import Along, Cut, How, Multicore, Phase, Phases, Schedule, Split, Step
from diagmem.ops import Order, kind_of
from diagmem.planning.plan import Plan, Storage, findings_of
from diagmem.validation import Fault
from tests.networks import Net
from tests.profiles import examples

MODELS = ("vww_96_int8", "kws_dscnn_int8", "resnet8_int8")


@cache
def planned(model: str) -> Plan:
    return pipeline.plan(f"zoo:{model}", cores=2).plan


@cache
def planned_by_rows(model: str) -> Plan:
    return pipeline.plan(f"zoo:{model}", cores=2, schedule="rows", input_rows=True).plan


def with_phases(plan: Plan, split: Split, phases: Sequence[Phase]) -> Plan:
    """The plan with other phases of one op, or of some turns of it."""
    assert plan.multicore is not None
    rows = tuple(Phases(phase.end, phase.units, phase.how) for phase in phases)
    others = (replace(s, phases=rows) if s == split else s for s in plan.multicore.splits)
    return replace(plan, multicore=Multicore(plan.multicore.cores, tuple(others)))


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
    """What is to be deferred is written at once."""
    if phases[at].how is not How.HELD:
        return None
    return [*phases[:at], phases[at]._replace(how=How.SHARED), *phases[at + 1 :]]


@pytest.mark.parametrize("model", MODELS)
def test_plans_for_cores_are_safe(model: str) -> None:
    """As the planner makes them, with phases of several sorts among them."""
    plan = planned(model)
    assert findings_of(plan) == []
    assert plan.multicore is not None
    assert any(len(split.phases) > 1 or split.most_held for split in plan.multicore.splits)


@pytest.mark.parametrize("fault", [longer, without_barrier, not_held])
def test_faults_in_phases_are_found(fault: Callable[[list[Phase], int], list[Phase] | None]) -> None:
    """Wherever one is planted in a model."""
    assert sum(planted(planned(model), fault) for model in MODELS) >= 2


def test_rows_that_are_not_held_back_are_found() -> None:
    """Where one lies on those that it is made of."""
    assert planted(planned_by_rows("vww_96_int8"), not_held) >= 4


def planted(plan: Plan, fault: Callable[[list[Phase], int], list[Phase] | None]) -> int:
    """Plants a fault wherever one can be, and expects that it is found. Returns how many there were."""
    assert plan.multicore is not None
    found = 0
    for split in plan.multicore.splits:
        phases = list(split.each_phase())
        for at in range(len(phases) - (fault is not not_held)):
            changed = fault(phases, at)
            if changed is not None:
                assert faults(with_phases(plan, split, changed)) == {Fault.RACE}, (split.op, at)
                found += 1
                break
    return found


def test_turns_that_are_not_run_cannot_be_shared() -> None:
    """One that does not exist, one that is shared twice, one of an op that runs whole, and all of one by turns."""
    plan = planned_by_rows("kws_dscnn_int8")
    assert plan.multicore is not None
    first = plan.multicore.splits[0]
    whole = next(split for split in plan.multicore.splits if split.turns is None)
    assert first.turns is not None
    for wrong in (
        (replace(first, turns=(99,)),),
        (replace(first, turns=(1, 1)),),
        (first, replace(first, turns=first.turns[:1])),
        (replace(whole, turns=(0,)),),
        (replace(first, turns=None),),
        (replace(first, op=-1),),
    ):
        assert faults(replace(plan, multicore=Multicore(2, wrong))) == {Fault.SHARED_UNKNOWN}


def test_what_sums_up_rows_is_not_shared() -> None:
    plan = planned_by_rows("kws_dscnn_int8")
    assert plan.multicore is not None
    pool = next(node for node in plan.graph.nodes if node.op.kind == "AVERAGE_POOL_2D")
    shared = Split(pool.op.index, Cut(Along.CHANNELS, 64), (Phases(64, 64, How.SHARED),), (0,))
    assert faults(replace(plan, multicore=Multicore(2, (shared,)))) == {Fault.SHARED_UNKNOWN}


def a_row(apart: int, phases: tuple[Phases, ...]) -> Plan:
    """A pointwise convolution that runs row by row; its second row, and no other, lies so near its input row."""
    net = Net()
    graph = net.graph(net.conv(net.input(1, 3, 8, 2), 2, kernel=1))
    options = pipeline.plan(graph, cores=2, skip="all").plan.options
    source, target = graph.nodes[0].input(0), graph.nodes[0].output
    storage = {
        source.index: Storage.linear(100, source.rows, source.row_bytes),
        target.index: Storage(3, 0, 1, 0, (200, 100 + 16 - apart, 300)),
    }
    cut = Cut(Along.PIXELS, 8, can_hold=True)
    steps = Schedule(tuple(Step(0, turn) for turn in range(3)))
    plan = Plan(graph, options, steps, storage, {}, 1000, 0)
    return replace(plan, multicore=Multicore(2, (Split(0, cut, phases, (0, 1, 2)),)))


def test_a_phase_of_a_row_that_is_a_pixel_longer_is_found() -> None:
    """Two pixels of two bytes at a time, four bytes apart: three are too many, and so are all without a barrier."""
    assert faults(a_row(4, (Phases(8, 2, How.SHARED),))) == {Fault.NOT_IN_ONE_PIECE}
    for step in (3, 8):
        assert faults(a_row(4, (Phases(8, step, How.SHARED),))) == {Fault.NOT_IN_ONE_PIECE, Fault.RACE}


@given(st.integers(-20, 20), st.integers(1, 8), st.sampled_from((How.SHARED, How.HELD)))
@examples(60)
def test_a_race_within_a_row_is_found_and_nothing_else(apart: int, step: int, how: How) -> None:
    """At any distance, above and below, for phases of any length."""
    plan = a_row(apart, (Phases(8, step, how),))
    found = [finding.step for finding in findings_of(plan) if finding.fault is Fault.RACE]
    phase = [unit // step for unit in range(8)]
    is_racy = False
    for reader in range(8):
        for byte in (2 * reader + apart, 2 * reader + 1 + apart):
            if 0 <= byte < 16:
                writer = byte // 2
                written = phase[writer] + (how is How.HELD)
                is_racy |= phase[reader] > written or (phase[reader] == written and reader != writer)
    assert found == ([1] if is_racy else [])


@cache
def small(dtype: DType = DType.INT8) -> Plan:
    """A convolution whose output lies anywhere below its input, or on it."""
    net = Net(dtype=dtype)
    graph = net.graph(net.conv(net.input(1, 4, 4, 2), 2))
    return pipeline.plan(graph, cores=2, skip="all").plan


PIXELS = Cut(Along.PIXELS, 16, can_hold=True)


def moved(plan: Plan, apart: int, phases: tuple[Phases, ...], cut: Cut = PIXELS) -> Plan:
    """The input so many elements above the output, in an arena that is large enough."""
    source, target = plan.graph.nodes[0].input(0), plan.graph.nodes[0].output
    storage = {
        target.index: Storage.linear(0, target.rows, target.row_bytes),
        source.index: Storage.linear(apart * source.dtype.size_bytes, source.rows, source.row_bytes),
    }
    return replace(plan, storage=storage, arena_bytes=4096, multicore=Multicore(2, (Split(0, cut, phases),)))


def is_racy(plan: Plan, apart: int) -> bool:
    """Element by element, by the definition: all that are between the same two barriers come in every order."""
    assert plan.multicore is not None
    node, (split,) = plan.graph.nodes[0], plan.multicore.splits
    kind = kind_of(node.op.kind)
    assert kind is not None
    reads = kind.accesses(node, Order.REFERENCE).reads[0]
    assert reads is not None
    when: dict[int, tuple[int, int, int]] = {}
    for number, phase in enumerate(split.each_phase()):
        for unit in range(phase.first, phase.end):
            core = -1 - number if phase.how is How.ALONE else unit
            when[unit] = number, number + (phase.how is How.HELD), core
    for element, first, last in zip(*(array.tolist() for array in reads.touches()), strict=True):
        place = element + apart
        for step in range(first, last + 1):
            read, _, reader = when[step // 2]
            if 0 <= place < 32:
                _, written, writer = when[place // 2]
                if read > written or (read == written and reader != writer):
                    return True
    return False


@given(
    st.sampled_from((DType.INT8, DType.FLOAT32)),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(How)), max_size=6),
)
@examples(200)
def test_what_is_racy_is_found_and_nothing_else(dtype: DType, apart: int, drawn: list[tuple[int, How]]) -> None:
    """Any phases at any distance: a race is found where there is one element by element."""
    ends, phases = 0, list[Phases]()
    for units, how in drawn:
        ends = min(16, ends + units)
        if not phases or ends > phases[-1].end:
            phases.append(Phases(ends, units, how))
    if ends < 16:
        phases.append(Phases(16, 16, How.SHARED))
    plan = moved(small(dtype), apart, tuple(phases))
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
    twice = Multicore(2, (Split(7, PIXELS, ()), *(plan.multicore.splits if plan.multicore else ()) * 2))
    assert [finding.fault for finding in findings_of(replace(plan, multicore=twice))] == [Fault.SHARED_UNKNOWN] * 2


def test_a_part_alone_asks_for_a_kernel_that_may_begin_anywhere() -> None:
    """One that reads pixels in pairs may not."""
    net = Net()
    plan = pipeline.plan(net.graph(net.conv(net.input(1, 4, 4, 8), 8)), cores=2, skip="all", kernels="diagmem-dsp").plan
    cut = plan.options.library.cuts(plan.graph.nodes[0])[0]
    assert cut.grain == 2
    phases = (Phases(3, 3, How.ALONE), Phases(16, 13, How.SHARED))
    lone = replace(plan, multicore=Multicore(2, (Split(0, cut, phases),)))
    assert Fault.ALONE_AMID in faults(lone)


def test_scratch_is_there_for_each_core() -> None:
    """A plan for one core has too little for two."""
    net = Net()
    graph = net.graph(net.conv(net.input(1, 4, 4, 8), 8))
    plan = pipeline.plan(graph, skip="all", kernels="diagmem-dsp").plan
    assert plan.scratch
    assert findings_of(plan) == []
    assert faults(replace(plan, multicore=Multicore(2, ()))) & {Fault.OUTSIDE, Fault.OVERWRITTEN}
