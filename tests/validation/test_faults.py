"""One plan for each thing that the validator can find, and none that makes it fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import Graph, View
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.transforms import transformed
from diagmem.validation import Fault, Finding, Pool, Rules, replay
from diagmem.validation.replay import MOST_FINDINGS
from tests.networks import Net
from tests.profiles import examples
from tests.validation.plans import DIAGMEM, LARGE, Laid

CONV, RELU, MEAN, FLAT = range(4)
X, WEIGHTS, Y, Z = range(4)


def streamed() -> Laid:
    """A convolution, an element-wise op and a mean row by row, a reshape whole; the input is streamed, all lies apart.

    Tensors: 0 -> conv -> 2 -> relu -> 3 -> mean -> 5 -> reshape -> 6, each row 100 bytes apart.
    """
    net = Net()
    z = net.relu(net.conv(net.input(1, 4, 4, 2), 2))
    graph = net.graph(net.reshape(net.mean(z), 1, 2))
    steps = [Step(PUSH, 0)]
    for row in range(4):
        steps += [Step(PUSH, row + 1)] if row < 3 else []
        steps += [Step(CONV, row), Step(RELU, row), Step(MEAN, row)]
    rows = {t: tuple(1000 * t + 100 * row for row in range(4)) for t in (X, Y, Z)}
    rows |= {t: (1000 * t,) for t in (5, 6)}
    return Laid(graph, Schedule((*steps, Step(FLAT))), rows, {MEAN: 9000, PUSH: 9100})


def whole() -> Laid:
    """The same run whole, every tensor in one piece."""
    laid = streamed()
    rows = {t: tuple(1000 * t + 8 * row for row in range(4)) for t in (X, Y, Z)}
    return replace(laid, schedule=Schedule.whole(range(4)), rows={**laid.rows, **rows}, scratch={})


def stateful() -> Laid:
    """Two ops that change a variable."""
    net = Net()
    x, state = net.input(8), net.variable(8)
    graph = net.graph(net.opaque(x, state), net.opaque(x, state))
    return Laid(graph, Schedule.whole((0, 1)), {t.index: (16 * t.index,) for t in graph.tensors}, {})


def in_parts() -> Laid:
    """Two results that are written straight into one tensor, and read from there."""
    net = Net()
    x = net.input(1, 2, 2, 2)
    joined = net.concat(net.relu(x), net.relu(net.relu(x)))
    graph = transformed(net.graph(net.relu(joined)), ["remove-concat"])[0]
    rows = {t.index: tuple(64 * t.index + row * t.row_bytes for row in range(t.rows)) for t in graph.tensors}
    plain = {t.index for t in graph.tensors if t.view is None}
    return Laid(graph, Schedule.whole(range(len(graph.ops))), {t: rows[t] for t in plain}, {})


def view_of(laid: Laid, **changes: Any) -> Laid:
    """With another shape or view of the first part."""
    part = next(t for t in laid.graph.tensors if t.view is not None)
    tensors = tuple(replace(t, **changes) if t is part else t for t in laid.graph.tensors)
    return replace(laid, graph=replace(laid.graph, tensors=tensors))


def run_as(laid: Laid, *steps: Step) -> Laid:
    return replace(laid, schedule=Schedule(steps))


def swapped(laid: Laid, a: int, b: int) -> Laid:
    steps = list(laid.schedule.steps)
    steps[a], steps[b] = steps[b], steps[a]
    return run_as(laid, *steps)


def placed(laid: Laid, tensor: int, *rows: Any) -> Laid:
    return replace(laid, rows={**laid.rows, tensor: rows})


def with_row(laid: Laid, tensor: int, row: int, at: Any) -> Laid:
    rows = list(laid.rows[tensor])
    rows[row] = at
    return placed(laid, tensor, *rows)


def held(laid: Laid, op: int, at: Any) -> Laid:
    return replace(laid, scratch={**laid.scratch, op: at})


def steps_of(laid: Laid) -> tuple[Step, ...]:
    return laid.schedule.steps


ALIGNED = Rules(align_bytes=4)
TWO_POOLS = Rules(pools=(Pool("fast", 0, 2050, 4096), Pool("slow", 2050, LARGE, LARGE)))
TIGHT_POOL = Rules(pools=(Pool("only", 0, LARGE, LARGE - 1),))

CASES: dict[str, tuple[Fault, Callable[[], Laid], Rules]] = {
    "an op that is not there": (Fault.OP_UNKNOWN, lambda: run_as(whole(), *steps_of(whole()), Step(9)), Rules()),
    "an op below all": (Fault.OP_UNKNOWN, lambda: run_as(whole(), *steps_of(whole()), Step(-7, 0)), Rules()),
    "an op left out": (Fault.OP_MISSING, lambda: run_as(whole(), *steps_of(whole())[:-1]), Rules()),
    "a last turn left out": (Fault.OP_MISSING, lambda: run_as(streamed(), *steps_of(streamed())[:-2]), Rules()),
    "a row that the caller keeps": (
        Fault.OP_MISSING,
        lambda: run_as(streamed(), *(s for s in steps_of(streamed()) if s != Step(PUSH, 3))),
        Rules(),
    ),
    "an op run twice": (Fault.OP_REPEATED, lambda: run_as(whole(), Step(CONV), *steps_of(whole())), Rules()),
    "a row summed up twice": (
        Fault.OP_REPEATED,
        lambda: run_as(streamed(), *steps_of(streamed())[:5], Step(MEAN, 0), *steps_of(streamed())[5:]),
        Rules(),
    ),
    "a row handed over twice": (
        Fault.OP_REPEATED,
        lambda: run_as(streamed(), Step(PUSH, 0), *steps_of(streamed())),
        Rules(),
    ),
    "an op before its input": (Fault.OP_TOO_EARLY, lambda: swapped(whole(), 0, 1), Rules()),
    "a turn before a row of its window": (Fault.OP_TOO_EARLY, lambda: swapped(streamed(), 1, 2), Rules()),
    "a reshape before its input": (Fault.OP_TOO_EARLY, lambda: swapped(whole(), 2, 3), Rules()),
    "a turn too many": (Fault.TURN_UNKNOWN, lambda: run_as(streamed(), *steps_of(streamed()), Step(RELU, 4)), Rules()),
    "a turn below 0": (Fault.TURN_UNKNOWN, lambda: run_as(streamed(), Step(RELU, -1)), Rules()),
    "a row without a number": (Fault.TURN_UNKNOWN, lambda: run_as(streamed(), Step(PUSH)), Rules()),
    "turns in the wrong order": (
        Fault.TURN_TOO_EARLY,
        lambda: run_as(streamed(), *(replace(s, turn=3 - (s.turn or 0)) for s in steps_of(streamed())[:-1])),
        Rules(),
    ),
    "whole after turns": (Fault.TURNS_MIXED, lambda: run_as(streamed(), *steps_of(streamed()), Step(RELU)), Rules()),
    "turns after whole": (Fault.TURNS_MIXED, lambda: run_as(whole(), *steps_of(whole()), Step(RELU, 0)), Rules()),
    "a reshape by turns": (
        Fault.NO_TURNS,
        lambda: run_as(streamed(), *steps_of(streamed())[:-1], Step(FLAT, 0)),
        Rules(),
    ),
    "a row recomputed": (
        Fault.TOO_MUCH_WORK,
        lambda: run_as(streamed(), *steps_of(streamed()), Step(CONV, 2)),
        Rules(),
    ),
    "effects in the wrong order": (Fault.EFFECT_TOO_EARLY, lambda: run_as(stateful(), Step(1), Step(0)), Rules()),
    "a part that nobody writes": (Fault.NOT_WRITTEN, lambda: view_of(in_parts(), shape=(1, 2, 2, 1)), Rules()),
    "a part that two write": (
        Fault.WRITTEN_TWICE,
        lambda: view_of(in_parts(), view=View(4, 1, (16, 8, 4, 1))),
        Rules(),
    ),
    "a part that a kernel cannot reach": (
        Fault.UNADDRESSABLE,
        lambda: _through_unknown_op(in_parts()),
        Rules(),
    ),
    "a tensor without a place": (Fault.NO_PLACE, lambda: placed(whole(), Y), Rules()),
    "sums without a place": (Fault.NO_PLACE, lambda: replace(streamed(), scratch={PUSH: 9100}), Rules()),
    "a state without a place": (Fault.NO_PLACE, lambda: replace(streamed(), scratch={MEAN: 9000}), Rules()),
    "a place for no tensor": (Fault.PLACE_UNKNOWN, lambda: placed(whole(), 99, 0), Rules()),
    "a place for no op": (Fault.PLACE_UNKNOWN, lambda: held(whole(), 99, 0), Rules()),
    "a row too few": (Fault.PLACE_AMISS, lambda: placed(streamed(), Y, 0, 100, 200), Rules()),
    "a row too many": (Fault.PLACE_AMISS, lambda: placed(streamed(), Y, 0, 100, 200, 300, 400), Rules()),
    "a fraction": (Fault.PLACE_AMISS, lambda: with_row(streamed(), Y, 2, 7.5), Rules()),
    "sums at a word": (Fault.PLACE_AMISS, lambda: held(streamed(), MEAN, "here"), Rules()),
    "an output in pieces": (Fault.NOT_IN_ONE_PIECE, lambda: with_row(whole(), Z, 3, 9200), Rules()),
    "an input in pieces": (Fault.NOT_IN_ONE_PIECE, lambda: with_row(whole(), X, 3, 9200), Rules()),
    "parts in pieces": (Fault.NOT_IN_ONE_PIECE, lambda: with_row(in_parts(), 4, 1, 9200), Rules()),
    "a view elsewhere": (Fault.VIEW_ASTRAY, lambda: placed(in_parts(), 1, 7), Rules()),
    "a view over the end": (
        Fault.VIEW_ASTRAY,
        lambda: view_of(in_parts(), view=View(4, 99, (16, 8, 4, 1))),
        Rules(),
    ),
    "a row below the arena": (Fault.OUTSIDE, lambda: with_row(streamed(), Y, 2, -1), Rules()),
    "a row above it": (Fault.OUTSIDE, lambda: with_row(streamed(), Y, 2, LARGE - 7), Rules()),
    "a row beyond all numbers": (Fault.OUTSIDE, lambda: with_row(streamed(), Y, 2, 1 << 80), Rules()),
    "sums outside": (Fault.OUTSIDE, lambda: held(streamed(), MEAN, -(1 << 80)), Rules()),
    "a state outside": (Fault.OUTSIDE, lambda: held(streamed(), PUSH, LARGE - 4), Rules()),
    "a tensor over the end of its pool": (
        Fault.ACROSS_POOLS,
        lambda: placed(whole(), Y, 2044, 2052, 2060, 2068),
        TWO_POOLS,
    ),
    "rows in two pools": (Fault.ACROSS_POOLS, lambda: with_row(streamed(), Y, 2, 900), TWO_POOLS),
    "sums over the end of a pool": (Fault.ACROSS_POOLS, lambda: held(streamed(), MEAN, 2048), TWO_POOLS),
    "a pool used beyond what there is": (Fault.POOL_OVERRUN, whole, TIGHT_POOL),
    "a row at an odd place": (Fault.MISALIGNED, lambda: with_row(streamed(), Y, 2, 9201), ALIGNED),
    "sums at an odd place": (Fault.MISALIGNED, lambda: held(streamed(), MEAN, 9002), Rules()),
    "a state at an odd place": (Fault.MISALIGNED, lambda: held(streamed(), PUSH, 9101), Rules()),
    "a row over one that lives": (Fault.OVERWRITTEN, lambda: with_row(streamed(), Y, 1, 7), Rules()),
    "sums under a row": (Fault.OVERWRITTEN, lambda: held(streamed(), MEAN, 2100), Rules()),
    "sums under their result": (Fault.OVERWRITTEN, lambda: held(streamed(), MEAN, 5000), Rules()),
    "a state under a row": (Fault.RESULT_LOST, lambda: held(streamed(), PUSH, 2300), Rules()),
    "an input that is kept": (Fault.RESULT_LOST, lambda: placed(whole(), 6, 8), Rules(keep_inputs=True)),
}


def _through_unknown_op(laid: Laid) -> Laid:
    """With the ops that write parts replaced by one that nobody knows."""
    ops = tuple(replace(op, kind="CUSTOM:any") for op in laid.graph.ops)
    return replace(laid, graph=replace(laid.graph, ops=ops))


@pytest.mark.parametrize("case", CASES)
def test_each_fault_is_found(case: str) -> None:
    """And the line that tells of it is one line."""
    fault, make, rules = CASES[case]
    found = make().findings(rules=rules)
    assert fault in {finding.fault for finding in found}
    assert all("\n" not in str(finding) for finding in found)


OF_CORES = {Fault.SHARED_UNKNOWN, Fault.PHASES_AMISS, Fault.HELD_AMISS, Fault.ALONE_AMID, Fault.RACE}
"""What `test_phases.py` has a plan for."""


def test_no_fault_is_forgotten() -> None:
    assert {fault for fault, _, _ in CASES.values()} == set(Fault) - OF_CORES


@pytest.mark.parametrize("sound", [streamed, whole, stateful, in_parts])
def test_what_the_faults_are_planted_in_is_sound(sound: Callable[[], Laid]) -> None:
    assert sound().findings(rules=ALIGNED if sound is not in_parts else Rules()) == []


def test_a_finding_says_which_row_of_what() -> None:
    """Rows by number, ops as the model's file numbers them, what overwrote it and when."""
    laid = with_row(streamed(), Y, 1, 7)
    ops = tuple(replace(op, origin=op.index + 40) for op in laid.graph.ops)
    (found,) = replace(laid, graph=replace(laid.graph, ops=ops)).findings()
    assert str(found) == (
        "step 6, op 40: an op reads a byte that something else has overwritten; 't0'[0]; byte 7; "
        "overwritten by 't2'[1] at step 6"
    )
    missing = replace(laid, graph=replace(laid.graph, ops=ops), scratch={PUSH: 9100}).findings()[0]
    assert str(missing) == "a tensor has no place in the arena; 'sums of op 42 't5' (MEAN)'"


