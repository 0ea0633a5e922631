"""Orders are orders; the search's is the best there is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given

from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.options import Options
from diagmem.planning.order.search import SCHEDULERS, eager, every_order, gates, lazy, search
from tests.networks import Net, diamond, nets
from tests.profiles import examples


def orders(needs: Footprint, begun: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All orders of the ops that begin like this."""
    if len(begun) == len(needs.after):
        yield begun
    for op, before in enumerate(needs.after):
        if op not in begun and set(begun).issuperset(before):
            yield from orders(needs, (*begun, op))


def peak(needs: Footprint, order: tuple[int, ...]) -> int:
    return max(needs.pressure(order))


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@given(graph=nets())
@examples(60)
def test_every_op_runs_once_after_those_it_needs(scheduler: Callable[[Footprint], Schedule], graph: Graph) -> None:
    """Whatever the scheduler."""
    needs = footprint(graph, Options())
    done: set[int] = set()
    for op in scheduler(needs).ops:
        assert op not in done
        assert done.issuperset(needs.after[op])
        done.add(op)
    assert len(done) == len(graph.ops)


@given(nets(most_ops=8))
@examples(300)
def test_search_equals_trying_all_orders(graph: Graph) -> None:
    """Its order's largest step is the least of all orders, and so is its bound."""
    needs = footprint(graph, Options())
    given_first = sum(needs.sizes[store] for store in needs.at_start)
    least = max(given_first, min(peak(needs, order) for order in orders(needs)))
    found = search(needs)
    assert found.is_exact
    assert found.bound_bytes == least * needs.unit_bytes
    assert peak(needs, found.schedule.ops) <= least
    assert needs.least_pressure <= least


@given(nets(most_ops=7))
@examples(40)
def test_a_search_cut_short_still_bounds_all_orders(graph: Graph) -> None:
    """After two states its bound is no larger than the true one, and its order is complete."""
    needs = footprint(graph, Options())
    found = search(needs, most_states=2)
    assert found.bound_bytes <= search(needs).bound_bytes
    assert sorted(found.schedule.ops) == list(range(len(graph.ops)))


@given(nets(most_ops=6))
@examples(40)
def test_every_order_below_a_limit_is_found(graph: Graph) -> None:
    """Those and no others."""
    needs = footprint(graph, Options())
    limit = 1 + search(needs).bound_bytes
    expected = {o for o in orders(needs) if peak(needs, o) * needs.unit_bytes < limit}
    found = every_order(needs, limit, most=5000)
    assert found is not None
    assert {schedule.ops for schedule in found} == expected


def test_eager_goes_by_levels_and_lazy_by_branches() -> None:
    """On a diamond: eager begins both branches before it ends one, lazy ends one before it begins the other."""
    needs = footprint(diamond(), Options())
    assert eager(needs).ops == (0, 2, 1, 3, 4)
    assert lazy(needs).ops == (0, 1, 2, 3, 4)


def test_search_finishes_the_branch_that_shrinks_first() -> None:
    """Two wide detours from one tensor: one after the other needs less than both at once."""
    net = Net()
    x = net.input(1, 6, 6, 4)
    first, second = net.conv(x, 32), net.conv(x, 32)
    joined = net.add(net.conv(first, 4), net.conv(second, 4))
    needs = footprint(net.graph(joined), Options())
    found = search(needs).schedule.ops
    assert peak(needs, found) < peak(needs, tuple(range(5)))


@given(nets(most_ops=6))
@examples(60)
def test_in_a_chain_the_most_demanding_op_is_the_bound(graph: Graph) -> None:
    """Where there is but one order, what must live at each op is all that lives there."""
    needs = footprint(graph, Options())
    found = list(itertools.islice(orders(needs), 2))
    if len(found) == 1:
        given_first = sum(needs.sizes[store] for store in needs.at_start)
        assert needs.least_pressure == max(given_first, peak(needs, found[0]))


def test_gates_are_the_ops_that_no_order_moves() -> None:
    """In a diamond only the join."""
    assert gates(footprint(diamond(), Options())) == 1 << 4
