"""Orders of ops that run whole: simple ones, and the best, with a bound that holds for all orders.

Memory-bounded list scheduling is in the spirit of Sbîrlea, Budimlić and Sarkar (2014), with overlap taken into account.

The best order is the one whose largest step needs the least. A state is the set of ops that have run; how much is live
follows from it alone. So the best order is a path through the states whose largest step is smallest, and Dijkstra's
algorithm finds it, with the largest step so far (`key`) as the distance. Three facts keep it short:

- An op that leaves no more live than before, and needs no more than the key while it runs, may be run at once: live
  bytes as a function of the state are submodular, so moving it to the front of any order makes no other step larger.
  The same holds for a chain of ops, each waiting for the one before it, at the first point where no more is live.
- Where an op comes before or after each of the others in every order, all orders pass through one state. Once it is
  reached, whatever else was still to be tried before it can be forgotten.
- No order does better than its most demanding op with all that must then be live; the key starts there.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint

MOST_STATES = 20_000
"""The search gives up after so many states: a count, not a time, so that results are the same on any machine."""


def file_order(footprint: Footprint) -> Schedule:
    """As the file has it."""
    return Schedule.whole(range(len(footprint.after)), "file")


def eager(footprint: Footprint) -> Schedule:
    """Each op as soon as its inputs are there: breadth first."""
    missing = [len(before) for before in footprint.after]
    ready = deque(op for op, count in enumerate(missing) if not count)
    order = []
    while ready:
        op = ready.popleft()
        order.append(op)
        for later in footprint.followers[op]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return Schedule.whole(order, "eager")


def lazy(footprint: Footprint) -> Schedule:
    """Each op only when its result is asked for, from the graph's outputs back: depth first."""
    graph = footprint.graph
    order: dict[int, None] = {}
    wanted = [op for t in graph.outputs for op in graph.writers(t)]
    stack = [*reversed(range(len(graph.ops))), *reversed(wanted)]
    while stack:
        op = stack[-1]
        asked = [p for p in footprint.after[op] if p not in order]
        if op in order or not asked:
            order[op] = None
            stack.pop()
        else:
            stack.append(asked[0])
    return Schedule.whole(order, "lazy")


@dataclass(frozen=True, slots=True)
class State:
    """`done`: the ops that have run, as bits. `ready`: those that may run next. `ran`: the order so far, latest first,
    as (op, those before it)."""

    done: int
    live: int
    ready: tuple[int, ...]
    ran: tuple[int, Any] | None = None

    @property
    def order(self) -> list[int]:
        order, ran = [], self.ran
        while ran is not None:
            order.append(ran[0])
            ran = ran[1]
        return order[::-1]


def start(footprint: Footprint) -> State:
    """Nothing has run."""
    return State(0, footprint.live_at_start, tuple(op for op, before in enumerate(footprint.after) if not before))


def after(footprint: Footprint, state: State, op: int, change: int) -> State:
    """The state when `op` has run too; `change` is what it adds to the live units."""
    done = state.done | 1 << op
    woken = tuple(f for f in footprint.followers[op] if not footprint.after_bits[f] & ~done)
    return State(done, state.live + change, tuple(o for o in state.ready if o != op) + woken, (op, state.ran))


HALVINGS = 12

LARGE = 1_000
"""Ops: beyond so many the range is halved less often."""

FAR = 1 << 62
"""Units: above any bound."""


def bounded(footprint: Footprint) -> Schedule:
    """The order found under the lowest bound, halving the range between what one op needs and what any order takes."""
    order = under_bound(footprint, bound=None)
    low, high = footprint.least_pressure, _peak(footprint, order)
    for _ in range(HALVINGS if len(order) <= LARGE else HALVINGS // 6):
        if low >= high:
            break
        middle = (low + high) // 2
        found = under_bound(footprint, middle)
        if len(found) == len(order):
            order, high = found, _peak(footprint, found)
        else:
            low = middle + 1
    return Schedule.whole(order, "bounded")


def under_bound(footprint: Footprint, bound: int | None, first: Sequence[int] = ()) -> list[int]:
    """Ops in order, after those of `first`: always the one that leaves the least live, then the one that became ready
    last (to finish what was begun). Ends early if every op that is ready would need more units than the bound."""
    done, live, woken = 0, footprint.live_at_start, 0
    order: list[int] = []
    missing = [len(before) for before in footprint.after]
    waiting = [op for op, count in enumerate(missing) if not count]
    # By op: when it became ready, and what it would cost; what others do changes that only if they share a store.
    ready: dict[int, tuple[int, int, int]] = {}
    while ready or waiting:
        for later in waiting:
            ready[later] = woken, *footprint.move(later, done)
            woken += 1
        if len(order) < len(first):
            op = first[len(order)]
        else:
            limit = FAR if bound is None else bound - live
            fitting = [(change, -when, op) for op, (when, grown, change) in ready.items() if grown <= limit]
            if not fitting:
                return order
            op = min(fitting)[2]
        live += ready.pop(op)[2]
        done |= 1 << op
        order.append(op)
        for other in footprint.sharing[op]:
            if other in ready:
                ready[other] = ready[other][0], *footprint.move(other, done)
        waiting = []
        for later in footprint.followers[op]:
            missing[later] -= 1
            if not missing[later]:
                waiting.append(later)
    return order


def _peak(footprint: Footprint, order: list[int]) -> int:
    return max(footprint.pressure(order), default=0)


MOVES = 4
"""For each state, on the average: where many ops are ready there are fewer states."""


def every_order(
    footprint: Footprint, below_bytes: int, most: int, most_states: int = MOST_STATES
) -> list[Schedule] | None:
    """All orders none of whose steps needs `below_bytes` or more; None if there are more than `most`, or if it takes
    too long to tell."""
    limit = -(-below_bytes // footprint.unit_bytes)
    orders: list[Schedule] = []
    stack = [start(footprint)]
    moves = 0
    while stack and len(orders) <= most and moves < MOVES * most_states:
        state = stack.pop()
        moves += len(state.ready)
        if not state.ready:
            orders.append(Schedule.whole(state.order, "every"))
        for op in reversed(state.ready):
            grown, change = footprint.move(op, state.done)
            if state.live + grown < limit:
                stack.append(after(footprint, state, op, change))
    return None if stack or len(orders) > most else orders


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
    done, live, chain = state.done, state.live, list[tuple[int, int]]()
    next_op: int | None = op
    while next_op is not None:
        grown, change = footprint.move(next_op, done)
        if live + grown > key:
            return None
        chain.append((next_op, change))
        done, live = done | 1 << next_op, live + change
        if live <= state.live:
            return reduce(lambda reached, ran: after(footprint, reached, *ran), chain, state)
        next_op = next((f for f in footprint.followers[next_op] if not footprint.after_bits[f] & ~done), None)
    return None


SCHEDULERS: Mapping[str, Callable[[Footprint], Schedule]] = {
    "file": file_order,
    "eager": eager,
    "lazy": lazy,
    "bounded": bounded,
    "search": lambda footprint: search(footprint).schedule,
}
"""Each is a function of the graph's footprint."""
