"""List scheduling under a memory bound, the bound lowered as far as the list goes through.

In the spirit of bounded memory scheduling (Sbîrlea, Budimlić, Sarkar 2014), with overlap taken into account.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint

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
