"""Every plan's effort is bounded, counted, and said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

import diagmem
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph, Tensor
from diagmem.planning import removal
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.options import OF_A_PLAN, Options
from diagmem.planning.order.search import Search, search, under_bound
from diagmem.planning.place import exact
from diagmem.planning.place.effort import EFFORTS, LARGE, MANY, NORMAL, Effort, SharedBudget
from diagmem.transforms import TRANSFORMS
from tests.cli.calling import call
from tests.networks import random_net

ROWS = {"schedule": "rows"}


def side_by_side(branches: int) -> Graph:
    """So many branches of different sizes, added up at the end: the bound over all orders is far below any order."""
    b = Builder("wide", DType.INT8)
    x = b.conv(b.input(1, 4, 4, 3), 4, 3)
    ends: list[Tensor] = [b.conv(b.conv(x, 5 + n % 3, 1), 4, 1) for n in range(branches)]
    while len(ends) > 1:
        ends = [b.add(one, other) for one, other in zip(ends[::2], ends[1::2], strict=True)]
    return b.graph(ends[0])


def test_names_are_known_to_options_and_allocators() -> None:
    """One list for people, one for the work that each name stands for."""
    assert tuple(EFFORTS) == OF_A_PLAN["effort"].choices
    for little, more in pairwise(EFFORTS.values()):
        assert (little.fits, little.nodes_apart, little.proof) < (more.fits, more.nodes_apart, more.proof)


def test_effort_grows_gently() -> None:
    """Ten times the buffers or ops: never ten times the work."""
    assert NORMAL.fits_for(MANY) == NORMAL.most_fits
    assert NORMAL.fits_for(10 * MANY) == NORMAL.most_fits // 10
    assert NORMAL.states_for(LARGE) == NORMAL.states
    assert NORMAL.states_for(10 * LARGE) == NORMAL.states // 10
    assert NORMAL.nodes_for(2 * LARGE, may_overlap=False) == NORMAL.nodes_apart // 2


def test_a_purse_is_never_empty_and_never_overdrawn() -> None:
    """Each proof gets half of what is left at the most."""
    budget = SharedBudget(8.0)
    spent = 0.0
    for _ in range(20):
        share = budget.share(3.0)
        assert 0 < share <= 3.0
        budget.spend(share)
        spent += share
    assert spent < 8.0


def test_proofs_are_paid_from_the_purse(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty one nothing is asked of the solver, and the plan is made all the same."""
    asked: list[object] = []
    monkeypatch.setattr(exact, "solved", lambda *given: asked.append(given))
    problem_needs = Effort.named("normal")
    assert problem_needs.budget is not None
    problem_needs.budget.spend(problem_needs.budget.proof)
    from diagmem.planning.place import optimal
    from tests.planning.problems import sliding_rows

    problem = sliding_rows(1, 30)
    assert problem.is_met_by(optimal(problem, problem_needs.times(0.01)).offsets)
    assert not asked


def in_groups(groups: int) -> Graph:
    """Concatenated branches side by side: whether each concatenation can go is tried with an order of its own."""
    b = Builder("groups", DType.INT8)
    x = b.conv(b.input(1, 4, 4, 3), 4, 3)
    ends = [
        b.conv(b.concat(*(b.conv(b.conv(x, 3 + n % 5, 1), 2 + k, 1) for k in range(3))), 4, 3) for n in range(groups)
    ]
    while len(ends) > 1:
        ends = [b.add(one, other) for one, other in zip(ends[::2], ends[1::2], strict=True)]
    return b.graph(ends[0])


@pytest.mark.parametrize("states", [10, 20])
def test_trials_of_removal_share_their_states(monkeypatch: pytest.MonkeyPatch, states: int) -> None:
    """However many there are, all together look at a few times what one search may."""
    asked: list[int] = []
    spent: list[int] = []

    def counted(needs: Footprint, most_states: int) -> Search:
        found = search(needs, most_states)
        asked.append(most_states)
        spent.append(found.states)
        return found

    monkeypatch.setattr(removal, "search", counted)
    effort = replace(Effort.named("normal"), states=states)
    removal.without_ops(removal.Removed(in_groups(4), ()), Options(), list(TRANSFORMS), 300, effort)
    left = [max(0, removal.MOST_SEARCHES * states - sum(spent[:trial])) for trial in range(len(asked))]
    assert asked == [min(states, most) for most in left]
    assert asked[-1] == 0


