"""Branch and bound, and squeaky wheel optimisation: valid, exact where they say so, the same every time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from unittest.mock import ANY

import pytest
from hypothesis import given

from diagmem.model.errors import PlanError
from diagmem.planning.needs.problem import Buffer, Problem
from diagmem.planning.place import branch_and_bound, compaction, greedy
from diagmem.planning.place.branch_and_bound import BranchAndBound, FeasibilitySearch, cliques, sections
from diagmem.planning.place.branch_and_bound_loops import FAILED, SOLVED
from diagmem.planning.place.compaction import Compaction
from diagmem.planning.place.effort import EFFORTS, Effort, Meter, SharedBudget
from diagmem.planning.place.exact import multi_start, optimal
from diagmem.planning.place.local_search import SqueakyWheel
from tests.planning.problems import cut_rectangle, problems, sliding_rows, smallest_arena
from tests.profiles import examples

LITTLE = Effort(fits=100, most_fits=3_000, nodes=300, nodes_apart=2_000, proof=0.5, moves=20, most_moves=1_000)


def compacted(problem: Problem, effort: Effort = LITTLE) -> Compaction:
    """What the search makes of a greedy start, without any other method before it."""
    search = Compaction.of(problem, greedy(problem), problem.lower_bound_bytes, effort)
    search.placement()
    return search


@given(problems(most=9))
@examples(80)
def test_compaction_keeps_all_separations(problem: Problem) -> None:
    """Whatever it finds solves the problem, is no larger than what it began with, and its bound is no larger."""
    found = compacted(problem)
    assert problem.is_met_by(found.offsets)
    assert found.bound <= found.arena_bytes <= problem.arena_bytes(greedy(problem))


@given(problems())
@examples(100)
def test_bounds_are_never_above_the_optimum(problem: Problem) -> None:
    """What the search proves to be needed, trying everything needs too."""
    least = smallest_arena(problem)
    assert compacted(problem).bound <= least
    assert multi_start(problem, LITTLE).lower_bound_bytes <= least


@given(problems())
@examples(100)
def test_branch_and_bound_without_jumps_is_exact(problem: Problem) -> None:
    """Buffers kept apart: a placement in the least arena, and none in less."""
    apart = replace(problem, overlaps={})
    least, members = smallest_arena(apart), range(len(apart.buffers))
    tree = BranchAndBound.of(apart, members)
    start = tree.start(tree.sorted_by("TWA"), 2)
    outcome, placed = tree.run(start, least, 100_000, jumps=False)
    assert outcome == SOLVED
    assert apart.is_met_by([placed[b] for b in members])
    assert tree.run(start, least - apart.unit_bytes, 100_000, jumps=False) == (FAILED, {})


@given(problems())
@examples(100)
def test_branch_and_bound_is_exact_where_all_separations_are_positive(problem: Problem) -> None:
    """Then nobody stands on one that starts above it, and the bound that the search proves is the smallest arena."""
    positive = replace(problem, overlaps={pair: max(1, apart) for pair, apart in problem.overlaps.items()})
    found = compacted(positive, replace(LITTLE, nodes=20_000, nodes_apart=20_000))
    assert found.arena_bytes == smallest_arena(positive)


@pytest.mark.parametrize("seed", range(10))
def test_no_choice_is_refused_that_leads_to_the_only_placements(seed: int) -> None:
    """Pieces that leave no gap: the sections that overflowed last are full to the last byte, and not fuller."""
    problem = cut_rectangle(seed, 20)
    members = range(len(problem.buffers))
    tree = BranchAndBound.of(problem, members)
    start = tree.start(tree.sorted_by("TWA"), 2)
    outcome, placed = tree.run(start, problem.lower_bound_bytes, 50_000, jumps=False)
    assert outcome == SOLVED
    assert problem.is_met_by([placed[b] for b in members])


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_rectangle_is_put_together_again(seed: int) -> None:
    """Forty pieces that fill an arena without a gap: greedy leaves gaps, the tree does not."""
    problem = cut_rectangle(seed, 40)
    found = optimal(problem, replace(LITTLE, nodes_apart=40_000, proof=0))
    assert problem.is_met_by(found.offsets)
    assert found.is_optimal


def test_cutting_leaves_work_for_the_search() -> None:
    """The test above would be empty if greedy did it."""
    cut = [cut_rectangle(seed, 40) for seed in range(6)]
    assert sum(problem.arena_bytes(greedy(problem)) > problem.lower_bound_bytes for problem in cut) > 3


@pytest.mark.parametrize("seed", range(3))
def test_the_same_problem_gets_the_same_placement(seed: int) -> None:
    """Twice, and with other names."""
    problem = sliding_rows(seed, 60)
    renamed = replace(problem, buffers=tuple(replace(b, name=f"other {b.name}") for b in problem.buffers))
    assert multi_start(problem, LITTLE) == multi_start(problem, LITTLE) == multi_start(renamed, LITTLE)


@pytest.mark.parametrize("seed", range(3))
def test_more_effort_is_never_worse(seed: int) -> None:
    """Turns only get longer, so what little effort finds more effort finds too, or better."""
    problem = sliding_rows(seed, 60)
    arenas = [multi_start(problem, LITTLE.times(share)).arena_bytes for share in (0, 0.2, 1)]
    assert all(more <= less for less, more in pairwise(arenas))


@dataclass
class Answered(Compaction):
    """One byte anywhere, and a tree that finds a place for it wherever the arena has so many bytes."""

    least: int = 0

    def _reach(self, wheel: SqueakyWheel, target: int, nodes: int) -> bool:
        self.meter.nodes -= 1
        if target >= self.least:
            self.offsets = (target - 1,)
        return target >= self.least


@pytest.mark.parametrize("least", [100, 101, 737, 998])
def test_steps_down_become_as_small_as_can_be(least: int) -> None:
    """However far away the goal is, the least arena that the tree can find is asked for."""
    problem = Problem((Buffer("a", 1, 0, 1),), {})
    search = Answered(problem, (999,), 100, 100, 0, 0, Meter(150), least=least)
    search._descend(SqueakyWheel.of(problem), 150)
    assert search.arena_bytes == least


def test_what_is_too_large_for_the_tree_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for again and again."""
    monkeypatch.setattr(compaction, "MOST_MEMBERS", 10)
    problem = cut_rectangle(3, 40)
    assert compacted(problem).offsets == greedy(problem)


