"""The order whose largest step needs the least, overlap taken into account, with a bound that holds for all orders.

A state is the set of ops that have run; how much is live follows from it alone. So the best order is a path through
the states whose largest step is smallest, and Dijkstra's algorithm finds it, with the largest step so far (`key`) as
the distance. Three facts keep it short:

- An op that leaves no more live than before, and needs no more than the key while it runs, may be run at once: live
  bytes as a function of the state are submodular, so moving it to the front of any order makes no other step larger.
  The same holds for a chain of ops, each waiting for the one before it, at the first point where no more is live.
- Where an op comes before or after each of the others in every order, all orders pass through one state. Once it is
  reached, whatever else was still to be tried before it can be forgotten.
- No order does better than its most demanding op with all that must then be live; the key starts there.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint
from diagmem.planning.order.simple import State, after, bounded, eager, file_order, lazy, start, under_bound

MOST_STATES = 20_000
"""The search gives up after so many states: a count, not a time, so that results are the same on any machine."""


@dataclass(frozen=True, slots=True)
class Search:
    """`bound_bytes`: no order of the graph's ops can do with less. `is_exact`: the schedule's pressure meets it.
    `states`: how many were looked at."""

    schedule: Schedule
    bound_bytes: int
    is_exact: bool
    states: int


def search(footprint: Footprint, most_states: int = MOST_STATES) -> Search:
    """The best order, or the best found when the states run out."""
    key, order, states = _best_path(footprint, most_states)
    candidates = [file_order(footprint), Schedule.whole(order, "search")]
    if len(order) < len(footprint.after):
        rest = Schedule.whole(under_bound(footprint, None, order), "search")
        candidates = [file_order(footprint), rest, lazy(footprint), eager(footprint), bounded(footprint)]
    peaks = [max(footprint.pressure(c.ops), default=0) for c in candidates]
    best = min(range(len(candidates)), key=peaks.__getitem__)
    return Search(candidates[best], key * footprint.unit_bytes, peaks[best] <= key, states)


def _best_path(footprint: Footprint, most_states: int) -> tuple[int, list[int], int]:
    """The least key with which all ops can run, their order, and the states that it took. If the states run out, the
    least key that is not excluded, and the beginning of an order."""
    fixed, fixed_done = gates(footprint), 0
    state = start(footprint)
    key = footprint.least_pressure
    # A state is put together when its turn comes, from the one before it and the op that leads to it: most never do.
    frontier: list[tuple[int, int, int, int, State, int | None, int]] = [(key, 0, 0, 0, state, None, 0)]
    closed: set[int] = set()
    pushed = 0
    while frontier and pushed <= most_states:
        key, _, _, _, state, last, added = heapq.heappop(frontier)
        state = _run_free(footprint, key, state if last is None else after(footprint, state, last, added))
        if not state.ready:
            break
        if state.done & fixed != fixed_done:
            fixed_done = state.done & fixed
            frontier.clear()
            closed.clear()
        if state.done in closed:
            continue
        closed.add(state.done)
        for op in state.ready:
            grown, change = footprint.move(op, state.done)
            pushed += 1
            # Among equal keys the deepest state comes first, so that an order is found as soon as there is one.
            rank = -(state.done.bit_count() + 1), state.live + change, pushed
            heapq.heappush(frontier, (max(key, state.live + grown), *rank, state, op, change))
    return key, state.order, pushed


def gates(footprint: Footprint) -> int:
    """The ops that stand in a fixed order to all others, as bits."""
    everything = (1 << len(footprint.after)) - 1
    orders = enumerate(zip(footprint.earlier, footprint.later, strict=True))
    return sum(1 << op for op, (earlier, later) in orders if earlier | later | 1 << op == everything)


def _run_free(footprint: Footprint, key: int, state: State) -> State:
    """Runs all that can be run at once without loss."""
    while True:
        for op in state.ready:
            reached = _free_chain(footprint, key, state, op)
            if reached is not None:
                state = reached
                break
        else:
            return state


def _free_chain(footprint: Footprint, key: int, state: State, op: int) -> State | None:
    """The state after `op` and the ops that wait for it, one for another, at the first point where no more is live
    than now; None if there is no such point, or a step before it needs more than the key."""
    reached: State = state
    next_op: int | None = op
    while next_op is not None:
        grown, change = footprint.move(next_op, reached.done)
        if reached.live + grown > key:
            return None
        known = len(reached.ready) - 1
        reached = after(footprint, reached, next_op, change)
        if reached.live <= state.live:
            return reached
        next_op = reached.ready[known] if len(reached.ready) > known else None
    return None
