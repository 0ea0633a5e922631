"""Every allocator's offsets keep every separation; the optimal one's are the smallest there are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given

from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.options import Options
from diagmem.planning.order.search import file_order
from diagmem.planning.place import Allocator, greedy, optimal, pinned
from diagmem.planning.place.effort import NORMAL
from diagmem.planning.place.exact import (
    components,
    forest_bound,
    place_forest,
    solve_by_cp_sat,
    spanning_forest,
)
from diagmem.planning.place.local_search import SqueakyWheel, improve, modified_heap, reordered_heap
from tests.networks import chain
from tests.planning.problems import problems, smallest_arena
from tests.profiles import examples


@pytest.mark.parametrize("name", ["heap", "greedy", "optimal", "multi-start"])
@given(problem=problems(most=9))
@examples(60)
def test_offsets_keep_all_separations(name: str, problem: Problem) -> None:
    """Whatever the allocator, its offsets solve the problem, and its bound is no larger than its arena."""
    placement = Allocator.named(name, NORMAL)(problem)
    assert problem.is_met_by(placement.offsets)
    assert placement.lower_bound_bytes <= placement.arena_bytes == problem.arena_bytes(placement.offsets)


@given(problems())
@examples(150)
def test_optimal_equals_exhaustive_search(problem: Problem) -> None:
    """On up to six buffers the optimal allocator finds, and proves, what trying everything finds."""
    placement = optimal(problem)
    assert placement.arena_bytes == smallest_arena(problem)
    assert placement.is_optimal


@pytest.mark.parametrize("as_rectangles", [False, True])
@given(problem=problems())
@examples(60)
def test_cp_sat_equals_exhaustive_search(problem: Problem, as_rectangles: bool) -> None:
    """CP-SAT on the whole problem, without the heuristics and reductions in front of it, finds the same; also where it
    may see buffers as rectangles, which those that overlap are not."""
    members = range(len(problem.buffers))
    top = sum(-(-b.size_bytes // 4) * 4 for b in problem.buffers)
    hint = SqueakyWheel.of(problem).with_others({}, members)
    solution = solve_by_cp_sat(problem, members, hint, 0, top, NORMAL, as_rectangles)
    assert solution.offsets is not None
    assert problem.is_met_by([solution.offsets[b] for b in members])
    assert solution.bound == smallest_arena(problem)


@given(problems())
@examples(150)
def test_what_is_left_out_of_the_core_finds_a_place(problem: Problem) -> None:
    """Within any limit that the core can keep, what was removed can be put back."""
    arena = smallest_arena(problem)
    wheel = SqueakyWheel.of(problem)
    hard, removed = wheel.core(arena)
    assert sorted([*hard, *removed]) == list(range(len(problem.buffers)))
    placed = dict(zip(hard, optimal(problem.part(hard)).offsets, strict=True))
    offsets = wheel.with_others(placed, reversed(removed))
    assert problem.is_met_by(offsets)
    assert problem.arena_bytes(offsets) <= arena


@given(problems())
@examples(150)
def test_forests_are_solved_exactly(problem: Problem) -> None:
    """On buffers without a circle the two-number method is exact; on others it bounds from below."""
    members = spanning_forest(problem, range(len(problem.buffers)))
    inner = problem.part(members)
    arena = smallest_arena(inner) if members else 0
    top = sum(-(-b.size_bytes // 4) * 4 for b in problem.buffers)
    assert forest_bound(problem, members, 0, top) == arena
    offsets = place_forest(problem, members, arena)
    assert offsets is not None
    assert problem.part(members).is_met_by([offsets[b] for b in members])
    assert arena <= smallest_arena(problem)


@given(problems(most=5))
@examples(40)
def test_pinned_equals_exhaustive_search(problem: Problem) -> None:
    """Wherever a buffer is pinned, the placement has it there, and is proven to be the smallest."""
    own = problem.buffers[0]
    for at in (0, 4, 8):
        found = pinned(problem, {own.name: at}, NORMAL)
        assert found.offsets[0] == at
        assert problem.is_met_by(found.offsets)
        assert found.arena_bytes == found.lower_bound_bytes == smallest_arena(replace(problem, pins={0: at}))


@given(problems(most=9))
@examples(60)
def test_local_search_only_improves(problem: Problem) -> None:
    """It starts from valid offsets and ends with valid ones, no higher, the same ones every time."""
    start = SqueakyWheel.of(problem).with_others({}, range(len(problem.buffers)))
    found = improve(problem, start, target=0, rounds=20)
    assert problem.is_met_by(found)
    assert problem.arena_bytes(found) <= problem.arena_bytes(start)
    assert found == improve(problem, start, target=0, rounds=20)


def test_components_have_nothing_to_do_with_each_other() -> None:
    """Buffers that never live at once are solved apart."""
    early, late = Buffer("a", 4, 0, 2), Buffer("c", 9, 3, 5)
    problem = Problem((early, Buffer("b", 2, 1, 2), late), {})
    assert components(problem, range(3)) == [[2], [0, 1]]


def test_heap_takes_the_buffer_that_ends_lowest() -> None:
    """Forwards, after the first buffer: of the two that live with it the smaller one goes first."""
    problem = Problem((Buffer("first", 4, 0, 2), Buffer("big", 3, 1, 3), Buffer("small", 2, 1, 3)), {})
    assert modified_heap(problem, backwards=False) == (0, 6, 4)
    assert modified_heap(problem, backwards=True) == (5, 2, 0)


def test_reordering_a_heap_moves_one_buffer_last() -> None:
    """A chain: backwards, the small ones at the end push the larger one up, unless one of them waits."""
    sizes = (2, 3, 2, 2)
    problem = Problem(tuple(Buffer(str(i), n, i, i + 2) for i, n in enumerate(sizes)), {})
    plain = SqueakyWheel.of(problem).with_others({}, reversed(range(4)))
    assert problem.arena_bytes(reordered_heap(problem)) == 5 < problem.arena_bytes(plain)


def test_chains_are_proven_without_cp_sat() -> None:
    """Where convolutions of equal size slide down step by step, the pressure of each step is too low a bound; the
    chain as a whole gives the true one, and OR-tools is not even loaded."""
    code = (
        "import sys; from tests.planning.place.test_place import *; "
        "p = build_problem(*(lambda f: (f, file_order(f)))(footprint(chain(8, 8, 8, 8), Options()))); a = optimal(p); "
        "assert a.is_optimal and a.lower_bound_bytes > p.lower_bound_bytes and 'ortools' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_greedy_meets_the_bound_of_a_bottleneck() -> None:
    """The buffers of the most demanding step go first, output below input."""
    needs = footprint(chain(4, 16), Options())
    problem = build_problem(needs, file_order(needs))
    assert problem.arena_bytes(greedy(problem)) == problem.lower_bound_bytes