def test_a_plan_says_how_hard_it_was_looked_for() -> None:
    """In JSON and for people: what is proven is not bounded; what is not says by how much it may be too large."""
    proven = diagmem.plan("zoo:vww_96_int8", schedule="best").to_json()["effort"]
    assert proven == {"level": "normal", "time_limit_seconds": None, "is_bounded": False, "gap_bytes": 0}
    made = diagmem.plan(side_by_side(8), schedule="best", effort="quick")
    said = made.to_json()["effort"]
    assert said["is_bounded"] == (not made.optimal)
    assert said["gap_bytes"] == made.arena_bytes - made.lower_bound_bytes
    assert said["level"] == "quick"


def test_the_command_line_says_it_too() -> None:
    """Bounded plans, and plans that the clock may have ended."""
    done = call("plan", "zoo:kws_dscnn_int8", "--effort", "quick", "-O", "time_limit=60", "--verbose")
    assert (
        "effort       quick: the search stopped before it could prove the plan optimal; "
        "--effort thorough searches further" in done.stdout
    )
    assert "time limit 60 s: another run may find a different plan" in done.stdout
    found = json.loads(call("plan", "zoo:kws_dscnn_int8", "-O", "time_limit=60", "--json", "-").stdout)["effort"]
    assert found["time_limit_seconds"] == 60
    assert call("plan", "zoo:kws_dscnn_int8", "-O", "time_limit=0").returncode == 2
    assert call("plan", "zoo:kws_dscnn_int8", "--effort", "heroic").returncode == 2


def test_bad_efforts_are_refused() -> None:
    with pytest.raises(diagmem.DiagmemError, match="known: quick, normal, thorough"):
        diagmem.plan("zoo:kws_dscnn_int8", effort="heroic")
    with pytest.raises(diagmem.DiagmemError, match="must be above 0"):
        diagmem.plan("zoo:kws_dscnn_int8", time_limit=float("nan"))


def test_a_clock_ends_the_search() -> None:
    """Hardly any time: a plan all the same, and one that was checked."""
    made = diagmem.plan(side_by_side(8), time_limit=1e-6)
    assert diagmem.check(side_by_side(8), made.plan) == []


@pytest.mark.parametrize("seed", range(30))
def test_costs_are_carried_along_as_if_asked_anew(seed: int) -> None:
    """Under a bound, the list scheduler takes the ops that it would take if it asked for every cost at every step."""
    needs = footprint(random_net(seed, most_ops=12), Options(skip="all"))
    whole = under_bound(needs, None)
    assert whole == asked_anew(needs, None)
    for bound in (max(needs.pressure(whole)) - 1, needs.least_pressure):
        assert under_bound(needs, bound) == asked_anew(needs, bound)
    assert under_bound(needs, None, whole[:3]) == whole


def asked_anew(needs: Footprint, bound: int | None) -> list[int]:
    """The op that leaves the least live, then the one that became ready last."""
    order: list[int] = []
    ready: list[int] = []
    live = needs.live_at_start
    while True:
        done = sum(1 << op for op in order)
        woken = [op for op, before in enumerate(needs.after) if set(before) <= set(order)]
        last = needs.followers[order[-1]] if order else range(len(needs.after))
        ready += [op for op in last if op in woken and op not in ready and op not in order]
        costs = {op: needs.move(op, done) for op in ready}
        fitting = [(costs[op][1], -place, op) for place, op in enumerate(ready) if _fits(live + costs[op][0], bound)]
        if not fitting:
            return order
        op = min(fitting)[2]
        live += costs[op][1]
        ready.remove(op)
        order.append(op)


def _fits(units: int, bound: int | None) -> bool:
    return bound is None or units <= bound