def test_a_size_that_is_asked_for_again_is_looked_for_otherwise() -> None:
    """The present offsets give the same order to begin with, all other orders are shaken anew."""
    problem = sliding_rows(2, 80)
    offsets, limit = greedy(problem), problem.lower_bound_bytes
    first, second = (FeasibilitySearch.of(problem, range(80), limit, offsets, seed).starts for seed in (0, 1))
    assert first[0].order == second[0].order
    assert all(one.order != other.order for one, other in zip(first[1:], second[1:], strict=True))


@pytest.mark.parametrize("may_overlap", [True, False])
def test_orders_that_bring_nothing_are_shaken_anew(may_overlap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many nodes, where buffers may overlap; but not the first, which goes by offsets."""
    monkeypatch.setattr(branch_and_bound, "RENEWED_NODES", 100)
    problem = sliding_rows(2, 80) if may_overlap else cut_rectangle(3, 40)
    offsets = greedy(problem)
    tried = FeasibilitySearch.of(
        problem, range(len(problem.buffers)), problem.lower_bound_bytes - problem.unit_bytes, offsets
    )
    before = [*tried.starts]
    for _ in range(8 * len(before)):
        assert tried.run(200)[0] is None
    is_new = [start is not old for start, old in zip(tried.starts, before, strict=True)]
    assert is_new == [may_overlap and at > 0 for at in range(len(before))]
    assert all(sorted(start.order) == sorted(old.order) for start, old in zip(tried.starts, before, strict=True))


def test_a_goal_ends_the_search() -> None:
    """Where the capacity is met nobody looks further; the bound stays honest."""
    problem = cut_rectangle(1, 30)
    start = problem.arena_bytes(greedy(problem))
    assert optimal(problem, LITTLE, start).arena_bytes <= start
    assert Compaction.of(problem, greedy(problem), 0, LITTLE, start).placement().offsets == greedy(problem)


def test_a_time_limit_ends_the_search() -> None:
    """It is over before the counted work is."""
    effort = Effort.named("thorough", 0.01)
    search = Compaction.of(sliding_rows(0, 80), greedy(sliding_rows(0, 80)), 0, effort)
    search.placement()
    assert search.meter.nodes > 0
    assert Meter(1, SharedBudget(0, 0.0)).is_late
    assert not Meter(1, None).is_late


def test_efforts_have_names() -> None:
    """Each does more than the one before; what is not known is said in one line."""
    assert list(EFFORTS.values()) == sorted(EFFORTS.values(), key=lambda effort: effort.fits)
    assert 2 < (SharedBudget(0, 3).seconds_left or 0) <= 3
    assert Effort.named("quick", 3).budget == replace(SharedBudget(1.0, 3, 0.2), begin=ANY)
    with pytest.raises(PlanError, match="quick, normal, thorough"):
        Effort.named("heroic")
    with pytest.raises(PlanError, match="must be above 0"):
        Effort.named("quick", float("nan"))


def test_sections_are_the_largest_sets_alive_at_once() -> None:
    """A step whose buffers are all alive at another one is left out."""
    problem = Problem((Buffer("a", 4, 0, 3), Buffer("b", 2, 1, 2), Buffer("c", 1, 2, 9)), {})
    assert cliques(problem, [0, 1, 2]) == [[0, 1], [0, 2]]
    cut, load = sections(problem, [0, 1, 2])
    assert load == [6, 5]
    assert (list(cut.first), list(cut.last)) == ([0, 0, 1], [1, 0, 1])


def test_squeaky_wheel_places_again_only_what_moved() -> None:
    """Its offsets are those of a first fit of the order that it ends with, each fit anew."""
    problem = sliding_rows(3, 60)
    wheel = SqueakyWheel.of(problem)
    limit = problem.arena_bytes(greedy(problem)) + 20
    placed = wheel.within(limit, range(60), rounds=500, fits=10**6)
    assert placed is not None
    again = SqueakyWheel.of(problem).with_others({}, placed)
    assert tuple(placed[b] for b in range(60)) == again
