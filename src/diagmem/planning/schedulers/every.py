"""Every order that might do better than a plan at hand, where there are few."""

from __future__ import annotations

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint
from diagmem.planning.schedulers.state import after, start

MOST_STATES = 20_000


def every_order(footprint: Footprint, below_bytes: int, most: int) -> list[Schedule] | None:
    """All orders none of whose steps needs `below_bytes` or more; None if there are more than `most`, or if it takes
    too long to tell."""
    limit = -(-below_bytes // footprint.unit_bytes)
    orders: list[Schedule] = []
    stack = [start(footprint)]
    for _ in range(MOST_STATES):
        if not stack or len(orders) > most:
            break
        state = stack.pop()
        if not state.ready:
            orders.append(Schedule.whole(state.order, "every"))
        for op in reversed(state.ready):
            grown, change = footprint.move(op, state.done)
            if state.live + grown < limit:
                stack.append(after(footprint, state, op, change))
    return None if stack or len(orders) > most else orders