@pytest.mark.parametrize(("offset", "is_outside"), [(-1, True), (0, False), (LARGE - 8, False), (LARGE - 7, True)])
def test_only_the_row_outside_is_named(offset: int, is_outside: bool) -> None:
    """A row may end where the arena does; of the others, which lie inside, nothing is said."""
    found = with_row(streamed(), Y, 2, offset).findings()
    told = [finding for finding in found if finding.fault is Fault.OUTSIDE]
    assert [(finding.byte, "[2]" in str(finding)) for finding in told] == [(offset, True)] * is_outside


def test_rows_in_one_piece_have_one_offset() -> None:
    """Only the first row of a tensor in one piece is aligned: its rows need not be a multiple long."""
    net = Net()
    graph = net.graph(net.relu(net.input(1, 3, 3, 1)))
    rows = {0: (0, 3, 6), 1: (16, 19, 22)}
    steps = tuple(Step(0, row) for row in range(3))
    for schedule in (Schedule(steps), Schedule.whole((0,))):
        assert replay(graph, DIAGMEM, schedule, rows, {}, 64, ALIGNED) == []
        moved = {**rows, 1: (17, 20, 23)}
        (found,) = replay(graph, DIAGMEM, schedule, moved, {}, 64, ALIGNED)
        assert found == Finding(Fault.MISALIGNED, tensor="t1", byte=17)


