"""The Python API: the one place where the stages are chained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from diagmem.allocators import ALLOCATORS, Placement, optimal
from diagmem.allocators.effort import NORMAL
from diagmem.allocators.many_orders import many_orders
from diagmem.allocators.rings import with_rings
from diagmem.errors import PlanError, UnsafePlanError
from diagmem.footprint import Footprint, Options, footprint
from diagmem.graph import Graph
from diagmem.kernels import library
from diagmem.models import load
from diagmem.plans import Plan, Rung
from diagmem.problem import Problem, problem
from diagmem.removal import without_ops
from diagmem.row_problem import row_problem
from diagmem.rows import RowGraph, row_graph
from diagmem.schedule import Schedule
from diagmem.schedulers import SCHEDULERS, every_order, file_order, gates, search
from diagmem.schedulers.recompute import recomputing_orders
from diagmem.schedulers.rows import RowSchedule
from diagmem.transforms import FOR_ROWS, ONLY_FOR_ROWS, TRANSFORMS, Removal, transformed
from diagmem.validate import validate
from diagmem.validate_rows import validate_rows

BEST = "best"

ROWS = "rows"

MOST_RECOMPUTE = 4.0
"""Times the multiply-accumulates: as far as a curve of memory and work goes."""

MOST_TURNS = 16_384
"""Of a run row by row: beyond that the list of steps would take more flash than anyone has, and planning minutes."""

MOST_ORDERS = 50
"""Where nothing cheaper proves a plan to be the best, and there are no more orders than these, all are placed."""

Allocator = Callable[[Problem], Placement]

Model = str | Path | bytes | Graph


def plan(
    model: Model,
    *,
    kernels: str = "diagmem",
    schedule: str = BEST,
    allocator: str = BEST,
    overlap: bool = True,
    align: int | None = None,
    keep_inputs: bool = False,
    external_io: bool = False,
    input_rows: bool = False,
    recompute: float = 1.0,
    remove: Collection[str] | None = None,
) -> Plan:
    """The plan of a model: a path to a .tflite file, its bytes, `zoo:NAME`, or a Graph.

    `align` is the least alignment of every offset; a tensor is never aligned below its element's size. By default it is
    what the kernel library asks for: 1 byte for `diagmem`, 16 for TensorFlow Lite Micro. With schedule `rows` ops run a
    row at a time; `input_rows` then leaves it to the caller to hand over the input row by row, and `recompute` allows
    rows to be made again, up to so many times the multiply-accumulates. `remove` names the transforms that may remove
    ops where that does not make the plan larger, by default all; for kernels that cannot address a part of a tensor,
    none does. The plan has passed the validator; one that does not is a bug, and raises UnsafePlanError.
    """
    graph = load(model)
    align_bytes = library(kernels).align_bytes if align is None else align
    options = Options(kernels, align_bytes, keep_inputs, external_io, overlap)
    names = _transforms(kernels, remove)
    if schedule == ROWS:
        made = _planned_by_rows(footprint(graph, options), allocator, input_rows, recompute, names)[-1]
    elif input_rows or recompute != 1:
        raise PlanError("an input that comes row by row, and rows that are made again, need --schedule rows")
    else:
        made = _planned(footprint(graph, options), schedule, allocator)
        made = _with_fewer_ops(made, schedule, allocator, names)
    return _validated(made)


def pareto(
    model: Model,
    *,
    allocator: str = BEST,
    align: int = 1,
    keep_inputs: bool = False,
    input_rows: bool = False,
    recompute: float = MOST_RECOMPUTE,
    remove: Collection[str] | None = None,
) -> tuple[Plan, ...]:
    """What less memory costs in work: plans for our own kernels of which each takes less RAM than the one before, and
    no fewer multiply-accumulates, up to `recompute` times those of the first."""
    options = Options("diagmem", align, keep_inputs)
    needs = footprint(load(model), options)
    found = _planned_by_rows(needs, allocator, input_rows, recompute, _transforms(options.kernels, remove))
    return tuple(_validated(made) for made in found)


def _validated(made: Plan) -> Plan:
    findings = validate_rows(made) if made.runs_by_rows else validate(made)
    if findings:
        name = made.graph.name
        raise UnsafePlanError(f"{name}: the plan is not safe: {findings[0]}; this is a bug, please report it")
    return made


def _transforms(kernels: str, remove: Collection[str] | None) -> Collection[str]:
    """The transforms to try."""
    can_remove = library(kernels).addresses_views
    unknown = sorted(set(remove or ()) - TRANSFORMS.keys())
    if unknown:
        raise PlanError(f"transform '{unknown[0]}' is not known; known: {', '.join(TRANSFORMS)}")
    return (TRANSFORMS if remove is None else remove) if can_remove else ()


def _with_fewer_ops(whole: Plan, schedule: str, allocator: str, names: Collection[str]) -> Plan:
    """A plan of the graph with ops removed, if it is no larger than that of the whole graph."""
    graph, options = whole.graph, whole.options
    names = [name for name in names if name not in ONLY_FOR_ROWS]
    for removed in without_ops(graph, options, names, whole.arena_bytes) if names else ():
        made = _planned(footprint(removed.graph, options), schedule, allocator)
        if made.arena_bytes <= whole.arena_bytes:
            return replace(
                made,
                baseline_bytes=whole.baseline_bytes,
                removals=removed.removals,
                source=graph,
                whole_bytes=whole.arena_bytes,
            )
    return whole


def ladder(made: Plan) -> tuple[Rung, ...]:
    """What each step from whole tensors in the file's order to this plan is worth."""
    whole_bytes = made.arena_bytes if made.whole_bytes is None else made.whole_bytes
    order = BEST if made.is_over_all_orders or made.runs_by_rows else made.schedule.name
    apart = footprint(made.model, replace(made.options, overlap=False))
    rungs = [
        Rung("whole tensors", made.baseline_bytes),
        Rung(f"{order} order", _planned(apart, order, BEST).arena_bytes if made.options.overlap else whole_bytes),
    ]
    rungs += [Rung("overlap", whole_bytes)] if made.options.overlap else []
    if made.runs_by_rows:
        rungs += _rungs_of_rows(made)
    elif made.removals:
        rungs.append(Rung("removal", made.arena_bytes))
    return tuple(rungs)


