"""What `diagmem plan` says about plans that run row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import console, naming_model, size_text, working, write_json
from diagmem.planning.plan import Form

ANSWER_IS_NO = 1

if TYPE_CHECKING:
    from diagmem.cli._fit import Limits
    from diagmem.frontends.source import Source
    from diagmem.planning.plan import Plan


def row_lines(plan: Plan) -> Iterator[str]:
    """Steps, work, and how rows lie."""
    forms = Counter(storage.form for storage in plan.storage.values() if storage.height > 1)
    again = f", {plan.recompute:.2f} times the multiply-accumulates" if plan.recompute > 1 else ", nothing twice"
    given = "; the caller hands the input over row by row" if plan.input_rows else ""
    yield f"rows         {len(plan.schedule.steps)} steps{again}{given}"
    kept = ", ".join(f"{forms[form]} {name}" for form, name in _FORMS.items() if forms[form])
    yield f"             of the tensors with several rows {kept}"


_FORMS: dict[Form, str] = {"linear": "in one piece", "ring": "in a ring", "table": "row by row anywhere"}


def show_curve(source: Source, options: dict[str, Any], limits: Limits, json_path: str | None) -> int:
    """Lists plans that take less and less memory for more and more work. Returns the exit status: 1 if a limit is given
    and none stays within it."""
    from diagmem.pipeline import pareto_telling

    limit = limits.ram_bytes
    with naming_model(source.label), working("planning") as bar:
        found = pareto_telling(source.graph_for(limits.chip), bar.tell, options)
        verdicts = [limits.verdict(source, made) for made in found]
    rows = []
    for made, verdict in zip(found, verdicts, strict=True):
        fits = verdict.to_json()
        again = round(made.plan.recompute, 4)
        rows.append({"how": how(made.plan), "arena_bytes": made.arena_bytes, "recompute": again, **fits})
    if json_path:
        limited = {} if limit is None else {"limit_bytes": limit}
        most = found[0].plan.options.recompute
        write_json(json_path, {"model": found[0].model.name, "most_recompute": most, **limited, "pareto": rows})
    if json_path != "-":
        out = console()
        for made, verdict in zip(found, verdicts, strict=True):
            said = "" if limit is None else "fits      " if verdict.fits else "too large "
            line = f"{size_text(made.arena_bytes):>22}  {made.plan.recompute:>5.2f} x MACs  {said}{how(made.plan)}"
            out.print(line, markup=False, soft_wrap=True)
    return ANSWER_IS_NO if not any(verdict.fits for verdict in verdicts) else 0


def how(plan: Plan) -> str:
    """In what way a plan runs, in a few words."""
    lean = plan.options.library.lean
    without = f", {len(lean)} op{'s' if len(lean) > 1 else ''} without scratch" if lean else ""
    if not plan.runs_by_rows:
        return f"layer by layer{without}"
    again = Counter((step.op, step.turn) for step in plan.schedule.steps if step.turn is not None)
    repeated = len({op for (op, _), count in again.items() if count > 1})
    streamed = ", input streamed" if plan.input_rows else ""
    again_of = f", rows of {repeated} tensor{'s' if repeated > 1 else ''} made again" if repeated else ""
    return f"row by row{streamed}{again_of}{without}"
