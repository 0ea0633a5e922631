"""What `diagmem plan` says of a file that already carries an arena plan: ours, Vela's, or anybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import naming_model, op_text, size_text
from diagmem.model.errors import one_line

if TYPE_CHECKING:
    from diagmem.backends.tflm.planned_file import EmbeddedPlan
    from diagmem.frontends.source import Source

MOST_LINES = 5


def embedded_in(source: Source, kernels: str | None) -> EmbeddedPlan | None:
    """The plan inside a file, judged for the kernels asked for, else for those that the plan names, else for all of
    TFLM's; None if there is none."""
    if source.is_from_zoo or source.is_onnx or not source.has_file:
        return None
    from diagmem.backends.tflm import PLAN_ENTRY

    if PLAN_ENTRY.encode() not in source.content:
        return None
    from diagmem.backends.tflm import metadata
    from diagmem.backends.tflm.planned_file import LIBRARIES, embedded_plan

    with naming_model(str(source.model)):
        origin = metadata.origin(source.content)
        named = origin.kernels if origin is not None and origin.kernels in LIBRARIES else LIBRARIES[0]
        return embedded_plan(source.content, source.graph, kernels or named)


def embedded_lines(found: EmbeddedPlan) -> list[str]:
    plan, nodes = found.plan, found.plan.graph.nodes
    maker = "by an unknown maker"
    if found.origin:
        tool, version, kernels = (one_line(v) for v in (found.origin.tool, found.origin.version, found.origin.kernels))
        maker = f"made by {tool} {version} for kernels {kernels}"
    verdict = "safe" if not found.findings else "NOT SAFE"
    if found.doubts and not found.findings:
        verdict = "not to be judged at operations that diagmem does not know"
    shared = sorted(plan.overlaps, key=lambda o: -o.size_bytes)
    lines = [
        f"The file carries a plan, {maker}; for kernels {plan.options.kernels} it is {verdict}.",
        f"its head     {size_text(plan.arena_bytes)}; without it TFLM takes {size_text(found.baseline_bytes)}",
        f"overlaps     {len(shared)} of {len(nodes)} ops share bytes of an input and an output",
    ]
    lines += [f"             {o.size_bytes:>9} B at {op_text(nodes[o.op])}" for o in shared[:MOST_LINES]]
    lines += [f"unsafe       {finding}" for finding in found.findings[:MOST_LINES]]
    lines += [f"unknown      {finding}" for finding in found.doubts[:MOST_LINES]]
    return [*lines, ""]


def embedded_json(found: EmbeddedPlan) -> dict[str, Any]:
    from diagmem.planning import json as plan_json

    return {
        "kernels": found.plan.options.kernels,
        "maker": found.origin.tool if found.origin else None,
        "arena_bytes": found.plan.arena_bytes,
        "safe": not found.findings and not found.doubts,
        "findings": [str(finding) for finding in (*found.findings, *found.doubts)],
        "overlaps": plan_json.overlaps_json(found.plan),
        "tensors": plan_json.tensors_json(found.plan),
    }