def _rungs_of_rows(made: Plan) -> list[Rung]:
    """Rows, then the input handed over row by row, then rows that are made again, as far as the plan has them."""
    rows = partial(
        plan,
        made.model,
        schedule=ROWS,
        allocator=made.allocator,
        align=made.options.align_bytes,
        keep_inputs=made.options.keep_inputs,
        remove={removal.transform for removal in made.removals},
    )
    rungs = []
    if made.input_rows:
        rungs.append(Rung("rows", rows().arena_bytes))
    if made.recompute > 1:
        once = rows(input_rows=made.input_rows).arena_bytes
        rungs.append(Rung("streamed input" if made.input_rows else "rows", once))
    last = "recomputation" if made.recompute > 1 else "streamed input" if made.input_rows else "rows"
    return [*rungs, Rung(last, made.arena_bytes)]


def plan_many(models: Iterable[Model], executor: Executor | None = None, **options: Any) -> Iterator[Plan]:
    """Plans of many models, in their order, with the same options; on a process pool, or any executor that maps."""
    return (executor.map if executor else map)(partial(plan, **options), models)


@dataclass(frozen=True, slots=True)
class _Choice:
    """An order, the problem that it poses, and where everything goes."""

    schedule: Schedule
    problem: Problem
    placement: Placement

    @property
    def arena_bytes(self) -> int:
        return self.placement.arena_bytes

    @property
    def gap(self) -> int:
        """Bytes above what is proven to be needed."""
        return self.placement.arena_bytes - self.placement.lower_bound_bytes


def _planned(needs: Footprint, schedule: str, allocator: str) -> Plan:
    place = ALLOCATORS["optimal" if allocator == BEST else _known(allocator, ALLOCATORS, "allocator")]
    if schedule in (BEST, "search"):
        chosen, bound = _over_all_orders(needs, place, others=schedule == BEST)
    else:
        chosen = _choice(needs, SCHEDULERS[_known(schedule, SCHEDULERS, "schedule")](needs), place)
        bound = chosen.placement.lower_bound_bytes
    plain = _without_overlap(needs)
    if chosen.arena_bytes > plain.arena_bytes and allocator == BEST and schedule in (BEST, "file"):
        # What keeps buffers apart also serves where they might overlap.
        chosen = _choice(needs, plain.schedule, lambda posed: Placement.of(posed, plain.placement.offsets))
    return Plan(
        needs.graph,
        needs.options,
        chosen.schedule,
        chosen.problem.buffers,
        chosen.placement.offsets,
        chosen.arena_bytes,
        bound,
        schedule in (BEST, "search"),
        chosen.problem.pressure,
        allocator,
        plain.arena_bytes,
    )


def _planned_by_rows(
    needs: Footprint, allocator: str, input_rows: bool, recompute: float, names: Collection[str]
) -> list[Plan]:
    """Plans that take ever less memory for ever more work: layer by layer (unless the input is streamed), row by row,
    and with rows that are made again."""
    options, graph = needs.options, needs.graph
    if options.kernels != "diagmem" or options.external_io:
        raise PlanError("rows are run by our own kernels, in one arena: use --kernels diagmem and no --external-io")
    if any(tensor.view is not None for tensor in graph.tensors):
        raise PlanError("rows are planned for the model as its file has it: ops must not have been removed before")
    if input_rows and (len(graph.inputs) != 1 or options.keep_inputs):
        raise PlanError("to hand over the input row by row the model must have one input, which is not kept")
    whole = _planned(needs, BEST, allocator)
    lean, removals, rows = _rows(graph, options, names)
    less = footprint(lean, options)
    place = ALLOCATORS[_known(allocator, ALLOCATORS, "allocator")] if allocator != BEST else many_orders
    found = [] if input_rows else [_with_fewer_ops(whole, BEST, allocator, names)]
    orders = recomputing_orders(rows, input_rows, recompute)
    for order in orders:
        chosen = _choice_of_rows(less, rows, order, place)
        if not found or chosen.arena_bytes < found[-1].arena_bytes:
            found.append(
                replace(
                    whole,
                    graph=lean,
                    schedule=chosen.schedule,
                    buffers=chosen.problem.buffers,
                    buffer_offsets=with_rings(chosen.problem, chosen.placement.offsets),
                    arena_bytes=chosen.arena_bytes,
                    lower_bound_bytes=chosen.placement.lower_bound_bytes,
                    is_over_all_orders=False,
                    pressure=chosen.problem.pressure,
                    removals=removals,
                    source=graph,
                    whole_bytes=whole.arena_bytes,
                    recompute=order.macs / orders[0].macs if orders[0].macs else 1.0,
                )
            )
    return found


