"""Every order that might do better than a plan at hand, where there are few."""

from __future__ import annotations

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint
from diagmem.planning.schedulers.state import after, start

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
