"""A component of a problem, solved by Google's CP-SAT: each pair of buffers is a choice of which one lies below."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from diagmem.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Solution:
    """Offsets of some buffers, None if none were found; and a size that no placement of them stays below."""

    offsets: dict[int, int] | None
    bound: int


MOST_PAIRS = 600
"""Beyond so many pairs that must be kept apart the solver takes minutes, whatever its limit, and finds little."""


def solve_by_cp_sat(
    problem: Problem, members: Sequence[int], hint: Sequence[int], bound: int, limit: int, effort: float
) -> Solution:
    """The lowest placement of the members with an end in [bound, limit], starting from the offsets in `hint`.

    One worker, a fixed seed and deterministic time: the same answer on every machine. A problem that is too large is
    given back unsolved.
    """
    inside = set(members)
    pairs = [
        (buffer, near)
        for buffer in members
        for near in problem.neighbours[buffer]
        if near.index > buffer and near.index in inside
    ]
    if len(pairs) > MOST_PAIRS:
        return Solution(None, bound)
    # Half a second to import, and seldom needed.
    from ortools.sat.python import cp_model

    unit = problem.unit_bytes
    model = cp_model.CpModel()
    height = model.new_int_var(bound // unit, limit // unit, "")
    starts, places = {}, {}
    for buffer in members:
        size, stride = -(-problem.buffers[buffer].size_bytes // unit), problem.buffers[buffer].align_bytes // unit
        places[buffer] = model.new_int_var(0, (limit // unit - size) // stride, "")
        starts[buffer] = places[buffer] * stride
        model.add(starts[buffer] + size <= height)
        model.add_hint(places[buffer], hint[buffer] // problem.buffers[buffer].align_bytes)
    for buffer, near in pairs:
        is_below = model.new_bool_var("")
        rise = starts[near.index] - starts[buffer]
        model.add(rise >= near.below // unit).only_enforce_if(is_below)
        model.add(-rise >= near.above // unit).only_enforce_if(~is_below)
    model.minimize(height)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = effort
    status = _solved(solver, model)
    if status == cp_model.INFEASIBLE:
        return Solution(None, limit + unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(None, bound)
    offsets = {b: solver.value(place) * problem.buffers[b].align_bytes for b, place in places.items()}
    return Solution(offsets, round(solver.best_objective_bound) * unit)


def _solved(solver: Any, model: Any) -> Any:
    """The solver's status. It works in a thread of its own, so that an interruption is heard at once and ends it: left
    to itself the solver takes the signal, answers with what it has, and leaves the next one to kill the process."""
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as worker:
        solving = worker.submit(solver.solve, model)
        try:
            return solving.result()
        except BaseException:
            # Again and again: it may not have begun yet.
            while not solving.done():
                solver.stop_search()
                wait([solving], timeout=0.05)
            raise
