"""What live ranges say of a store holds in every order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.needs.build_problem import LiveWindows
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import BEFORE_RUN
from diagmem.planning.options import Options
from diagmem.planning.order.joint import LiveRange, live_ranges
from diagmem.transforms import TRANSFORMS, transformed
from tests.networks import nets
from tests.profiles import examples
from tests.streams import Stream, streams


def any_order(needs: Footprint, chance: random.Random) -> Schedule:
    order: list[int] = []
    while len(order) < len(needs.after):
        done = {*order}
        ready = [op for op, before in enumerate(needs.after) if op not in done and done.issuperset(before)]
        order.append(chance.choice(ready))
    return Schedule.whole(order)


def steps_of(live: LiveRange, order: Schedule) -> range:
    """The steps of a live range in an order."""
    place = {op: at for at, op in enumerate(order.ops)}
    first = BEFORE_RUN if live.begin is None else min((place[op] for op in live.begin), default=len(order.ops))
    last = len(order.ops) if live.end is None else max((place[op] for op in live.end), default=BEFORE_RUN)
    return range(first, last + 1)


def live_of(needs: Footprint, order: Schedule) -> list[list[range]]:
    """Store -> its live bytes before the run, at each step, and after it."""
    found = LiveWindows(needs, order)
    for index, store in enumerate(needs.stores):
        found.add(index, store)
    table = [[range(0)] * (len(order.ops) + 2) for _ in needs.stores]
    for row, window in zip(table, found.windows, strict=True):
        for at, (low, high) in enumerate(zip(window.low.tolist(), window.high.tolist(), strict=True)):
            row[window.buffer.first_step + 1 + at] = range(low, max(low, high))
    return table


def check(graph: Graph, seed: int) -> None:
    needs = footprint(graph, Options())
    order = any_order(needs, random.Random(seed))
    for store, held in zip(needs.stores, live_of(needs, order), strict=True):
        for live in live_ranges(needs, store):
            for step in steps_of(live, order):
                assert held[step + 1].start <= live.low_bytes < live.high_bytes <= held[step + 1].stop


@given(nets(), st.integers(0, 99))
@examples(60)
def test_a_store_is_there_during_its_live_range(graph: Graph, seed: int) -> None:
    """All of it, at every step of the range, whatever the order."""
    check(graph, seed)


@given(streams(), st.integers(0, 99), st.booleans())
@examples(150)
def test_state_is_there_during_its_live_ranges(graph: Graph, seed: int, is_lean: bool) -> None:
    """At every step of a range its bytes live, whatever the order; also of windows that state is a part of."""
    check(transformed(graph, list(TRANSFORMS))[0] if is_lean else graph, seed)


def test_a_variable_is_dead_between_its_last_look_and_its_assignment() -> None:
    """Two live ranges: until it is read, and from when it is assigned. What happens between may take its place."""
    net = Stream(random.Random(0))
    variable, x = net.memory(1, 1, 1, 4), net.input(1, 1, 1, 4)
    total = net.add(net.read(variable), x)
    net.assign(variable, total)
    needs = footprint(net.graph(net.relu(total)), Options())
    (store,) = (store for store in needs.stores if store.holds_state)
    assert set(live_ranges(needs, store)) == {
        LiveRange(None, frozenset([0]), 0, 16),
        LiveRange(frozenset([2]), None, 0, 16),
    }
