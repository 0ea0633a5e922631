"""Runs of touches, and the separation that follows from them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import DType
from diagmem.ops.accesses import Accesses, Runs, last_reads, replayed_separation, unknown_accesses
from tests.ops.cases import activation, constant, node_of
from tests.ops.simulation import by_step, survives
from tests.profiles import examples

ELEMS, STEPS = 12, 40


@st.composite
def some_runs(draw: st.DrawFn) -> Runs:
    """Up to four runs inside of a tensor, forwards and backwards, swept or at once, held or not."""
    columns = []
    for _ in range(draw(st.integers(0, 4))):
        length, pitch = draw(st.integers(0, 4)), draw(st.integers(-3, 3))
        far = (max(length, 1) - 1) * pitch
        start = draw(st.integers(max(0, -far), ELEMS - 1 - max(0, far)))
        columns.append((start, length, pitch, *(draw(st.integers(*limits)) for limits in ((0, 20), (0, 3), (1, 5)))))
    start, length, pitch, step, stride, hold = np.array(columns, dtype=np.int64).reshape(-1, 6).T
    return Runs.of(start, length, step, pitch=pitch, stride=stride, hold=hold)


def pairs(runs: Runs) -> set[tuple[int, int]]:
    return {(element, step) for step, elements in by_step(runs).items() for element in elements}


@given(some_runs())
@examples(100)
def test_touches_are_runs_written_out(runs: Runs) -> None:
    """Each element with the steps, from the first to the last, at which it is touched."""
    found = zip(*(column.tolist() for column in runs.touches()), strict=True)
    assert {(e, step) for e, first, last in found for step in range(first, last + 1)} == pairs(runs)
    assert len(runs.touches()[0]) == runs.length.sum()


@given(some_runs(), some_runs())
@examples(100)
def test_runs_are_joined_one_behind_the_other(first: Runs, second: Runs) -> None:
    joined = Runs.join(first, second)
    assert pairs(joined) == pairs(first) | pairs(second)
    assert len(joined.start) == len(first.start) + len(second.start)


def test_simple_runs() -> None:
    """A sweep touches element i at step i; nothing touches nothing; one number stands for all runs."""
    assert pairs(Runs.sweep(3)) == {(0, 0), (1, 1), (2, 2)}
    assert pairs(Runs.none()) == set()
    assert pairs(Runs.of([0, 4], 2, [7, 9])) == {(0, 7), (1, 8), (4, 9), (5, 10)}
    assert pairs(Runs.of([0, 1], [1, 0], 5)) == {(0, 5)}
    assert len(Runs.of([0, 1], [1, 0], 5).start) == 1
    assert pairs(Runs.of([3, 7], 2, 0, pitch=[-1, 0], stride=0)) == {(3, 0), (2, 0), (7, 0)}


@given(some_runs())
@examples(100)
def test_last_reads(runs: Runs) -> None:
    """Of each element; those that nothing touches are told apart."""
    touched = pairs(runs)
    for element in range(ELEMS):
        steps = [step for e, step in touched if e == element]
        assert last_reads(runs, ELEMS)[element] == max(steps, default=-1)


SIZES = st.sampled_from((1, 2, 4))


@given(some_runs(), some_runs(), SIZES, SIZES)
@examples(200)
def test_separation_is_where_memory_begins_to_survive(reads: Runs, writes: Runs, in_size: int, out_size: int) -> None:
    """There every read finds its value, and a byte nearer one does not; None: anywhere. What is written twice is
    destroyed by the first time."""
    accesses = Accesses(STEPS, (None, reads), (Runs.none(), writes))
    sizes = in_size, out_size
    assert replayed_separation(accesses, 0, 0, *sizes) is None
    apart = replayed_separation(accesses, 1, 1, *sizes)
    if apart is None:
        assert all(survives(accesses, 1, 1, sizes, at) for at in range(-ELEMS * in_size, ELEMS * out_size + 1))
    else:
        assert survives(accesses, 1, 1, sizes, apart)
        assert not survives(accesses, 1, 1, sizes, apart - 1)


@given(some_runs(), some_runs(), st.permutations(range(ELEMS)), st.permutations(range(ELEMS)))
@examples(100)
def test_separation_of_what_lies_in_pieces(reads: Runs, writes: Runs, inside: list[int], out: list[int]) -> None:
    """Where each element lies is asked, whichever tensor it is of."""
    accesses = Accesses(STEPS, (reads,), (writes,))
    at = np.array(inside, dtype=np.int64), np.array(out, dtype=np.int64)
    apart = replayed_separation(accesses, 0, 0, 2, 1, *at)
    if apart is not None:
        assert survives(accesses, 0, 0, (2, 1), apart, (inside, out))
        assert not survives(accesses, 0, 0, (2, 1), apart - 1, (inside, out))


@pytest.mark.parametrize("elems", [1, 5])
def test_of_unknown_order_all_is_read_until_all_is_written(elems: int) -> None:
    """So that no byte may be shared, either way."""
    node = node_of("ADD", None, [activation((elems,)), constant((elems,))], (DType.INT8,))
    found = unknown_accesses(node)
    assert found.reads[1] is None
    assert found.reads[0] is not None
    assert pairs(found.reads[0]) == {(e, step) for e in range(elems) for step in range(found.steps)}
    assert pairs(found.writes[0]) == {(e, 0) for e in range(elems)}
    assert replayed_separation(found, 0, 0, 1, 1) == elems
