"""`diagmem plan`: where everything goes, how much that saves, and whether it fits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from diagmem.cli._embedded import embedded_in, embedded_json, embedded_lines
from diagmem.cli._fit import Limits, Verdict, c_lines
from diagmem.cli._ladder import ladder_lines
from diagmem.cli._make_fit import Fitting, fitting_options, is_to_fit, made_to_fit
from diagmem.cli._pools import next_frame_lines, pool_lines
from diagmem.cli._rows import row_lines, show_curve
from diagmem.cli._shared import (
    ModelParameter,
    channels_last_option,
    console,
    json_option,
    naming_model,
    op_text,
    planning_options,
    shape_option,
    size_option,
    size_text,
    sources_of,
    wire_option,
    working,
    write_file,
    write_json,
)
from diagmem.cli._together import missing_together, together_json, together_lines
from diagmem.model.errors import DiagmemError, PlanError, one_line
from diagmem.model.schedule import PUSH

if TYPE_CHECKING:
    from rich.console import Console

    from diagmem.backends.tflm.planned_file import EmbeddedPlan
    from diagmem.frontends.source import Source
    from diagmem.planning.plan import Plan
    from diagmem.planning.planner import Planned

ANSWER_IS_NO = 1
BAD_INPUT = 2


@click.command(short_help="The arena: before, after, lower bound, fits or not.")
@click.argument("models", type=ModelParameter(), nargs=-1, required=True, metavar="MODEL...")
@wire_option
@shape_option
@channels_last_option
@planning_options
@size_option("--budget", "Say whether the arena fits into so many bytes, such as 65536, 64K or 1M.")
@click.option(
    "--target",
    "target_name",
    metavar="MCU",
    help="Say whether it fits this chip or board (see `diagmem targets`), or one that a FILE.toml describes.",
)
@fitting_options
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
      diagmem plan model.tflite --pool dtcm:128K --pool axi:512K:3
      diagmem plan model.tflite --target STM32H743 --fit
      diagmem plan ears.tflite words.tflite --wire ears:0=words:0
    """
    # What numpy loads makes threads for products of matrices, of which there are none to speak of; they cost 30 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    limits = Limits.of(budget, target_name)
    sources = sources_of(models)
    is_fitted = is_to_fit(options, sources)
    options |= limits.memories(options["pools"], options.pop("all_memories"), options["weights_pool"])
    if pareto:
        _check_curve(sources, svg_path, options["pools"])
        ctx.exit(show_curve(sources[0], options, limits, json_path))
    given = ctx.get_parameter_source("kernels") is not ParameterSource.DEFAULT
    kernels = options["kernels"] if given else None
    if len(sources) > 1:
        found = _many(sources, jobs, options, kernels, limits)
    else:
        found = [_fitted(sources[0], options, limits) if is_fitted else _one(sources[0], options, kernels, limits)]
    results = [one for one in found if isinstance(one, _Result)]
    if json_path:
        rows = [one.to_json() for one in found]
        write_json(json_path, rows[0] if len(rows) == 1 else {"plans": rows, **together_json(results, limits)})
    if svg_path:
        _draw(results, svg_path)
    if json_path != "-":
        _summarise(console(), found, limits) if len(found) > 1 else _show(results[0])
    if len(results) < len(found):
        ctx.exit(BAD_INPUT)
    if not all(one.is_good for one in results) or missing_together(results, limits):
        ctx.exit(ANSWER_IS_NO)


@dataclass(frozen=True, slots=True)
class _Result:
    """A model's plan, how it stands to the limits, and the plan that the file carried."""

    source: Source
    made: Planned
    verdict: Verdict
    carried: EmbeddedPlan | None
    fitting: Fitting | None = None

    @property
    def is_good(self) -> bool:
        is_held = not self.made.plan.pools.missing_bytes
        return self.verdict.fits and is_held and not (self.carried and self.carried.findings)

    def again(self, made: Planned, limits: Limits) -> _Result:
        return replace(self, made=made, verdict=limits.verdict(self.source, made))

    def to_json(self) -> dict[str, Any]:
        from diagmem.planning.json import to_json

        carried = {"embedded": embedded_json(self.carried)} if self.carried else {}
        tried = self.fitting.to_json() if self.fitting else {}
        return {**to_json(self.made), **self.verdict.to_json(), **carried, **tried}


