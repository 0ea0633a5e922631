"""The smallest plan over all orders, where the order that needs least cannot be placed in what it needs.

Orders and placements depend on each other, and there are too many orders to place them one by one. So both are looked
for at once, in a model that no order is missing from, by what stores are to each other whatever the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint
from diagmem.planning.joint.meetings import Meetings
from diagmem.planning.joint.model import solve
from diagmem.planning.place.effort import Effort

CLAUSES = 5_000
"""For each unit of deterministic time: beyond so many it is spent before the search begins."""

PAIRS = 10
"""Of stores, for each clause: most do not meet."""


@dataclass(frozen=True, slots=True)
class Joint:
    """`bound_bytes`: no plan is smaller, whatever its order. `schedule`: an order of all ops that may do with less than
    was known; None if none was found. `offsets`: of the stores that matter. `rest`: the others, in the order of their
    placement."""

    bound_bytes: int
    schedule: Schedule | None = None
    offsets: tuple[int | None, ...] = ()
    rest: tuple[int, ...] = ()


def jointly(needs: Footprint, bound_bytes: int, below_bytes: int, effort: Effort) -> Joint:
    """Looks for an order and offsets that take less than `below_bytes`; none take less than `bound_bytes`."""
    clauses, count = int(CLAUSES * effort.order_proof_left), len(needs.stores)
    if effort.is_late or count * (count - 1) // 2 > PAIRS * clauses:
        return Joint(bound_bytes)
    found, limit_bytes = Meetings(needs), below_bytes - needs.unit_bytes
    stores, removed = found.core(limit_bytes)
    inside = {*stores}
    meetings = {pair: met for pair, met in found.of_pair.items() if inside.issuperset(pair)}
    if sum(map(len, meetings.values())) > clauses:
        return Joint(bound_bytes)
    solution = solve(needs, meetings, stores, (bound_bytes, limit_bytes), effort)
    if solution.order is None:
        return Joint(solution.bound_bytes)
    offsets = tuple(solution.offsets.get(store) for store in range(count))
    return Joint(solution.bound_bytes, _whole(needs, solution.order), offsets, tuple(reversed(removed)))


def _whole(needs: Footprint, first: Sequence[int]) -> Schedule:
    """All ops: those whose order matters as it was found, each after all that it waits for."""
    order: dict[int, None] = {}
    for op in (*first, *range(len(needs.after))):
        order.update(dict.fromkeys(other for other in range(op) if needs.earlier[op] >> other & 1))
        order[op] = None
    return Schedule.whole(order, "joint")
