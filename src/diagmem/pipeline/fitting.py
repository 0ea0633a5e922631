"""Makes a model fit: tries what saves RAM, the cheapest first, until a plan is small enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.planning import planner
from diagmem.planning.options import AUTO, ROWS, Options

WORK = (1.25, 2.0, 4.0)
"""Times the multiply-accumulates that rows which are made again may cost, one after the other."""

Missing = Callable[[planner.Planned], int]
"""By how many bytes a plan is too large."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """`changes`: options of the plan besides those that were asked for. `made`: the plan, None where there is none for
    the `reason` given. `missing_bytes`: by how much it is too large."""

    changes: Mapping[str, Any]
    made: planner.Planned | None = None
    missing_bytes: int = 0
    reason: str = ""

    @property
    def fits(self) -> bool:
        return self.made is not None and not self.missing_bytes


def attempts(graph: Graph, options: Options, missing: Missing, more_pools: Sequence[Any] = ()) -> Iterator[Attempt]:
    """Plans, each with less RAM for more trouble, the last of which fits if any does: as it was asked for, row by row,
    with an input that comes row by row, with rows that are made again. Then the same in `more_pools`, memories that the
    chip has besides. At last, where pools were given, with the last of them as large as it must be."""
    smallest, first = None, None
    for changes in _changes(options, more_pools):
        if changes == {"schedule": ROWS} and first is not None and first.plan.runs_by_rows:
            continue  # As it was asked for, it runs row by row already.
        found = _tried(graph, options, changes, missing)
        yield found
        if found.fits:
            return
        first = first or found.made
        if found.made is not None and (smallest is None or found.missing_bytes < smallest.missing_bytes):
            smallest = found
    if smallest is not None and smallest.made is not None and smallest.made.plan.pools:
        larger = {**smallest.changes, "pools": smallest.made.plan.pools.own_enlarged}
        yield _tried(graph, options, larger, missing)


def _changes(options: Options, more_pools: Sequence[Any]) -> Iterator[dict[str, Any]]:
    rows = list(_ways(options))
    yield from rows
    if more_pools:
        yield from ({**way, "pools": tuple(more_pools)} for way in rows)


def _ways(asked: Options) -> Iterator[dict[str, Any]]:
    yield {}
    if not asked.library.is_own or asked.external_io:
        return
    if asked.schedule != ROWS:
        yield {"schedule": ROWS}
    # These are row by row unless another schedule is asked for.
    by_rows: dict[str, Any] = {} if asked.schedule in (AUTO, ROWS) else {"schedule": ROWS}
    streamed = {**by_rows, "input_rows": True}
    if not asked.input_rows:
        yield streamed
    for work in WORK:
        if work > asked.recompute:
            yield {**by_rows, "recompute": work}
            yield {**streamed, "recompute": work}


def _tried(graph: Graph, options: Options, changes: Mapping[str, Any], missing: Missing) -> Attempt:
    try:
        made = planner.planned(graph, replace(options, **changes))
    except PlanError as error:
        return Attempt(changes, reason=str(error))
    return Attempt(changes, made, missing(made))