def _rows(graph: Graph, options: Options, names: Collection[str]) -> tuple[Graph, tuple[Removal, ...], RowGraph]:
    """The graph as it runs row by row, without some ops, and what was done to it. Very long lines are not cut up."""
    turns = 0
    for chosen in (FOR_ROWS, [name for name in FOR_ROWS if name not in ONLY_FOR_ROWS]):
        lean, removals = transformed(graph, [name for name in names if name in chosen])
        rows = row_graph(lean, library(options.kernels))
        turns = sum(op.turns for op in rows.ops)
        if turns <= MOST_TURNS:
            return lean, removals, rows
    raise PlanError(
        f"{turns} rows are too many to run one by one, {MOST_TURNS} can be: plan it without --schedule rows"
    )


def _choice_of_rows(needs: Footprint, rows: RowGraph, order: RowSchedule, place: Allocator) -> _Choice:
    posed = row_problem(needs, rows, order.schedule)
    best = _Choice(order.schedule, posed, place(posed))
    if order.plain is not None:
        # It seldom wins, so it gets a quarter of the time.
        briefly = partial(many_orders, effort=NORMAL.times(0.25)) if place is many_orders else place
        posed = row_problem(needs, rows, order.plain)
        if posed.lower_bound_bytes <= best.arena_bytes:
            plain = _Choice(order.plain, posed, briefly(posed))
            best = min(best, plain, key=lambda choice: (choice.arena_bytes, choice.gap))
    return best


def _known(name: str, table: Mapping[str, Any], what: str) -> str:
    if name not in table:
        raise PlanError(f"{what} '{name}' is not known; known: {', '.join([BEST, *table])}")
    return name


def _choice(needs: Footprint, schedule: Schedule, place: Allocator) -> _Choice:
    posed = problem(needs, schedule)
    return _Choice(schedule, posed, place(posed))


def _without_overlap(needs: Footprint) -> _Choice:
    """The best that can be done in file order if no two live buffers share a byte."""
    apart = footprint(needs.graph, replace(needs.options, overlap=False))
    return _choice(apart, file_order(apart), optimal)


def _over_all_orders(needs: Footprint, place: Allocator, others: bool) -> tuple[_Choice, int]:
    """The best choice found, and a bound that holds for all orders. `others`: where the order that needs least cannot
    be placed at its bound, try other ones."""
    searched = search(needs)
    best = _choice(needs, searched.schedule, place)
    bound = searched.bound_bytes
    if best.arena_bytes > bound:
        bound = max(bound, _bound_of_fixed_part(needs, best.problem, bound))
    for name in SCHEDULERS if others else ():
        if best.arena_bytes <= bound:
            return best, bound
        best = _better(needs, best, SCHEDULERS[name](needs), place)
    every = every_order(needs, best.arena_bytes, MOST_ORDERS) if others and best.arena_bytes > bound else None
    if every is None:
        return best, bound
    choices = [_choice(needs, order, place) for order in every]
    least = min((c.placement.lower_bound_bytes for c in choices), default=best.arena_bytes)
    best = min(best, *choices, key=lambda choice: choice.arena_bytes) if choices else best
    return best, max(bound, min(least, best.arena_bytes))


def _better(needs: Footprint, best: _Choice, order: Schedule, place: Allocator) -> _Choice:
    """The best choice so far, or that of another order if it is smaller."""
    if order.ops == best.schedule.ops or max(needs.pressure(order.ops)) * needs.unit_bytes >= best.arena_bytes:
        return best
    return min(best, _choice(needs, order, place), key=lambda choice: choice.arena_bytes)


def _bound_of_fixed_part(needs: Footprint, posed: Problem, bound: int) -> int:
    """A bound from the buffers whose writers and readers run in the same sequence in every order: what they are to each
    other does not depend on the order either."""
    fixed = gates(needs)
    users = [store.writers | store.readers for store in needs.stores]
    members = [index for index, ops in enumerate(users) if all(fixed >> op & 1 for op in ops)]
    return optimal(replace(posed.part(members), lower_bound_bytes=bound)).lower_bound_bytes
