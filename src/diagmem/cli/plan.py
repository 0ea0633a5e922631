"""`diagmem plan`: where everything goes, how much that saves, and whether it fits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diagmem.cli._embedded import embedded_in, embedded_json, embedded_lines
from diagmem.cli._processes import workers
from diagmem.cli._rows import row_lines, show_curve
from diagmem.cli._shared import (
    ModelParameter,
    console,
    json_option,
    naming_model,
    op_text,
    planning_options,
    progress,
    size_text,
    write_file,
    write_json,
)
from diagmem.errors import PlanError, one_line
from diagmem.model.schedule import PUSH

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.backends.tflm.planned_file import EmbeddedPlan
    from diagmem.frontends.source import Source
    from diagmem.planning.plan import Plan
    from diagmem.planning.planner import Planned
    from diagmem.reports.targets import Target

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
    from diagmem.frontends.source import Source
    from diagmem.reports.targets import target

    chip = target(target_name) if target_name else None
    limits = [limit for limit in (budget, chip.arena_limit_bytes if chip else None) if limit is not None]
    limit = min(limits, default=None)
    if pareto:
        _check_curve(models, svg_path)
        ctx.exit(show_curve(models[0], options, limit, json_path))
    sources = [Source(model) for model in models]
    made = _planned_all(sources, jobs, options)
    given = ctx.get_parameter_source("kernels") is not ParameterSource.DEFAULT
    carried = [embedded_in(source, options["kernels"] if given else None) for source in sources]
    if json_path:
        rows = [_json(*one, limit) for one in zip(made, carried, strict=True)]
        write_json(json_path, rows[0] if len(rows) == 1 else {"plans": rows})
    if svg_path:
        _draw(made, svg_path)
    if json_path != "-":
        out = console()
        if len(made) == 1:
            for line in embedded_lines(carried[0]) if carried[0] else ():
                out.print(line, markup=False, soft_wrap=True)
            _show(out, made[0], [*_verdicts(made[0].plan, budget, chip)])
        else:
            _summarise(out, made, limit)
    is_too_large = limit is not None and any(one.arena_bytes > limit for one in made)
    if is_too_large or any(found and found.findings for found in carried):
        ctx.exit(ANSWER_IS_NO)


def _check_curve(models: tuple[str, ...], svg_path: str | None) -> None:
    if len(models) != 1:
        raise PlanError("--pareto lists plans of one MODEL: give a single one")
    if svg_path:
        raise PlanError("--pareto lists several plans, and --svg draws one: leave out either")


def _planned_all(sources: list[Source], jobs: int, options: dict[str, Any]) -> list[Planned]:
    if jobs == 1 or len(sources) == 1:
        return [_planned(source, options) for source in progress(sources, "planning")]
    with workers(jobs) as pool:
        futures = [pool.submit(_planned, source, options) for source in sources]
        return [future.result() for future in progress(futures, "planning")]


def _planned(source: Source, options: dict[str, Any]) -> Planned:
    from diagmem.pipeline import plan

    with naming_model(str(source.model)):
        return plan(source, **options)


def _json(made: Planned, carried: EmbeddedPlan | None, limit: int | None) -> dict[str, Any]:
    from diagmem.planning.plan_json import to_json

    fits = {} if limit is None else {"limit_bytes": limit, "fits": made.arena_bytes <= limit}
    return {**to_json(made), **fits, **({"embedded": embedded_json(carried)} if carried else {})}


def _ladder_lines(made: Planned) -> Iterator[str]:
    first, *others = made.ladder
    yield f"ladder       {first.step + ', file order':<27}{first.arena_bytes:>10} B"
    for rung in others:
        saved = f"{100 * rung.arena_bytes / first.arena_bytes - 100:>6.1f} %" if first.arena_bytes else ""
        yield f"             {'+ ' + rung.step:<27}{rung.arena_bytes:>10} B  {saved}".rstrip()
    for removal in made.removals:
        less = f", {size_text(-removal.bytes_changed)} of tensors less" if removal.bytes_changed < 0 else ""
        count = f"{len(removal.ops)} op{'s' if len(removal.ops) != 1 else ''}"
        yield f"removed      {count} by {removal.transform}{less}"


def _draw(made: list[Planned], path: str) -> None:
    from diagmem.reports import arena_svg

    if len(made) != 1:
        raise PlanError("--svg draws one model; give a single MODEL")
    write_file(Path(path), arena_svg(made[0].plan).encode())


def _show(out: Console, made: Planned, verdicts: list[str]) -> None:
    for line in _headline(made):
        out.print(line, markup=False, soft_wrap=True)
    if sys.stdout.isatty():
        from diagmem.reports.text import arena_lines

        out.print()
        for line in arena_lines(made.plan, out.width):
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


def _headline(made: Planned) -> list[str]:
    plan, nodes = made.plan, made.plan.graph.nodes
    saved = 100 * made.saved_bytes / made.baseline_bytes if made.baseline_bytes else 0.0
    order = "all orders" if plan.is_over_all_orders else "this order"
    gap = plan.arena_bytes - plan.lower_bound_bytes
    proof = f"proven over {order}" if plan.optimal else f"not proven: at most {gap} B above the bound"
    lines = [
        f"{one_line(plan.graph.name)} for kernels {plan.options.kernels}, offsets aligned to "
        f"{plan.options.align_bytes} B, order: {plan.schedule.name}",
        "",
        f"before       {size_text(made.baseline_bytes)}: best plan without overlap, in the file's order",
        f"after        {size_text(plan.arena_bytes)}: {saved:.1f} % less",
        f"lower bound  {size_text(plan.lower_bound_bytes)}; the plan is {proof}",
    ]
    lines += _ladder_lines(made)
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


def _summarise(out: Console, plans: list[Planned], limit: int | None) -> None:
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
            escape(one_line(plan.model.name)), *map(str, figures), saved, str(plan.lower_bound_bytes), ", ".join(notes)
        )
    out.print(table)
