"""List scheduling under a memory bound, the bound lowered as far as the list goes through.

In the spirit of bounded memory scheduling (Sbîrlea, Budimlić, Sarkar 2014), with overlap taken into account.
"""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint

HALVINGS = 12


def bounded(footprint: Footprint) -> Schedule:
    """The order found under the lowest bound, halving the range between what one op needs and what any order takes."""
    order = under_bound(footprint, bound=None)
    low, high = footprint.least_pressure, _peak(footprint, order)
    for _ in range(HALVINGS):
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
    done, live = 0, footprint.live_at_start
    order: list[int] = []
    missing = [len(before) for before in footprint.after]
    ready = [op for op, count in enumerate(missing) if not count]
    while ready:
        moves = [(footprint.move(op, done), place) for place, op in enumerate(ready)]
        if len(order) < len(first):
            place = ready.index(first[len(order)])
        else:
            fitting = [(m[1], -p) for m, p in moves if bound is None or live + m[0] <= bound]
            if not fitting:
                return order
            place = -min(fitting)[1]
        op = ready.pop(place)
        live += moves[place][0][1]
        done |= 1 << op
        order.append(op)
        for later in footprint.followers[op]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return order


def _peak(footprint: Footprint, order: list[int]) -> int:
    return max(footprint.pressure(order), default=0)
