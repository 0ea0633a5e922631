"""Min-conflicts: valid where it says so, the same every time, and where first fit gives up."""

from __future__ import annotations

from hypothesis import given

from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.place import greedy
from diagmem.planning.place.effort import MOST_PLACES, Meter, SharedBudget
from diagmem.planning.place.first_fit_loops import links
from diagmem.planning.place.local_search import COSTS, MinConflicts, turned_pairs
from tests.planning.problems import problems, sliding_rows, smallest_arena
from tests.profiles import examples


@given(problems(most=7))
@examples(80)
def test_whatever_is_found_keeps_all_separations(problem: Problem) -> None:
    """In the least arena as in a larger one; and in less than the least nothing is found."""
    least, members = smallest_arena(problem), range(len(problem.buffers))
    search = MinConflicts(problem, Meter(0))
    for limit in (least, least + problem.unit_bytes):
        found = search.within(limit, members, greedy(problem), 2_000)
        if found is not None:
            offsets = [found[member] for member in members]
            assert problem.is_met_by(offsets)
            assert problem.arena_bytes(offsets) <= limit
    assert search.within(least - problem.unit_bytes, members, greedy(problem), 200) is None


def test_rows_get_below_a_greedy_placement() -> None:
    """Of some problems, whatever a conflict costs."""
    below = set()
    for seed in range(6):
        problem = sliding_rows(seed, 60)
        start = greedy(problem)
        search = MinConflicts(problem, Meter(0))
        for way in range(len(COSTS)):
            if search.within(problem.arena_bytes(start) - problem.unit_bytes, range(60), start, 2_000) is not None:
                below.add(way)
    assert below == set(range(len(COSTS)))


def test_one_that_lives_with_hundreds_finds_its_place() -> None:
    """Not all places are looked at each time, but one is found."""
    count = MOST_PLACES
    short = [Buffer(f"{n}", 2, n, n + 1) for n in range(count)]
    problem = Problem((*short, Buffer("long", 3, 0, count)), {}, 1, (5,) * count, 5)
    start = [3 * (n % 2) for n in range(count)] + [2]
    found = MinConflicts(problem, Meter(0)).within(5, range(count + 1), tuple(start), 5_000)
    assert found is not None
    assert problem.is_met_by([found[n] for n in range(count + 1)])


def test_the_clock_ends_it() -> None:
    """Nothing is begun once it is late."""
    problem = sliding_rows(0, 30)
    assert MinConflicts(problem, Meter(0, SharedBudget(0, 0.0))).within(10**6, range(30), greedy(problem), 100) is None


def test_pairs_know_each_other() -> None:
    """Turned twice each pair is itself, and turned once its first is the second."""
    problem = sliding_rows(1, 30)
    flat = links(problem)
    turned = turned_pairs(flat)
    own = [b for b in range(30) for _ in range(flat.near_from[b], flat.near_from[b + 1])]
    assert [flat.near[q] for q in turned] == own
    assert [turned[q] for q in turned] == list(range(len(turned)))