@dataclass(frozen=True, slots=True)
class _Bad:
    """A model of several that could not be planned."""

    name: str
    error: DiagmemError

    def to_json(self) -> dict[str, Any]:
        return {"model": self.name, "error": str(self.error)}


def _check_curve(sources: list[Source], svg_path: str | None, pools: Sequence[Any]) -> None:
    if len(sources) != 1:
        raise PlanError("--pareto lists plans of one MODEL: give a single one")
    if svg_path:
        raise PlanError("--pareto lists several plans, and --svg draws one: leave out either")
    if pools:
        raise PlanError("--pareto lists arenas in one memory: leave out --pool and --all-memories, or --pareto")


def _one(source: Source, options: dict[str, Any], kernels: str | None, limits: Limits) -> _Result:
    """`kernels`: those that a plan in the file is judged for, if they were named."""
    from diagmem.pipeline import plan_telling

    with naming_model(source.label), working("planning") as bar:
        made = plan_telling(limits.graph(source, options), bar.tell, options)
        return _judged(source, made, kernels, limits)


def _fitted(source: Source, options: dict[str, Any], limits: Limits) -> _Result:
    fitting = made_to_fit(source, options, limits, sys.argv[1:])
    made = fitting.best.made
    assert made is not None
    return _Result(source, made, limits.verdict(source, made), None, fitting)


def _judged(source: Source, made: Planned, kernels: str | None, limits: Limits) -> _Result:
    return _Result(source, made, limits.verdict(source, made), embedded_in(source, kernels))


def _many(
    sources: list[Source], jobs: int, options: dict[str, Any], kernels: str | None, limits: Limits
) -> list[_Result | _Bad]:
    """One bad model does not keep the others from being planned."""
    job = partial(_planned, options=options, limits=limits)
    found: list[_Result | _Bad] = []
    with working("planning") as bar:
        for source, made in zip(sources, _mapped(job, sources, jobs), strict=True):
            if isinstance(made, DiagmemError):
                found.append(_Bad(source.label, made))
            else:
                found.append(_judged(source, made, kernels, limits))
            bar.tell("planning", len(found), len(sources))
        if options["together"] and options["pools"]:
            return _beside_each_other(found, limits)
    return found


def _beside_each_other(found: list[_Result | _Bad], limits: Limits) -> list[_Result | _Bad]:
    """With room in the pools for what all models keep."""
    from diagmem.planning.memory.caller import beside_each_other

    plans = iter(beside_each_other([one.made for one in found if isinstance(one, _Result)]))
    return [one.again(next(plans), limits) if isinstance(one, _Result) else one for one in found]


def _mapped(
    job: Callable[[Source], Planned | DiagmemError], sources: list[Source], jobs: int
) -> Iterator[Planned | DiagmemError]:
    if jobs == 1:
        yield from map(job, sources)
    else:
        from diagmem.cli._processes import workers

        with workers(jobs) as pool:
            yield from pool.map(job, sources)


def _planned(source: Source, options: dict[str, Any], limits: Limits) -> Planned | DiagmemError:
    from diagmem.pipeline import plan

    try:
        with naming_model(source.label):
            return plan(limits.graph(source, options), **options)
    except DiagmemError as error:
        return error
    except OSError as error:
        return DiagmemError(f"{source.label}: {error.strerror or error}")


def _draw(results: list[_Result], path: str) -> None:
    from diagmem.reports import arena_svg

    if len(results) != 1:
        raise PlanError("--svg draws one model; give a single MODEL")
    write_file(Path(path), arena_svg(results[0].made.plan).encode())


