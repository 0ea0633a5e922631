"""Plans for chips with several memories: a plan for one arena goes in, one for the pools comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint, footprint
from diagmem.planning.options import BEST
from diagmem.planning.place.effort import Effort
from diagmem.planning.plan import Plan, scratch_of, staged_of, stored
from diagmem.planning.pooling.choosing import Pooled, pooled
from diagmem.planning.pooling.weights import check_staging, weights_of
from diagmem.planning.pools import NO_POOLS
from diagmem.planning.schedulers import SCHEDULERS
from diagmem.planning.staging import OpWeights, WeightsTraffic

__all__ = ["in_pools"]

OTHER_ORDERS = ("file", "eager", "lazy")
"""Orders that are tried besides that of the plan for one arena, where none was asked for."""


MOST_OPS = 100
"""Beyond so many, to try other orders takes too long."""


def in_pools(plan: Plan, effort: Effort) -> Plan:
    """The plan's graph in the pools of its options: in its order, or in another one if that costs less traffic."""
    needs = footprint(plan.graph, plan.options)
    own, staging = plan.schedule, plan.options.staging
    if staging is not None:
        check_staging(needs, staging)
    weights = () if staging is None else weights_of(needs, own)
    best = _pooled(needs, own, effort, weights)
    is_free = plan.options.schedule == BEST and not plan.runs_by_rows and len(plan.graph.ops) <= MOST_OPS
    others = OTHER_ORDERS if is_free else ()
    tried = {own.steps}
    for name in others:
        order = SCHEDULERS[name](needs)
        if order.steps not in tried and best.layout.uses[0].traffic_bytes < sum(
            u.traffic_bytes for u in best.layout.uses
        ):
            tried.add(order.steps)
            best = min(best, _pooled(needs, order, effort, weights), key=lambda found: found.rank)
    if staging is None:
        return _plan(plan, best)
    # Beside the same without any copies, which is also what remains where these cost more than they save.
    plain = _reading_flash(_pooled(needs, best.schedule, effort, ()), weights, staging.flash_cost)
    best = min(best, plain, key=lambda found: found.rank)
    made = _plan(plan, best)
    return replace(made, weights=WeightsTraffic(staging.name, staging.flash_cost, weights, plain.layout.cost))


def _pooled(needs: Footprint, order: Schedule, effort: Effort, weights: Sequence[OpWeights]) -> Pooled:
    """With copies of those weights of which some room, and a gain, can be hoped for; the others are read from flash."""
    staging = needs.options.staging
    if staging is None:
        return pooled(needs, order, effort)
    pool = next(pool for pool in needs.options.pools if pool.name == staging.name)
    copied = [w for w in weights if w.pays(pool.cost, staging.flash_cost) and w.size_bytes <= pool.capacity_bytes]
    others = [w for w in weights if w not in copied]
    return _reading_flash(pooled(needs, order, effort, copied), others, staging.flash_cost)


def _reading_flash(found: Pooled, weights: Sequence[OpWeights], flash_cost: float) -> Pooled:
    """What is found, and these weights read from flash besides."""
    read_bytes = sum(w.read_bytes for w in weights)
    layout = found.layout
    bound = layout.lower_bound + read_bytes * flash_cost
    more = replace(layout, flash_bytes=layout.flash_bytes + read_bytes, flash_cost=flash_cost, lower_bound=bound)
    return replace(found, layout=more)


def _plan(single: Plan, found: Pooled) -> Plan:
    buffers = found.problem.buffers
    return replace(
        replace(single, pools=NO_POOLS),
        schedule=found.schedule,
        storage=stored(single.graph, buffers, found.offsets),
        scratch=scratch_of(buffers, found.offsets),
        staged=staged_of(buffers, found.offsets),
        copies_ahead=single.options.weights_ahead,
        arena_bytes=sum(use.used_bytes for use in found.layout.uses),
        buffers=buffers,
        buffer_offsets=found.offsets,
        pressure=found.problem.pressure,
        pools=replace(found.layout, single_bytes=single.pools.single_bytes or single.arena_bytes),
    )
