"""What `diagmem plan` says about plans that run row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import console, naming_model, size_text, working, write_json
from diagmem.errors import PlanError
from diagmem.row_storage import Form, RowStorage

if TYPE_CHECKING:
    from diagmem.plans import Plan


def row_lines(plan: Plan) -> Iterator[str]:
    """Steps, work, and how rows lie."""
    forms = Counter(RowStorage.of(offsets).form for offsets in plan.row_offsets.values() if len(offsets) > 1)
    again = f", {plan.recompute:.2f} times the multiply-accumulates" if plan.recompute > 1 else ", nothing twice"
    given = "; the caller hands the input over row by row" if plan.input_rows else ""
    yield f"rows         {len(plan.schedule.steps)} steps{again}{given}"
    kept = ", ".join(f"{forms[form]} {name}" for form, name in _FORMS.items() if forms[form])
    yield f"             of the tensors with several rows {kept}"


_FORMS: dict[Form, str] = {"linear": "in one piece", "ring": "in a ring", "table": "row by row anywhere"}


def show_curve(models: tuple[str, ...], options: dict[str, Any], json_path: str | None) -> None:
    """Lists plans that take less and less memory for more and more work."""
    from diagmem.pipeline import MOST_RECOMPUTE, pareto

    if len(models) != 1 or options["kernels"] != "diagmem" or options["external_io"]:
        raise PlanError("--pareto is for one MODEL and our own kernels: no --kernels, no --external-io")
    most = options["recompute"] if options["recompute"] > 1 else MOST_RECOMPUTE
    with naming_model(models[0]), working("planning"):
        plans = pareto(
            models[0],
            allocator=options["allocator"],
            align=options["align"] or 1,
            keep_inputs=options["keep_inputs"],
            input_rows=options["input_rows"],
            recompute=most,
            remove=options["remove"],
        )
    rows = [
        {"how": _how(plan), "arena_bytes": plan.arena_bytes, "recompute": round(plan.recompute, 4)} for plan in plans
    ]
    if json_path:
        write_json(json_path, {"model": plans[0].graph.name, "most_recompute": most, "pareto": rows})
    if json_path != "-":
        out = console()
        for plan in plans:
            line = f"{size_text(plan.arena_bytes):>22}  {plan.recompute:>5.2f} x MACs  {_how(plan)}"
            out.print(line, markup=False, soft_wrap=True)


def _how(plan: Plan) -> str:
    if not plan.runs_by_rows:
        return "layer by layer"
    again = Counter((step.op, step.turn) for step in plan.schedule.steps if step.turn is not None)
    repeated = len({op for (op, _), count in again.items() if count > 1})
    streamed = ", input streamed" if plan.input_rows else ""
    again_of = f", rows of {repeated} tensor{'s' if repeated > 1 else ''} made again" if repeated else ""
    return f"row by row{streamed}{again_of}"
