"""Caller memory: tensors in buffers of the firmware, and what must survive the runs of other models.

A tensor that the firmware holds is an address space of its own: it becomes a pool whose memory the caller gives, and
everything that knows pools knows it.

Of several models in one arena one runs at a time. Each is planned by itself. The arena is as large as the largest
needs, in each memory if there are several; what must outlive the runs of the others, state and, if asked for, outputs,
lies beside it, one model's behind the other's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from diagmem.model.errors import PlanError
from diagmem.model.graph import Tensor
from diagmem.model.pools import Pool, PoolUse
from diagmem.planning.cores.multicore import shared_as_placed
from diagmem.planning.memory.assign import in_pools
from diagmem.planning.needs.footprint import footprint, lines_of_reshapes
from diagmem.planning.needs.problem import BEFORE_RUN, Buffer
from diagmem.planning.options import KEEP_OUTPUTS
from diagmem.planning.place.effort import Effort
from diagmem.planning.plan import Plan, Planned, Rung, Storage, checked

ARENA = "arena"
"""What the arena is called as a pool, beside those of the caller."""

KEPT = "kept"
"""The pool of what lives from run to run, while other models use the arena."""

KEPT_ALIGN = 16
"""Of each tensor there, at the least."""


def has_caller_memory(plan: Plan) -> bool:
    """Whether anything lies elsewhere than in the arena."""
    return bool(plan.options.external or plan.options.together)


def with_caller_memory(plan: Plan) -> Plan:
    """The plan with a pool for each tensor that the caller holds, and one for all that must outlive the runs of other
    models in the same arena."""
    _, lines = lines_of_reshapes(plan.graph, plan.options)
    _check_caller_memory(plan, {t for line in lines for t in line})
    tensors, external = plan.graph.tensors, plan.options.external
    given = [line for line in lines if any(tensors[t].name in external for t in line)]
    kept = [line for line in lines if line not in given]
    uses = list(plan.pools.uses) or [PoolUse(Pool(ARENA, max(1, plan.arena_bytes), 1.0), 0, plan.arena_bytes)]
    placed: dict[tuple[int, ...], int] = {}
    traffic = _traffic(plan, kept)
    if kept:
        start, end = _after(plan, uses), _after(plan, uses)
        for line in kept:
            placed[line] = -(-end // _kept_align(plan, line)) * _kept_align(plan, line)
            end = -(-(placed[line] + tensors[line[0]].size_bytes) // KEPT_ALIGN) * KEPT_ALIGN
        uses.append(PoolUse(Pool(KEPT, end - start, uses[-1].pool.cost, is_kept=True), start, end - start, traffic))
    taken = {use.pool.name.lower() for use in uses}
    for line in given:
        size, placed[line] = tensors[line[0]].size_bytes, _after(plan, uses)
        pool = Pool(_pool_name(tensors[line[0]], taken), size, uses[-1].pool.cost, is_external=True)
        uses.append(PoolUse(pool, placed[line], size))
    # What is kept might lie in faster memory: only that it is read and written there is sure.
    bound = plan.pools.lower_bound + traffic * uses[0].pool.cost
    single_bytes = plan.pools.single_bytes or plan.arena_bytes
    layout = replace(plan.pools, uses=tuple(uses), lower_bound=bound, single_bytes=single_bytes)
    return _with_places(replace(plan, pools=layout, arena_bytes=layout.arena_bytes), placed)


def _kept_align(plan: Plan, line: tuple[int, ...]) -> int:
    given = plan.options.input_align if line[0] in plan.graph.inputs else None
    return max(KEPT_ALIGN, plan.options.align_bytes, given or 1)


def kept_bytes(plan: Plan) -> int:
    """What must outlive the runs of other models."""
    return sum(use.used_bytes for use in plan.pools.uses if use.pool.is_kept)


def in_own_arena(found: Planned) -> Planned:
    """A plan that was made for one model alone, as one of several: no other model may touch any of its arena."""
    plan = found.plan
    uses = plan.pools.uses or (PoolUse(Pool(ARENA, max(1, plan.arena_bytes), 1.0), 0, plan.arena_bytes),)
    own = tuple(use if use.pool.is_external else replace(use, pool=_kept(use.pool)) for use in uses)
    layout = replace(plan.pools, uses=own, single_bytes=plan.pools.single_bytes or plan.arena_bytes)
    return replace(found, plan=replace(plan, pools=layout, options=replace(plan.options, together="")))


def _kept(pool: Pool) -> Pool:
    return replace(pool, name=KEPT if pool.name == ARENA else pool.name, is_kept=True)


def _traffic(plan: Plan, lines: Sequence[tuple[int, ...]]) -> int:
    """What a run reads and writes of these; nobody asks where there are no pools."""
    if not lines or not plan.options.pools:
        return 0
    from diagmem.planning.memory.traffic import traffic_of_tensors

    by_tensor = traffic_of_tensors(footprint(plan.graph, plan.options), plan.schedule)
    return sum(by_tensor.get(t, 0) for line in lines for t in line)


def _after(plan: Plan, uses: Sequence[PoolUse]) -> int:
    align = plan.options.pool_align_bytes
    return -(-uses[-1].end // align) * align


def _with_places(plan: Plan, placed: Mapping[tuple[int, ...], int]) -> Plan:
    """With these lines at these addresses, before, during and after the run."""
    tensors, after_run = plan.graph.tensors, len(plan.schedule.steps) + 1
    storage = dict(plan.storage)
    for line, at in placed.items():
        whole = (tensors[t] for t in line if tensors[t].view is None)
        storage.update({t.index: Storage.linear(at, t.rows, t.row_bytes) for t in whole})
    owners = [tensors[line[0]] for line in placed]
    held = (
        Buffer(t.label, t.size_bytes, BEFORE_RUN, after_run, tensors=line)
        for t, line in zip(owners, placed, strict=True)
    )
    return replace(
        plan,
        storage=dict(sorted(storage.items())),
        buffers=(*plan.buffers, *held),
        buffer_offsets=(*plan.buffer_offsets, *placed.values()),
    )


def _check_caller_memory(plan: Plan, owned: set[int]) -> None:
    graph, options = plan.graph, plan.options
    asked = {tensor.index for tensor in graph.tensors if tensor.name in options.external}
    asked |= {*graph.outputs} if options.together == KEEP_OUTPUTS else set()
    for index in sorted(asked - owned):
        if not graph.tensors[index].is_constant:
            raise PlanError(
                f"'{graph.tensors[index].label}' is part of another tensor now and has no place of its own: plan again "
                "with --skip remove-concat,remove-slices"
            )


def _pool_name(tensor: Tensor, taken: set[str]) -> str:
    """The tensor's, as far as C can have it, and no other pool's."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", tensor.name).strip("_")[:24]
    base = plain if plain[:1].isalpha() else f"tensor_{plain}".rstrip("_")
    name = next(n for n in (base, *(f"{base}_{k}" for k in range(1, 1000))) if n.lower() not in taken)
    taken.add(name.lower())
    return name


