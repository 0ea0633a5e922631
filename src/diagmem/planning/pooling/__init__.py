"""Plans for chips with several memories: a plan for one arena goes in, one for the pools comes out."""

from __future__ import annotations

from dataclasses import replace

from diagmem.planning.allocators.effort import Effort
from diagmem.planning.footprint import footprint
from diagmem.planning.options import BEST
from diagmem.planning.plan import Plan, scratch_of, stored
from diagmem.planning.pooling.choosing import Pooled, pooled
from diagmem.planning.pools import NO_POOLS
from diagmem.planning.schedulers import SCHEDULERS

__all__ = ["in_pools"]

OTHER_ORDERS = ("file", "eager", "lazy")
"""Orders that are tried besides that of the plan for one arena, where none was asked for."""


MOST_OPS = 100
"""Beyond so many, to try other orders takes too long."""


def in_pools(plan: Plan, effort: Effort) -> Plan:
    """The plan's graph in the pools of its options: in its order, or in another one if that costs less traffic."""
    pools = plan.options.pools
    needs = footprint(plan.graph, plan.options)
    own = plan.schedule
    best = pooled(needs, own, pools, effort)
    is_free = plan.options.schedule == BEST and not plan.runs_by_rows and len(plan.graph.ops) <= MOST_OPS
    others = OTHER_ORDERS if is_free else ()
    tried = {own.steps}
    for name in others:
        order = SCHEDULERS[name](needs)
        if order.steps not in tried and best.layout.uses[0].traffic_bytes < sum(
            u.traffic_bytes for u in best.layout.uses
        ):
            tried.add(order.steps)
            best = min(best, pooled(needs, order, pools, effort), key=lambda found: found.rank)
    return _plan(plan, best)


def _plan(single: Plan, found: Pooled) -> Plan:
    buffers = found.problem.buffers
    return replace(
        replace(single, pools=NO_POOLS),
        schedule=found.schedule,
        storage=stored(single.graph, buffers, found.offsets),
        scratch=scratch_of(buffers, found.offsets),
        arena_bytes=sum(use.used_bytes for use in found.layout.uses),
        buffers=buffers,
        buffer_offsets=found.offsets,
        pressure=found.problem.pressure,
        pools=replace(found.layout, single_bytes=single.pools.single_bytes or single.arena_bytes),
    )
