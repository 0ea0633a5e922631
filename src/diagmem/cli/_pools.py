"""What `diagmem plan` says of several memories: what lies in each, what is read and written there, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagmem.cli._shared import op_text, size_text
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.planning.plan import Plan

MOST_OPS = 5


def next_frame_lines(plan: Plan) -> Iterator[str]:
    """What it costs to write the next frame while this one runs, where that was asked for."""
    size, names = plan.next_frames_bytes, plan.options.double_buffer
    if names:
        of = ", ".join(f"'{one_line(name, 40)}'" for name in dict.fromkeys(names))
        yield f"next frame   {size_text(size)} of these hold the next frame of {of}: so much more than without"
        yield f"             at each run {size_text(size)} are copied to where it reads them"


def pool_lines(plan: Plan) -> Iterator[str]:
    """Nothing of a plan for one arena."""
    pools = plan.pools
    if not pools:
        return
    starts = {plan.offsets[t] for t in plan.graph.outputs if t in plan.offsets}
    for use in pools.uses:
        if use.pool.is_external:
            twice = "" if use.start in starts else f"; {size_text(2 * use.used_bytes)} to fill one while another runs"
            yield f"with caller  {use.pool.name}: {size_text(use.used_bytes)} beside the arena{twice}"
    if not plan.options.pools:
        return
    own = [use for use in pools.uses if not use.pool.is_external]
    width = max(len(use.pool.name) for use in own)
    for number, use in enumerate(own):
        part = 100 * use.used_bytes / use.pool.capacity_bytes
        yield (
            f"{'' if number else 'pools':<13}{use.pool.name:<{width}}  {use.used_bytes:>9} of "
            f"{use.pool.capacity_bytes:>9} B ({part:>5.1f} %), {use.traffic_bytes:>11} B read and written "
            f"x {use.pool.cost:g}"
        )
    if pools.is_optimal:
        proof = "no plan for this order costs less"
    else:
        proof = f"no plan for this order costs less than {pools.lower_bound:.0f}"
    yield f"traffic      costs {pools.cost:.0f}; {proof}"
    yield from _weights_lines(plan)
    for use in pools.uses:
        if use.missing_bytes:
            yield f"too large    for the pools: {use.pool.name} is short by {size_text(use.missing_bytes)}"
            yield f"             it fits with --pool {use.enlarged}"
            yield "             --fit tries first what needs no more memory"


def _weights_lines(plan: Plan) -> Iterator[str]:
    """What of the weights is copied, what that is worth, and why the others stay in flash."""
    found = plan.weights
    if found is None:
        return
    cost = next(use.pool.cost for use in plan.pools.uses if use.pool.name == found.pool)
    copied = sorted((w for w in found.ops if w.op in plan.weight_copies), key=lambda w: -w.read_bytes)
    size_bytes = sum(w.size_bytes for w in copied)
    yield (
        f"weights      {len(copied)} of {len(found.ops)} ops copy theirs to {found.pool}, "
        f"{size_text(size_bytes)} a run: flash is read {plan.pools.flash_bytes} B x {found.flash_cost:g}, "
        f"not {found.read_bytes} B"
    )
    yield f"             without copies the traffic costs {found.plain_cost:.0f}"
    for weights in copied[:MOST_OPS]:
        saved = weights.flash_cost(found.flash_cost) - weights.copied_cost(cost, found.flash_cost)
        yield (
            f"             {weights.size_bytes:>9} B, each read {weights.times:.0f} times, saves {saved:.0f} at "
            f"{op_text(plan.graph.nodes[weights.op])}"
        )
    stay = [w for w in found.ops if w.op not in plan.weight_copies]
    seldom = sum(not w.pays(cost, found.flash_cost) for w in stay)
    if seldom:
        yield f"             {_ops(seldom)} weights too seldom to gain by a copy"
    if len(stay) > seldom:
        yield f"             {_ops(len(stay) - seldom)} weights from flash for want of room in {found.pool}"


def _ops(count: int) -> str:
    return f"{count} op{' reads' if count == 1 else 's read'}"
