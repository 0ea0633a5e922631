"""No plan leaves the planner, or is used, unless the validator has replayed it."""

from __future__ import annotations

from diagmem.model.errors import UnsafePlanError
from diagmem.planning.plan import Plan
from diagmem.validation import Finding, Pool, Rules, replay


def findings_of(plan: Plan) -> list[Finding]:
    """What is wrong with a plan: nothing, if it is safe."""
    options = plan.options
    pools = tuple(Pool(u.pool.name, u.start, u.end, u.pool.capacity_bytes) for u in plan.pools.uses)
    rules = Rules(
        options.align_bytes,
        options.keep_inputs,
        options.external_io,
        plan.recompute,
        pools,
        options.input_align or 1,
        plan.teamwork,
        plan.staged,
        plan.copies_ahead,
    )
    places = plan.schedule, plan.row_offsets, plan.scratch, plan.end_bytes
    return replay(plan.graph, options.library, *places, rules)


def checked(plan: Plan, advice: str = "") -> Plan:
    """The plan, if it is safe; else UnsafePlanError."""
    findings = findings_of(plan)
    if findings:
        more = f" (and {len(findings) - 1} more: see `check`)" if len(findings) > 1 else ""
        raise UnsafePlanError(f"{plan.graph.name}: the plan is not safe: {findings[0]}{more}{advice}")
    return plan