def _show(result: _Result) -> None:
    for line in (*(embedded_lines(result.carried) if result.carried else ()), *_headline(result.made)):
        click.echo(line)
    if sys.stdout.isatty():
        from diagmem.reports.arena import arena_lines

        out = console()
        out.print()
        for line in arena_lines(result.made.plan, out.width):
            out.print(line, markup=False, overflow="crop", no_wrap=True)
    tried = result.fitting.lines() if result.fitting else ()
    for line in (*c_lines(result.source, result.made), *result.verdict.lines(), *tried):
        click.echo(line)


def _effort_lines(plan: Plan) -> list[str]:
    """Nothing for a plan that is proven, and would be found again."""
    options, lines = plan.options, list[str]()
    if plan.is_bounded:
        more = "" if options.effort == "thorough" else "; --effort thorough looks further"
        lines.append(f"effort       {options.effort}: it was spent before there was a proof{more}")
    if options.time_limit is not None:
        lines.append(f"             at most {options.time_limit:g} s were given: another run may end otherwise")
    return lines


def _core_lines(plan: Plan) -> list[str]:
    """How several cores share the run, where that was asked for."""
    if plan.multicore is None:
        return []
    from diagmem.planning.cores.multicore import estimated_speedup, most_held_bytes, running_steps

    shared, steps = plan.multicore, running_steps(plan)
    together = sum(step in shared.by_step for step in steps)
    what = "steps" if plan.runs_by_rows else "ops"
    faster = f"about {estimated_speedup(plan, shared, shared.cores):.2f} times as fast"
    held = most_held_bytes(plan.graph, shared) // 2
    return [
        f"cores        up to {shared.cores}: {shared.barriers(steps)} barriers, {faster}; they share "
        f"{together} {what}, and one does {len(steps) - together} alone",
        *([f"             each of two holds back up to {held} B on its stack"] if held else []),
    ]


def _headline(made: Planned) -> list[str]:
    plan, nodes = made.plan, made.plan.graph.nodes
    arena_bytes = plan.pools.single_bytes or plan.arena_bytes
    saved = 100 * (1 - arena_bytes / made.baseline_bytes) if made.baseline_bytes else 0.0
    lines = [
        f"{one_line(plan.graph.name)} for kernels {plan.options.kernels}, offsets aligned to "
        f"{plan.options.align_bytes} B, order: {plan.schedule.name}",
        "",
        f"before       {size_text(made.baseline_bytes)}: best plan without overlap, in the file's order",
        f"after        {size_text(arena_bytes)}: {saved:.1f} % less{' in one pool' if plan.pools else ''}",
        f"lower bound  {size_text(plan.lower_bound_bytes)}; the plan is {plan.standing}",
        *_effort_lines(plan),
    ]
    if plan.graph.variables:
        where = "of these, live from run to run" if plan.state_bytes else "beside the arena: the runtime holds it"
        size = plan.state_bytes or sum(t.size_bytes for t in plan.graph.variables)
        lines.append(f"state        {size_text(size)} {where}")
    lines += [*next_frame_lines(plan), *_core_lines(plan), *ladder_lines(made), *pool_lines(plan)]
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


def _summarise(out: Console, found: list[_Result | _Bad], limits: Limits) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("model", overflow="fold")
    for heading in ("before", "after", "saved", "lower bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in found:
        if isinstance(one, _Bad):
            table.add_row(
                escape(one_line(one.name)),
                "-",
                "-",
                "-",
                "-",
                escape(str(one.error).removeprefix(f"{one.name}: ")),
                style="red",
            )
            continue
        made = one.made
        saved = f"{100 * made.saved_bytes / made.baseline_bytes:.1f} %" if made.baseline_bytes else "-"
        notes = [*(["proven"] if made.optimal else []), one.verdict.short()]
        figures = (str(made.baseline_bytes), str(made.arena_bytes), saved, str(made.lower_bound_bytes))
        table.add_row(escape(one_line(made.model.name)), *figures, ", ".join(note for note in notes if note))
    out.print(table)
    for line in together_lines([one for one in found if isinstance(one, _Result)], limits):
        out.print(line, markup=False, soft_wrap=True)
