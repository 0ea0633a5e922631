"""Buffers in several memories: safe, within them, and with as little traffic to the slow ones as there can be."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.backends.json import from_json, to_json
from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.memory.traffic import groups_of
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.options import Options
from diagmem.planning.place import optimal
from diagmem.planning.plan import Plan, findings_of
from diagmem.validation import Fault
from tests.backends.c.models import tiny
from tests.networks import Net, random_net
from tests.profiles import examples


def least_cost(plan: Plan, pools: tuple[tuple[int, float], ...]) -> float | None:
    """Of all ways to put the plan's buffers into pools, each placed by the exact allocator: in the plan's own order."""
    needs = footprint(plan.graph, plan.options)
    problem = build_problem(needs, plan.schedule)
    groups = groups_of(needs, plan.schedule, problem.buffers)
    line = max(b.align_bytes for b in problem.buffers)

    @cache
    def size_of(inside: tuple[int, ...]) -> int:
        members = [b for g in inside for b in groups[g].members]
        size = optimal(replace(problem.part(members), lower_bound_bytes=0)).arena_bytes if members else 0
        return -(-size // line) * line

    best = None
    for choice in itertools.product(range(2), repeat=len(groups)):
        cost = sum(group.traffic_bytes * pools[n][1] for group, n in zip(groups, choice, strict=True))
        inside = [tuple(g for g, at in enumerate(choice) if at == n) for n in range(2)]
        if (best is None or cost < best) and all(size_of(inside[n]) <= pools[n][0] for n in range(2)):
            best = cost
    return best


@given(st.integers(0, 2**32), st.integers(10, 90), st.integers(40, 140))
@examples(15)
def test_nothing_is_cheaper(seed: int, fast_percent: int, slow_percent: int) -> None:
    """The plan costs what the best of all choices does if that is proven, the bound is below that, and where nothing
    fits something is missing. The plan is safe in any case."""
    graph = random_net(seed, most_ops=3)
    single = diagmem.plan(graph, schedule="file", effort="quick").arena_bytes
    fast, slow = max(1, single * fast_percent // 100), max(1, single * slow_percent // 100)
    made = diagmem.plan(graph, schedule="file", effort="quick", pools=(f"fast:{fast}", f"slow:{slow}:4"))
    found = made.plan.pools
    best = least_cost(made.plan, ((fast, 1.0), (slow, 4.0)))
    if found.missing_bytes:
        assert best is None
        assert {finding.fault for finding in findings_of(made.plan)} == {Fault.POOL_OVERRUN}
    else:
        assert findings_of(made.plan) == []
        assert best is not None
        assert found.lower_bound <= best <= found.cost
        assert not found.is_optimal or found.cost == best


def test_traffic_is_what_kernels_touch() -> None:
    """A convolution reads its window, where it is inside the image, once for each pixel; an element-wise op reads
    each byte once; the caller writes the input and reads the output."""
    net = Net()
    x = net.input(1, 4, 4, 3)
    y = net.conv(x, 5, kernel=3)
    graph = net.graph(net.relu(y))
    needs, schedule = footprint(graph, Options()), Schedule.whole((0, 1))
    problem = build_problem(needs, schedule)
    traffic = {problem.buffers[g.members[0]].name: g.traffic_bytes for g in groups_of(needs, schedule, problem.buffers)}
    assert traffic == {"t0": 48 + (2 + 3 + 3 + 2) ** 2 * 3, "t2": 80 + 80, "t3": 80 + 80}


def test_what_fits_the_fastest_is_all_there() -> None:
    """And is the plan for one arena, layer by layer."""
    graph = tiny()
    single, made = diagmem.plan(graph, schedule="best"), diagmem.plan(graph, pools=("fast:64K", "slow:64K"))
    assert made.plan.storage == single.plan.storage
    assert [use.used_bytes for use in made.plan.pools.uses] == [single.arena_bytes, 0]
    assert made.plan.pools.is_optimal


POOLS = ("fast:140", "slow:1K:9")


@pytest.mark.parametrize("options", [{}, {"schedule": "rows"}, {"schedule": "rows", "input_rows": True}, {"align": 16}])
def test_every_kind_of_plan(options: dict[str, Any]) -> None:
    """Whole, by rows, streamed, aligned: within the pools, which are both used, and safe."""
    pools = POOLS if "input_rows" not in options else ("fast:100", "slow:1K:9")
    made = diagmem.plan(tiny(), pools=pools, **options)
    assert findings_of(made.plan) == []
    assert all(0 < use.used_bytes <= use.pool.capacity_bytes for use in made.plan.pools.uses)
    assert sum(use.used_bytes for use in made.plan.pools.uses) == made.arena_bytes


def test_what_is_missing_makes_it_fit() -> None:
    """A plan that is too large says by how much, and with that much more it is not."""
    made = diagmem.plan(tiny(), pools=("fast:64", "slow:100:2"))
    assert made.plan.pools.missing_bytes > 0
    again = diagmem.plan(tiny(), pools=[use.enlarged for use in made.plan.pools.uses])
    assert again.plan.pools.missing_bytes == 0


# What the validator finds


def written() -> tuple[Graph, dict[str, Any]]:
    graph = tiny()
    value: dict[str, Any] = json.loads(json.dumps(to_json(diagmem.plan(graph, pools=POOLS, skip="all"))))
    return graph, value


def faults(graph: Graph, value: dict[str, Any]) -> set[Fault]:
    return {finding.fault for finding in findings_of(from_json(value, graph))}


def test_a_buffer_in_another_pool_is_found() -> None:
    """Each tensor, moved to each other pool at the offset that it has: it is over the end, or destroys something, or
    that pool has just then nothing there; some of each."""
    graph, value = written()
    assert faults(graph, value) == set()
    found = []
    for tensor, pool in itertools.product(range(len(value["tensors"])), value["pools"]):
        moved = copy.deepcopy(value)
        if moved["tensors"][tensor]["pool"] != pool["name"]:
            moved["tensors"][tensor]["pool"] = pool["name"]
            found.append(faults(graph, moved))
    seen = set().union(*found)
    assert {Fault.OVERWRITTEN, Fault.ACROSS_POOLS} <= seen


@pytest.mark.parametrize("at", ["over the end", "behind the end", "below"])
def test_no_offset_reaches_into_the_next_pool(at: str) -> None:
    """Though its pools lie one behind the other in a plan, an offset too large is outside, not in the neighbour."""
    graph, value = written()
    first = value["pools"][0]
    tensor = next(row for row in value["tensors"] if row["pool"] == first["name"])
    tensor["offset"] = {"over the end": first["used_bytes"] - 1, "behind the end": first["used_bytes"], "below": -1}[at]
    assert faults(graph, value) & {Fault.OUTSIDE, Fault.ACROSS_POOLS}


def test_a_pool_that_is_too_small_is_found() -> None:
    graph, value = written()
    value["pools"][1]["capacity_bytes"] = value["pools"][1]["used_bytes"] - 1
    assert faults(graph, value) == {Fault.POOL_OVERRUN}


def test_state_lives_in_a_pool() -> None:
    """A variable, and what reads it, in two memories."""
    net = Net()
    x, state = net.input(1, 4, 4, 2), net.variable(1, 4, 4, 2)
    graph = net.graph(net.add(net.relu(x), net.opaque(x, state)))
    made = diagmem.plan(graph, pools=("fast:64", "slow:1K"))
    assert findings_of(made.plan) == []
    assert all(use.used_bytes for use in made.plan.pools.uses)
