"""Every order that might do better than a plan at hand, where there are few."""

from __future__ import annotations

from diagmem.footprint import Footprint
from diagmem.schedule import Schedule

MOST_STEPS_TRIED = 20_000


def every_order(footprint: Footprint, below_bytes: int, most: int) -> list[Schedule] | None:
    """All orders none of whose steps needs `below_bytes` or more; None if there are more than `most`, or if it takes
    too long to tell."""
    limit = -(-below_bytes // footprint.unit_bytes)
    size = len(footprint.after)
    orders: list[Schedule] = []
    tried = 0
    stack: list[tuple[tuple[int, ...], int, int]] = [((), 0, footprint.live_at_start)]
    while stack:
        order, done, live = stack.pop()
        if len(order) == size:
            orders.append(Schedule.whole(order, "every"))
        if len(orders) > most or tried > MOST_STEPS_TRIED:
            return None
        for op in reversed(range(size)):
            if done >> op & 1 or footprint.after_bits[op] & ~done:
                continue
            tried += 1
            grown, change = footprint.move(op, done)
            if live + grown < limit:
                stack.append(((*order, op), done | 1 << op, live + change))
    return orders
