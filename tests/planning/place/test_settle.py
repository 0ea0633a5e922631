"""Buffers that settle within a limit: valid where they say so, the same every time, and where first fit gives up."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import given

from diagmem.planning.compiled import COMPILED, PLAIN
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.place import greedy
from diagmem.planning.place.effort import Meter, Purse
from diagmem.planning.place.flat import links
from diagmem.planning.place.settle import WAYS, Settle, turned_pairs
from diagmem.planning.place.settle_loops import HALVED_AFTER, MOST_PLACES
from tests.planning.problems import problems, sliding_rows, smallest_arena
from tests.profiles import examples

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="needs the extra 'fast'")


@given(problems(most=7))
@examples(80)
def test_whatever_settles_keeps_all_separations(posed: Problem) -> None:
    """In the least arena as in a larger one; and in less than the least nothing settles."""
    least, members = smallest_arena(posed), range(len(posed.buffers))
    settle = Settle(posed, PLAIN, Meter(0))
    for limit in (least, least + posed.unit_bytes):
        found = settle.within(limit, members, greedy(posed), 2_000)
        if found is not None:
            offsets = [found[member] for member in members]
            assert posed.is_met_by(offsets)
            assert posed.arena_bytes(offsets) <= limit
    assert settle.within(least - posed.unit_bytes, members, greedy(posed), 200) is None


def test_rows_settle_below_a_greedy_placement() -> None:
    """Whichever way it is said how bad it is to be in another's place, of some problems."""
    below = set()
    for seed in range(6):
        posed = sliding_rows(seed, 60)
        start = greedy(posed)
        settle = Settle(posed, PLAIN, Meter(0))
        for way in range(len(WAYS)):
            if settle.within(posed.arena_bytes(start) - posed.unit_bytes, range(60), start, 2_000) is not None:
                below.add(way)
    assert below == set(range(len(WAYS)))


@needs_numba
@pytest.mark.parametrize("seed", range(3))
def test_machine_code_settles_the_same(seed: int) -> None:
    """The same offsets, moves and random numbers, call after call."""
    posed = sliding_rows(seed, 40)
    limit = posed.arena_bytes(greedy(posed)) - posed.unit_bytes
    plain, fast = (Settle(posed, loops, Meter(0)) for loops in (PLAIN, COMPILED))
    for _ in WAYS:
        found = [settle.within(limit, range(40), greedy(posed), 500) for settle in (plain, fast)]
        assert found[0] == found[1]
        assert (plain.moves, plain.chance) == (fast.moves, fast.chance)


@needs_numba
def test_weights_are_halved_alike() -> None:
    """Where nothing can settle, and pairs have become heavier so often that all weights were halved."""
    pair = Problem((Buffer("a", 4, 0, 2), Buffer("b", 4, 0, 2), Buffer("c", 3, 1, 2)), {})
    made = [Settle(pair, loops, Meter(0)) for loops in (PLAIN, COMPILED)]
    for settle in made:
        assert settle.within(9, range(3), (0, 1, 2), 3 * HALVED_AFTER) is None
    assert made[0].chance == made[1].chance


def test_one_that_lives_with_hundreds_finds_its_place() -> None:
    """Not all places are looked at each time, but one is found."""
    count = MOST_PLACES
    short = [Buffer(f"{n}", 2, n, n + 1) for n in range(count)]
    posed = Problem((*short, Buffer("long", 3, 0, count)), {}, 1, (5,) * count, 5)
    start = [3 * (n % 2) for n in range(count)] + [2]
    found = Settle(posed, PLAIN, Meter(0)).within(5, range(count + 1), tuple(start), 5_000)
    assert found is not None
    assert posed.is_met_by([found[n] for n in range(count + 1)])


def test_the_clock_ends_it() -> None:
    """Nothing is begun once it is late."""
    posed = sliding_rows(0, 30)
    assert Settle(posed, PLAIN, Meter(0, Purse(0, 0.0))).within(10**6, range(30), greedy(posed), 100) is None


def test_pairs_know_each_other() -> None:
    """Turned twice each pair is itself, and turned once its first is the second."""
    posed = sliding_rows(1, 30)
    flat = links(posed)
    turned = turned_pairs(flat)
    own = [b for b in range(30) for _ in range(flat.near_from[b], flat.near_from[b + 1])]
    assert [flat.near[q] for q in turned] == own
    assert [turned[q] for q in turned] == list(range(len(turned)))