POOLS = "pools"
"""The last rung, where there are several."""


def in_caller_memory(found: Planned, effort: Effort, taken: Mapping[str, int] | None = None) -> Planned:
    """The plan in the pools of its options. `taken`: bytes of these that hold something else; by default what outlives
    the runs of other models, which lies in the last one."""
    options = found.plan.options
    if taken is None:
        taken = {options.pools[-1].name: kept_bytes(found.plan)}
    left = tuple(replace(p, capacity_bytes=max(1, p.capacity_bytes - taken.get(p.name, 0))) for p in options.pools)
    pooled = in_pools(replace(found.plan, options=replace(options, pools=left)), effort)
    plan = replace(pooled, options=options)
    plan = shared_as_placed(with_caller_memory(plan) if has_caller_memory(plan) else plan)
    # That pools are too small is an answer, not a fault.
    checked(replace(plan, pools=plan.pools.enlarged), "; this is a bug, please report it")
    rungs = (rung for rung in found.last_rungs if rung.step != POOLS)
    return replace(found, plan=plan, last_rungs=(*rungs, Rung(POOLS, plan.arena_bytes)))


def in_shared_pools(found: Planned, taken: Mapping[str, int]) -> Planned:
    """A plan for pools, of which other models have so many bytes."""
    return in_caller_memory(found, Effort.named(found.plan.options.effort, found.plan.options.time_limit), taken)