def test_the_list_is_cut_off() -> None:
    """A plan in which everything is wrong is refused at once, with a list that a person can read."""
    net = Net()
    x = net.input(1, 300, 2, 1)
    graph = net.graph(net.relu(x))
    laid = Laid(graph, Schedule(tuple(Step(0, row) for row in range(300))), {0: (-1,) * 300, 1: (0,) * 300}, {})
    assert len(laid.findings()) == MOST_FINDINGS


NUMBERS = st.one_of(st.integers(-3, 400), st.integers(), st.floats(allow_nan=True), st.none(), st.text(max_size=2))


@given(
    st.dictionaries(st.integers(-2, 9), st.one_of(st.lists(NUMBERS, max_size=5), NUMBERS), max_size=9),
    st.dictionaries(st.integers(-3, 6), NUMBERS, max_size=4),
    st.lists(st.tuples(st.integers(-3, 6), st.one_of(st.none(), st.integers(-2, 6))), max_size=30),
    st.integers(-5, 1 << 70),
)
@examples(300)
def test_no_plan_makes_it_fail(rows: Any, scratch: Any, steps: Any, arena_bytes: int) -> None:
    """Whatever the numbers: findings, and no exception."""
    for laid in (streamed(), in_parts()):
        damaged = {**laid.rows, **rows}
        schedules = laid.schedule, Schedule(tuple(Step(*step) for step in steps))
        for schedule in schedules:
            replay(laid.graph, DIAGMEM, schedule, damaged, {**laid.scratch, **scratch}, arena_bytes)
            replay(laid.graph, DIAGMEM, schedule, rows, scratch, arena_bytes, Rules(4, True, True, 2))


def test_graphs_of_nothing() -> None:
    """No ops, no steps, an output that is an input."""
    net = Net()
    x = net.input(1, 4, 4, 1)
    graph: Graph = replace(net.graph(x), ops=())
    assert replay(graph, DIAGMEM, Schedule(()), {x: (0, 4, 8, 12)}, {}, 16) == []
    assert replay(graph, DIAGMEM, Schedule((Step(PUSH, 0),)), {x: (0, 4, 8, 12)}, {}, 16) != []
