"""A plan for one arena becomes one for the memories of a chip, with what the firmware owns beside them."""

from __future__ import annotations

from dataclasses import replace

from diagmem.planning.checked import checked
from diagmem.planning.owned import is_owned, kept_bytes, less_kept, with_owned
from diagmem.planning.place.effort import Effort
from diagmem.planning.pooling import in_pools
from diagmem.planning.roomier import shared_as_placed
from diagmem.planning.worth import Planned, Rung

POOLS = "pools"
"""The last rung, where there are several."""


def in_memories(found: Planned, effort: Effort, kept: int | None = None) -> Planned:
    """The plan in the pools of its options. `kept`: bytes of the last one that hold what must outlive the runs of other
    models; None: what this one keeps."""
    options = found.plan.options
    left = less_kept(options.pools, kept_bytes(found.plan) if kept is None else kept)
    pooled = in_pools(replace(found.plan, options=replace(options, pools=left)), effort)
    plan = replace(pooled, options=options)
    plan = shared_as_placed(with_owned(plan) if is_owned(plan) else plan)
    # That pools are too small is an answer, not a fault.
    checked(replace(plan, pools=plan.pools.enlarged), "; this is a bug, please report it")
    rungs = (rung for rung in found.ladder if rung.step != POOLS)
    return replace(found, plan=plan, ladder=(*rungs, Rung(POOLS, plan.arena_bytes)))


def in_shared_memories(found: Planned, kept: int) -> Planned:
    """A plan for pools, of which the last has so many bytes less: what several models keep there."""
    return in_memories(found, Effort.named(found.plan.options.effort, found.plan.options.time_limit), kept)
