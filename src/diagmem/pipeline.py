"""The Python API: the one place where the stages are chained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from diagmem.allocators import ALLOCATORS, Placement, optimal
from diagmem.errors import PlanError, UnsafePlanError
from diagmem.footprint import Footprint, Options, footprint
from diagmem.graph import Graph
from diagmem.kernels import library
from diagmem.models import load
from diagmem.plans import Plan
from diagmem.problem import Problem, problem
from diagmem.row_problem import row_problem
from diagmem.rows import row_graph
from diagmem.schedule import Schedule
from diagmem.schedulers import SCHEDULERS, every_order, file_order, gates, search
from diagmem.schedulers.rows import row_order
from diagmem.validate import validate
from diagmem.validate_rows import validate_rows

BEST = "best"

ROWS = "rows"

ROWS_EFFORT = 0.2
"""Rows make problems of hundreds of buffers that heuristics solve well: the exact solver gets little time for each."""

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
) -> Plan:
    """The plan of a model: a path to a .tflite file, its bytes, `zoo:NAME`, or a Graph.

    `align` is the least alignment of every offset; a tensor is never aligned below its element's size. By default it is
    what the kernel library asks for: 1 byte for `diagmem`, 16 for TensorFlow Lite Micro. With schedule `rows` ops run a
    row at a time; `input_rows` then leaves it to the caller to hand over the input row by row. The plan has passed the
    validator; one that does not is a bug, and raises UnsafePlanError.
    """
    graph = load(model)
    align_bytes = library(kernels).align_bytes if align is None else align
    options = Options(kernels, align_bytes, keep_inputs, external_io, overlap)
    if schedule == ROWS:
        made = _planned_by_rows(footprint(graph, options), allocator, input_rows)
    elif input_rows:
        raise PlanError("an input that comes row by row needs --schedule rows")
    else:
        made = _planned(footprint(graph, options), schedule, allocator)
    findings = validate_rows(made) if made.runs_by_rows else validate(made)
    if findings:
        raise UnsafePlanError(f"{graph.name}: the plan is not safe: {findings[0]}; this is a bug, please report it")
    return made


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


def _planned_by_rows(needs: Footprint, allocator: str, input_rows: bool) -> Plan:
    """Row by row, or layer by layer where that takes no more (and the input need not be streamed)."""
    options = needs.options
    if options.kernels != "diagmem" or options.external_io:
        raise PlanError("rows are run by our own kernels, in one arena: use --kernels diagmem and no --external-io")
    if input_rows and (len(needs.graph.inputs) != 1 or options.keep_inputs):
        raise PlanError("to hand over the input row by row the model must have one input, which is not kept")
    layers = _planned(needs, BEST, allocator)
    rows = row_graph(needs.graph, library(options.kernels))
    order = row_order(rows, input_rows).schedule
    posed = row_problem(needs, rows, order)
    place = ALLOCATORS[_known(allocator, ALLOCATORS, "allocator")] if allocator != BEST else _quickly
    placement = place(posed)
    if placement.arena_bytes >= layers.arena_bytes and not input_rows:
        return layers
    return replace(
        layers,
        schedule=order,
        buffers=posed.buffers,
        buffer_offsets=placement.offsets,
        arena_bytes=placement.arena_bytes,
        lower_bound_bytes=placement.lower_bound_bytes,
        is_over_all_orders=False,
        pressure=posed.pressure,
    )


def _quickly(posed: Problem) -> Placement:
    return optimal(posed, ROWS_EFFORT)


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
    """A bound from the buffers whose makers and readers run in the same sequence in every order: what they are to each
    other does not depend on the order either."""
    fixed = gates(needs)
    users = [{op for op in (store.maker, *store.readers) if op is not None} for store in needs.stores]
    members = [index for index, ops in enumerate(users) if all(fixed >> op & 1 for op in ops)]
    return optimal(replace(posed.part(members), lower_bound_bytes=bound)).lower_bound_bytes
