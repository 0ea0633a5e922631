"""`diagmem plan`: where everything goes, how much that saves, and whether it fits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diagmem.cli._embedded import embedded_in, embedded_json, embedded_lines
from diagmem.cli._rows import row_lines, show_curve
from diagmem.cli._shared import (
    LONGEST_PATH,
    ModelParameter,
    console,
    json_option,
    op_text,
    planning_options,
    progress,
    size_text,
    write_file,
    write_json,
)
from diagmem.errors import DiagmemError, PlanError, one_line
from diagmem.schedule import PUSH

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.plans import Plan
    from diagmem.targets import Target

ANSWER_IS_NO = 1


@click.command(short_help="The arena: before, after, lower bound, fits or not.")
@click.argument("models", type=ModelParameter(), nargs=-1, required=True, metavar="MODEL...")
@planning_options
@click.option("--budget", type=click.IntRange(min=1), metavar="BYTES", help="Say whether the arena fits into BYTES.")
@click.option("--target", "target_name", metavar="MCU", help="Say whether it fits this chip; see `diagmem targets`.")
@click.option("--svg", "svg_path", metavar="FILE", help="Draw the arena into FILE.")
@click.option(
    "--pareto", is_flag=True, help="List what less memory costs in multiply-accumulates (--recompute: at most)."
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Plan several models at once.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    models: tuple[str, ...],
    budget: int | None,
    target_name: str | None,
    svg_path: str | None,
    pareto: bool,
    jobs: int,
    json_path: str | None,
    **options: Any,
) -> None:
    """Plan the RAM of MODEL: the order of its ops, and where each tensor lies in one arena.

    An op's input and output overlap as far as the kernel allows. Every plan shown has been replayed byte by byte on
    shadow memory. `proven` means that no plan of this graph can be smaller. A plan that the file carries already is
    shown and judged first.

    \b
    Examples:
      diagmem plan model.tflite
      diagmem plan zoo:mobilenet_v1_0.25_128_int8 --target STM32F103xF
      diagmem plan model.tflite --kernels tflm-reference --align 16 --json plan.json
      diagmem plan models/*.tflite --jobs 4
      diagmem plan model.tflite --schedule rows --input-rows
      diagmem plan model.tflite --pareto --recompute 2
    """
    from diagmem.targets import target

    if pareto:
        show_curve(models, options, json_path)
        return
    chip = target(target_name) if target_name else None
    limits = [limit for limit in (budget, chip.arena_limit_bytes if chip else None) if limit is not None]
    limit = min(limits, default=None)
    plans = _plans(models, jobs, options)
    given = ctx.get_parameter_source("kernels") is not ParameterSource.DEFAULT
    carried = embedded_in(models[0], options["kernels"] if given else None) if len(models) == 1 else None
    # Some of its steps are plans of their own, so it is climbed once.
    ladder = list(_ladder(plans[0])) if len(plans) == 1 else []
    if json_path:
        extra = {"embedded": embedded_json(carried)} if carried else {}
        write_json(json_path, {**_json(plans, limit, ladder), **extra})
    if svg_path:
        _draw(plans, svg_path)
    if json_path != "-":
        out = console()
        for line in embedded_lines(carried) if carried else ():
            out.print(line, markup=False, soft_wrap=True)
        if len(plans) == 1:
            _show(out, plans[0], ladder, [*_verdicts(plans[0], budget, chip)])
        else:
            _summarise(out, plans, limit)
    is_too_large = limit is not None and any(plan.arena_bytes > limit for plan in plans)
    if is_too_large or (carried and carried.findings):
        ctx.exit(ANSWER_IS_NO)


def _plans(models: tuple[str, ...], jobs: int, options: dict[str, Any]) -> list[Plan]:
    if jobs == 1 or len(models) == 1:
        return [_planned(model, options) for model in progress(models, "planning")]
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_planned, model, options) for model in models]
        return [future.result() for future in progress(futures, "planning")]


def _planned(model: str, options: dict[str, Any]) -> Plan:
    from diagmem.pipeline import plan

    try:
        return plan(model, **options)
    except DiagmemError as error:
        raise type(error)(f"{one_line(model, LONGEST_PATH)}: {error}") from error


Ladder = list[dict[str, Any]]


def _json(plans: list[Plan], limit: int | None, ladder: Ladder) -> dict[str, Any]:
    """`ladder`: that of a single plan."""

    def one(plan: Plan, ladder: Ladder) -> dict[str, Any]:
        fits = {} if limit is None else {"limit_bytes": limit, "fits": plan.arena_bytes <= limit}
        return {**plan.to_json(), **fits, "ladder": ladder}

    return one(plans[0], ladder) if len(plans) == 1 else {"plans": [one(plan, list(_ladder(plan))) for plan in plans]}


def _ladder(plan: Plan) -> Iterator[dict[str, Any]]:
    """What each step is worth, of the first one's bytes."""
    from diagmem.pipeline import ladder

    for rung in ladder(plan):
        saved = 100 * (1 - rung.arena_bytes / plan.baseline_bytes) if plan.baseline_bytes else 0.0
        yield {"step": rung.step, "arena_bytes": rung.arena_bytes, "saved_percent": round(saved, 2)}


def _ladder_lines(plan: Plan, ladder: Ladder) -> Iterator[str]:
    first, *others = ladder
    yield f"ladder       {first['step'] + ', file order':<27}{first['arena_bytes']:>10} B"
    for rung in others:
        saved = f"{0.0 - rung['saved_percent']:>6.1f} %"
        yield f"             {'+ ' + rung['step']:<27}{rung['arena_bytes']:>10} B  {saved}"
    for removal in plan.removals:
        less = f", {size_text(-removal.bytes_changed)} of tensors less" if removal.bytes_changed < 0 else ""
        count = f"{len(removal.ops)} op{'s' if len(removal.ops) != 1 else ''}"
        yield f"removed      {count} by {removal.transform}{less}"


def _draw(plans: list[Plan], path: str) -> None:
    from diagmem.reports import arena_svg

    if len(plans) != 1:
        raise PlanError("--svg draws one model; give a single MODEL")
    write_file(Path(path), arena_svg(plans[0]).encode())


def _show(out: Console, plan: Plan, ladder: Ladder, verdicts: list[str]) -> None:
    for line in _headline(plan, ladder):
        out.print(line, markup=False, soft_wrap=True)
    if sys.stdout.isatty():
        from diagmem.reports.text import arena_lines

        out.print()
        for line in arena_lines(plan, out.width):
            out.print(line, markup=False, overflow="crop", no_wrap=True)
    for verdict in verdicts:
        out.print(verdict, markup=False, soft_wrap=True)


def _verdicts(plan: Plan, budget: int | None, chip: Target | None) -> Iterator[str]:
    if budget is not None:
        yield _verdict(plan, "the budget", budget, 0)
    if chip is not None:
        name, size = chip.largest_region
        what = f"{chip.name} ({chip.core}, {size // 1024} KB {name})"
        yield _verdict(plan, what, chip.arena_limit_bytes, size - chip.arena_limit_bytes)


def _headline(plan: Plan, ladder: Ladder) -> list[str]:
    nodes = plan.graph.nodes
    saved = 100 * plan.saved_bytes / plan.baseline_bytes if plan.baseline_bytes else 0.0
    order = "all orders" if plan.is_over_all_orders else "this order"
    gap = plan.arena_bytes - plan.lower_bound_bytes
    proof = f"proven over {order}" if plan.optimal else f"not proven: at most {gap} B above the bound"
    lines = [
        f"{one_line(plan.graph.name)} for kernels {plan.options.kernels}, offsets aligned to "
        f"{plan.options.align_bytes} B, order: {plan.schedule.name}",
        "",
        f"before       {size_text(plan.baseline_bytes)}: best plan without overlap, in the file's order",
        f"after        {size_text(plan.arena_bytes)}: {saved:.1f} % less",
        f"lower bound  {size_text(plan.lower_bound_bytes)}; the plan is {proof}",
    ]
    lines += _ladder_lines(plan, ladder)
    if plan.peak_op is not None:
        held = ", ".join(f"{one_line(b.name, 36)} {b.size_bytes} B" for b in plan.peak_buffers[:4])
        where = "a row of the input" if plan.peak_op == PUSH else op_text(nodes[plan.peak_op])
        lines += [f"peak         at {where}", f"             {held}"]
    if plan.runs_by_rows:
        return [*lines, *row_lines(plan)]
    shared = sorted(plan.overlaps, key=lambda o: -o.size_bytes)
    lines.append(
        f"overlaps     {len(shared)} of {len(nodes)} ops share bytes of an input and an output"
        + (":" if shared else "")
    )
    lines += [f"             {o.size_bytes:>9} B at {op_text(nodes[o.op])}" for o in shared[:5]]
    return lines


def _verdict(plan: Plan, what: str, limit: int, reserve: int) -> str:
    """`reserve`: bytes beside the limit that the arena must leave to stack and data."""
    left = limit - plan.arena_bytes
    if left >= 0:
        return f"fits         {what}: {size_text(left + reserve)} left for stack, data and the rest"
    kept = f" ({size_text(reserve)} must stay free for stack and data)" if reserve else ""
    return f"too large    for {what}: short by {size_text(-left)}{kept}"


def _summarise(out: Console, plans: list[Plan], limit: int | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", no_wrap=True)
    for heading in ("before", "after", "saved", "lower bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for plan in plans:
        saved = f"{100 * plan.saved_bytes / plan.baseline_bytes:.1f} %" if plan.baseline_bytes else "-"
        notes = ["proven"] if plan.optimal else []
        if limit is not None:
            short = plan.arena_bytes - limit
            notes.append("fits" if short <= 0 else f"short by {short} B")
        figures = (plan.baseline_bytes, plan.arena_bytes)
        table.add_row(
            escape(one_line(plan.graph.name)), *map(str, figures), saved, str(plan.lower_bound_bytes), ", ".join(notes)
        )
    out.print(table)
