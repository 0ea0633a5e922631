"""An order, its placement problem, and where everything goes; and the best such choice among orders."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import BEST
from diagmem.planning.order.joint import Joint, jointly
from diagmem.planning.order.rows import RowSchedule
from diagmem.planning.order.search import SCHEDULERS, every_order, file_order, gates, search
from diagmem.planning.place import OPTIMAL, Allocator, Placement, optimal
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.local_search import SqueakyWheel
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Plan

MOST_ORDERS = 50
"""Where nothing cheaper proves a plan to be the best, and there are no more orders than these, all are placed."""

Place = Callable[[Problem], Placement]
"""An allocator, or what hands on offsets that are known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An order, its placement problem, and where everything goes. `bound_bytes`: that of the placement, or one that
    holds for all orders."""

    schedule: Schedule
    problem: Problem
    placement: Placement
    bound_bytes: int
    is_over_all_orders: bool = False

    @classmethod
    def of(cls, needs: Footprint, schedule: Schedule, place: Place) -> Choice:
        posed = build_problem(needs, schedule)
        placement = place(posed)
        return cls(schedule, posed, placement, placement.lower_bound_bytes)

    @property
    def arena_bytes(self) -> int:
        return self.placement.arena_bytes

    @property
    def gap(self) -> int:
        """Bytes above what is proven to be needed."""
        return self.placement.arena_bytes - self.placement.lower_bound_bytes

    def plan(self, needs: Footprint, recompute: float = 1.0) -> Plan:
        offsets = with_rings(self.problem, self.placement.offsets)
        return Plan.of(
            *(needs.graph, needs.options, self.schedule, self.problem, offsets),
            arena_bytes=self.arena_bytes,
            lower_bound_bytes=self.bound_bytes,
            is_over_all_orders=self.is_over_all_orders,
            recompute=recompute,
        )


def allocator(needs: Footprint, name: str, effort: Effort) -> Allocator:
    return Allocator.named(OPTIMAL if name == BEST else name, effort, needs.options.pinned_at)


def in_file_order(apart: Footprint, effort: Effort) -> Choice:
    return Choice.of(apart, file_order(apart), allocator(apart, BEST, effort))


def layer_by_layer(needs: Footprint, order: str, effort: Effort, name: str, plain: Choice | None = None) -> Choice:
    """The best choice for ops that run whole. `name`: of the allocator. `plain`: the best without overlap in file
    order, if that is known."""
    place = allocator(needs, name, effort)
    if order in (BEST, "search"):
        chosen = _over_all_orders(needs, place, effort, others=order == BEST)
    else:
        chosen = Choice.of(needs, SCHEDULERS[order](needs), place)
    if name != BEST or order not in (BEST, "file"):
        return chosen
    if plain is None:
        apart = footprint(needs.graph, replace(needs.options, overlap=False))
        if build_problem(apart, file_order(apart)).lower_bound_bytes >= chosen.arena_bytes:
            return chosen
        plain = in_file_order(apart, effort)
    if chosen.arena_bytes <= plain.arena_bytes:
        return chosen
    # What keeps buffers apart also serves where they might overlap.
    offsets = plain.placement.offsets
    kept = Choice.of(needs, plain.schedule, lambda posed: Placement.of(posed, offsets))
    return replace(kept, bound_bytes=chosen.bound_bytes, is_over_all_orders=chosen.is_over_all_orders)


def row_by_row(needs: Footprint, order: RowSchedule, place: Allocator, others: Collection[Schedule] = ()) -> Choice:
    orders = dict.fromkeys((order.schedule, *others))
    best = min((Choice.of(needs, each, place) for each in orders), key=lambda choice: choice.arena_bytes)
    if order.plain is not None:
        # It rarely wins, so it gets a quarter of the effort.
        posed = build_problem(needs, order.plain)
        if posed.lower_bound_bytes <= best.arena_bytes:
            placement = place.times(0.25)(posed)
            plain = Choice(order.plain, posed, placement, placement.lower_bound_bytes)
            best = min(best, plain, key=lambda choice: (choice.arena_bytes, choice.gap))
    return best


def _over_all_orders(needs: Footprint, place: Allocator, effort: Effort, others: bool) -> Choice:
    """The best choice found, with a bound that holds for all orders. `others`: where the order that needs least cannot
    be placed at its bound, try other ones."""
    states = effort.states_for(len(needs.after))
    searched = search(needs, states)
    best = Choice.of(needs, searched.schedule, place)
    bound = searched.bound_bytes
    if best.arena_bytes > bound:
        bound = max(bound, _bound_of_fixed_part(needs, best.problem, bound, effort))
    for name in [name for name in SCHEDULERS if name != "search"] if others else ():
        if best.arena_bytes <= bound or effort.is_late:
            break
        best = _better(needs, best, SCHEDULERS[name](needs), place)
    may_try = others and best.arena_bytes > bound and not effort.is_late
    every = every_order(needs, best.arena_bytes, MOST_ORDERS, states) if may_try else None
    if every is not None:
        choices = [Choice.of(needs, order, place) for order in every]
        least = min((c.placement.lower_bound_bytes for c in choices), default=best.arena_bytes)
        best = min(best, *choices, key=lambda choice: choice.arena_bytes) if choices else best
        bound = max(bound, min(least, best.arena_bytes))
    return replace(best, bound_bytes=bound, is_over_all_orders=True)


def with_other_orders(needs: Footprint, best: Choice, effort: Effort) -> Choice:
    """The best choice so far, or a smaller one; with orders and placements looked at together where it is not
    proven."""
    if not best.is_over_all_orders or needs.options.pinned_at:
        return best
    bound, limit = best.bound_bytes, best.arena_bytes + 1
    # Each time for a smaller arena, in which more of the stores are in each other's way.
    while bound < best.arena_bytes < limit:
        limit = best.arena_bytes
        found = jointly(needs, bound, limit, effort)
        if found.schedule is not None:
            other = Choice.of(needs, found.schedule, partial(_as_found, found=found, effort=effort))
            best = min(best, other, key=lambda choice: choice.arena_bytes)
        bound = max(bound, min(found.bound_bytes, best.arena_bytes))
    return replace(best, bound_bytes=bound, is_over_all_orders=True)


def _as_found(posed: Problem, found: Joint, effort: Effort) -> Placement:
    """The placement that came with an order; or another one, if more of what holds state lives than was known."""
    placed = {buffer: at for buffer, at in enumerate(found.offsets) if at is not None}
    offsets = SqueakyWheel.of(posed).with_others(placed, found.rest)
    return Placement.of(posed, offsets) if posed.is_met_by(offsets) else optimal(posed, effort)


def _better(needs: Footprint, best: Choice, order: Schedule, place: Allocator) -> Choice:
    """The best choice so far, or that of another order if it is smaller."""
    if order.ops == best.schedule.ops or max(needs.pressure(order.ops)) * needs.unit_bytes >= best.arena_bytes:
        return best
    return min(best, Choice.of(needs, order, place), key=lambda choice: choice.arena_bytes)


def _bound_of_fixed_part(needs: Footprint, posed: Problem, bound: int, effort: Effort) -> int:
    """A bound from the buffers whose writers and readers run in the same sequence in every order: what they are to each
    other does not depend on the order either."""
    fixed = gates(needs)
    users = [store.writers | store.readers for store in needs.stores]
    members = [index for index, ops in enumerate(users) if all(fixed >> op & 1 for op in ops)]
    return optimal(replace(posed.part(members), lower_bound_bytes=bound), effort).lower_bound_bytes
