"""Orders without a search: as the file has it, eager, lazy, every one where there are few, and memory-bounded.

The last is list scheduling, the bound lowered as far as the list goes through, in the spirit of bounded memory
scheduling (Sbîrlea, Budimlić, Sarkar 2014), with overlap taken into account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint


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
    for _ in range(HALVINGS if len(order) <= LARGE else HALVINGS // 2):
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


MOST_STATES = 20_000

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
