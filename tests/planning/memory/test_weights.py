"""Copies of weights: those that are worth it, in the room that there is, and never destroyed while they are read."""

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
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.model.pools import OpWeights
from diagmem.model.schedule import PUSH
from diagmem.planning.memory.traffic import copies, groups_of, weights_of
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.options import Options
from diagmem.planning.place import optimal
from diagmem.planning.plan import Plan, findings_of
from diagmem.validation import Fault
from tests.backends.c.models import tiny
from tests.execution import with_values
from tests.networks import Net
from tests.profiles import examples

POOLS = ("fast:400", "slow:2K:3")


def chain(kernels: tuple[int, ...], pixels: int) -> Graph:
    """Convolutions behind each other, in float."""
    net = Net(DType.FLOAT32)
    x = net.input(1, pixels, pixels, 1)
    for kernel in kernels:
        x = net.conv(x, 2, kernel=kernel)
    return with_values(net.graph(x))


def least_cost(plan: Plan) -> float:
    """Of all ways to put tensors into the two pools, and to copy weights to the first or not: in the plan's order."""
    needs, copy_pool = footprint(plan.graph, plan.options), plan.options.copy_pool
    assert copy_pool is not None
    fast, slow = plan.options.pools
    problem, weights = build_problem(needs, plan.schedule), weights_of(needs, plan.schedule)
    groups = groups_of(needs, plan.schedule, problem.buffers)
    whole = replace(problem, buffers=(*problem.buffers, *copies(needs, plan.schedule, weights)))
    line = max(b.align_bytes for b in whole.buffers)

    @cache
    def fits(inside: tuple[int, ...], room: int) -> bool:
        size = optimal(replace(whole.part(inside), lower_bound_bytes=0)).arena_bytes if inside else 0
        return -(-size // line) * line <= room

    found: list[float] = []
    for where in itertools.product((0, 1), repeat=len(groups)):
        for copied in itertools.product((False, True), repeat=len(weights)):
            cost = sum(g.traffic_bytes * (fast, slow)[n].cost for g, n in zip(groups, where, strict=True))
            for own, is_copied in zip(weights, copied, strict=True):
                cost += own.copied_cost(fast.cost, copy_pool.flash_cost) if is_copied else own.read_bytes * 7.0
            own_members = [len(problem.buffers) + n for n, is_copied in enumerate(copied) if is_copied]
            inside = [[b for g, at in zip(groups, where, strict=True) if at == n for b in g.members] for n in (0, 1)]
            rooms = (fast.capacity_bytes, slow.capacity_bytes)
            if (not found or cost < min(found)) and all(
                fits(tuple(sorted(members)), room)
                for members, room in zip((inside[0] + own_members, inside[1]), rooms, strict=True)
            ):
                found.append(cost)
    return min(found)


@given(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.integers(2, 4), st.integers(8, 400))
@examples(12)
def test_nothing_is_cheaper(kernels: tuple[int, ...], pixels: int, fast: int) -> None:
    """The plan costs what the best of all choices does where that is proven, and its bound is below that."""
    pools = (f"fast:{fast}", "slow:4K:3")
    graph = chain(kernels, pixels)
    made = diagmem.plan(graph, schedule="file", effort="quick", pools=pools, weights_pool="fast:7")
    found, best = made.plan.pools, least_cost(made.plan)
    assert findings_of(made.plan) == []
    assert found.lower_bound <= best <= found.cost
    assert not found.is_optimal or found.cost == best


def test_what_is_counted() -> None:
    """A convolution reads its weights once for each pixel, a fully connected layer once; the copy is read from flash
    once, and written once."""
    made = diagmem.plan(tiny(), pools=("ram:64K",), weights_pool="ram:5", schedule="file")
    weights = made.plan.weights
    assert weights is not None
    assert [(w.size_bytes, w.read_bytes // w.size_bytes) for w in weights.ops] == [
        (288, 16),
        (144, 16),
        (136, 16),
        (85, 1),
    ]
    copied = 288 + 144 + 136
    assert made.plan.pools.flash_bytes == copied + 85
    plain = diagmem.plan(tiny(), pools=("ram:64K",), schedule="file").plan.pools.uses[0].traffic_bytes
    assert made.plan.pools.uses[0].traffic_bytes == plain + copied * 17
    assert weights.plain_cost == plain + (copied * 16 + 85) * 5


@pytest.mark.parametrize(
    ("pool", "flash", "reads", "pays"), [(1, 9, 1, False), (1, 2, 2, False), (1, 3, 4, True), (3, 3, 99, False)]
)
def test_when_a_copy_pays(pool: float, flash: float, reads: int, pays: bool) -> None:
    """Never for what is read once, and never to a memory that is no faster than flash."""
    assert OpWeights(0, 10, 4, 10 * reads).pays(pool, flash) == pays


def test_off_by_default() -> None:
    plan = diagmem.plan(tiny(), pools=POOLS).plan
    assert (plan.weight_copies, plan.weights, plan.pools.flash_bytes) == ({}, None, 0)
    assert "weights" not in to_json(diagmem.plan(tiny(), pools=POOLS))


def test_by_rows_a_copy_stays_for_all_turns() -> None:
    """From the first turn of its op to the last; the others that live meanwhile keep clear."""
    made = diagmem.plan(tiny(), pools=("ram:4K",), weights_pool="ram:9", schedule="rows")
    assert made.plan.runs_by_rows
    assert findings_of(made.plan) == []
    for buffer in (b for b in made.plan.buffers if b.weights_of is not None):
        steps = [at for at, op in enumerate(made.plan.schedule.ops) if op == buffer.weights_of]
        assert (buffer.first_step, buffer.end_step) == (steps[0], steps[-1] + 1)


@pytest.mark.parametrize("options", [{}, {"schedule": "rows"}, {"schedule": "rows", "input_rows": True}])
def test_ahead_a_copy_lives_a_step_longer(options: dict[str, Any]) -> None:
    """From the last step of another op before its own first one, where there is one."""
    made = diagmem.plan(tiny(), pools=("ram:4K",), weights_pool="ram:9", weights_ahead=True, **options)
    assert findings_of(made.plan) == []
    ops = made.plan.schedule.ops
    for buffer in (b for b in made.plan.buffers if b.weights_of is not None):
        own = ops.index(buffer.weights_of)
        before = [at for at in range(own) if ops[at] != PUSH]
        assert buffer.first_step == (before[-1] if before else own)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights_ahead": True}, "needs weights_pool: name a pool"),
        ({"weights_pool": "fast"}, "give its size"),
        ({"weights_pool": "dtcm", "pools": POOLS}, "none of the pools: fast, slow"),
        ({"weights_pool": "fast:x", "pools": POOLS}, r"not NAME\[:COST\]"),
        ({"weights_pool": "fast:0.5", "pools": POOLS}, "costs from 1"),
        ({"weights_pool": "fast:0", "pools": POOLS}, "costs from 1"),
        ({"weights_pool": "fast", "pools": POOLS, "cores": 2}, "cores"),
        ({"weights_pool": "fast", "pools": POOLS, "kernels": "tflm-reference"}, "diagmem's own kernels"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        diagmem.plan(tiny(), **options)


def test_a_model_without_weights() -> None:
    net = Net()
    graph = net.graph(net.conv(net.input(1, 4, 4, 2), 2))
    with pytest.raises(PlanError, match="values of its weights"):
        diagmem.plan(graph, pools=POOLS, weights_pool="fast")


def test_what_flash_costs_by_default() -> None:
    copy_pool = Options.of({"pools": POOLS, "weights_pool": "fast"}).copy_pool
    assert copy_pool is not None
    assert copy_pool.flash_cost == 4


# What the validator finds


def written(**options: Any) -> tuple[Graph, dict[str, Any]]:
    graph = tiny()
    made = diagmem.plan(graph, pools=("ram:4K",), weights_pool="ram:9", skip="all", **options)
    value: dict[str, Any] = json.loads(json.dumps(to_json(made)))
    return graph, value


def faults(graph: Graph, value: dict[str, Any]) -> set[Fault]:
    return {finding.fault for finding in findings_of(from_json(value, graph))}


@pytest.mark.parametrize("options", [{}, {"schedule": "rows"}, {"schedule": "rows", "input_rows": True}])
def test_a_copy_that_is_elsewhere_is_found(options: dict[str, Any]) -> None:
    """Each copy at each place: what lives there meanwhile is destroyed, or destroys it, unless nothing does."""
    graph, value = written(**options)
    assert faults(graph, value) == set()
    assert len(value["weights"]) == 3
    seen = set()
    end = value["pools"][0]["used_bytes"]
    for number, row in enumerate(value["weights"]):
        for offset in range(0, end - row["bytes"] + 1, 32):
            moved = copy.deepcopy(value)
            moved["weights"][number]["offset"] = offset
            seen |= faults(graph, moved)
    assert Fault.OVERWRITTEN in seen
    assert seen <= {Fault.OVERWRITTEN, Fault.RESULT_LOST}


@pytest.mark.parametrize(("offset", "fault"), [(2, Fault.MISALIGNED), (4092, Fault.OUTSIDE), (-4, Fault.OUTSIDE)])
def test_a_copy_that_is_amiss_is_found(offset: int, fault: Fault) -> None:
    graph, value = written()
    value["weights"][0]["offset"] = offset
    assert fault in faults(graph, value)


def test_a_copy_that_comes_too_early_is_found() -> None:
    """A plan whose copies are made when they are needed, made a step earlier; not the other way round."""
    graph, value = written()
    value["weights_traffic"]["ahead"] = True
    assert faults(graph, value) & {Fault.OVERWRITTEN, Fault.RESULT_LOST}
    graph, value = written(weights_ahead=True)
    assert faults(graph, value) == set()
    del value["weights_traffic"]["ahead"]
    assert faults(graph, value) == set()


def test_a_copy_of_nothing_is_found() -> None:
    """Of an op that has no weights."""
    graph, value = written()
    pool = next(op.number for op in graph.ops if op.kind == "MAX_POOL_2D")
    value["weights"].append({**value["weights"][0], "op": pool})
    assert Fault.PLACE_UNKNOWN in faults(graph, value)


@pytest.mark.parametrize(("change", "said"), [({"op": 77}, "op 77"), ({"pool": "no"}, "'no'")])
def test_a_copy_of_what_is_not_there(change: dict[str, Any], said: str) -> None:
    graph, value = written()
    value["weights"][0].update(change)
    with pytest.raises(PlanError, match=said):
        from_json(value, graph)
