"""Orders and placements at once: the smallest plan over all orders, and no bound above it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import diagmem
from diagmem.model.graph import Graph
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.options import BEST, Options
from diagmem.planning.order.joint import jointly
from diagmem.planning.order.search import every_order, file_order
from diagmem.planning.place import optimal
from diagmem.planning.place.effort import NORMAL, Effort
from diagmem.planning.planner import PlacedOrder, layer_by_layer, with_other_orders
from diagmem.transforms import TRANSFORMS, transformed
from tests.networks import Net, nets, random_net
from tests.profiles import examples
from tests.streams import streams

MOST_ORDERS = 100


def least_of_all_orders(needs: Footprint) -> int:
    """Every order is placed, with proof, but for those that need more than one that was."""
    orders = every_order(needs, 1 << 40, MOST_ORDERS)
    assume(orders is not None)
    least = 1 << 40
    for problem in sorted((build_problem(needs, order) for order in orders or ()), key=lambda p: p.lower_bound_bytes):
        if problem.lower_bound_bytes < least:
            placed = optimal(problem)
            assert placed.is_optimal
            least = min(least, placed.arena_bytes)
    return least


def badly_placed(needs: Footprint) -> PlacedOrder:
    """In file order, each store in a place of its own, and nothing known of other orders."""
    choice = PlacedOrder.of(needs, file_order(needs), optimal)
    offsets, end = [], 0
    for store in needs.stores:
        offsets.append(-(-end // store.align_bytes) * store.align_bytes)
        end = offsets[-1] + store.size_bytes
    placement = replace(choice.placement, offsets=tuple(offsets), arena_bytes=choice.problem.arena_bytes(offsets))
    return replace(choice, placement=placement, bound_bytes=0, is_over_all_orders=True)


@given(nets(most_ops=7), st.sampled_from([1, 4, 16]), st.booleans(), st.booleans())
@examples(120)
def test_it_equals_placing_every_order(graph: Graph, align: int, overlap: bool, is_lean: bool) -> None:
    """The arena is the least of all orders, it is proven, and one unit less is refuted."""
    lean = transformed(graph, list(TRANSFORMS))[0] if is_lean else graph
    needs = footprint(lean, Options(align=align, overlap=overlap))
    least = least_of_all_orders(needs)
    found = with_other_orders(needs, badly_placed(needs), NORMAL)
    assert found.arena_bytes == found.bound_bytes == least
    assert found.problem.is_met_by(found.placement.offsets)
    refuted = jointly(needs, 0, least, NORMAL)
    assert refuted.schedule is None
    assert refuted.bound_bytes == least


@given(streams(most_moves=2), st.booleans())
@examples(40)
def test_with_state_no_bound_is_above_the_least(graph: Graph, is_lean: bool) -> None:
    """What is not known of state in all orders may leave a gap, but never proves what is not so."""
    needs = footprint(transformed(graph, list(TRANSFORMS))[0] if is_lean else graph, Options())
    least = least_of_all_orders(needs)
    found = with_other_orders(needs, badly_placed(needs), NORMAL)
    assert found.bound_bytes <= least <= found.arena_bytes
    assert jointly(needs, 0, least, NORMAL).bound_bytes <= least
    assert found.problem.is_met_by(found.placement.offsets)


@pytest.mark.parametrize(("seed", "is_smaller"), [(873, True), (832, True), (679, True), (386, False), (1349, False)])
def test_plans_that_no_single_order_proves_are_proven(seed: int, is_smaller: bool) -> None:
    """Where the leanest order cannot be placed in what it needs, and there are too many others to place each: a smaller
    plan, or the proof that there is none."""
    graph = random_net(seed, 22)
    needs, effort = footprint(graph, Options()), Effort.named("normal").for_whole_tensors
    before = layer_by_layer(needs, BEST, effort, BEST)
    made = diagmem.plan(graph, schedule="best", skip="all")
    assert before.bound_bytes < before.arena_bytes
    assert made.optimal
    assert (made.arena_bytes < before.arena_bytes) == is_smaller
    assert made.ladder[-1].arena_bytes == made.arena_bytes


def side_by_side(branches: int) -> Footprint:
    """Chains of ops that may run in any order to each other, and are joined at the end."""
    net = Net()
    x = net.input(1, 6, 6, 4)
    ends = [net.conv(net.conv(x, 8 + 2 * branch), 2) for branch in range(branches)]
    return footprint(net.graph(net.concat(*ends)), Options())


def test_the_effort_ends_it() -> None:
    """What is too large for it is given back as it was; and so is what is late."""
    needs = side_by_side(4)
    given_up = jointly(needs, 7, 9, replace(NORMAL, order_proof=1e-3))
    assert (given_up.bound_bytes, given_up.schedule) == (7, None)
    late = Effort.named("normal", 1e-9)
    assert jointly(needs, 7, 9, late).bound_bytes == 7


def test_searches_share_a_purse() -> None:
    """Each may take half of what is left, and pays what it took."""
    effort = Effort.named("normal")
    assert effort.order_proof_left == effort.order_proof
    found = jointly(side_by_side(3), 0, 1 << 20, effort)
    assert found.schedule is not None
    assert effort.order_proof_left <= effort.order_proof


@pytest.mark.parametrize("pins", [(), ("t0=@0",)])
def test_where_offsets_are_given_the_order_stays(pins: tuple[str, ...]) -> None:
    """Orders and offsets are searched together only where offsets are free."""
    needs = side_by_side(3)
    bad = badly_placed(needs)
    needs = replace(needs, options=replace(needs.options, buffers=pins))
    assert (with_other_orders(needs, bad, NORMAL) is bad) == bool(pins)
