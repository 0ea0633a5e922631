"""A component of a problem, solved by Google's CP-SAT.

Where buffers may overlap, each pair of them is a choice of which one lies below. Where they may not, they are
rectangles in time and space; and of those alive at once, set by set, none may be in another's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.branch_and_bound import cliques
from diagmem.planning.place.effort import Effort


@dataclass(frozen=True, slots=True)
class Solution:
    """Offsets of some buffers, None if none were found; and a size that no placement of them stays below."""

    offsets: dict[int, int] | None
    bound: int


MOST_PAIRS = 600
"""Beyond so many pairs that must be kept apart the solver takes minutes, whatever its limit, and finds little."""

LEAST_PROOF = 0.02
"""Of deterministic time: to pose a problem takes about as long."""

MOST_RECTANGLES = 500
"""As many it can look at, if there is time; it seldom proves anything beyond a hundred."""


def solve_by_cp_sat(
    problem: Problem,
    members: Sequence[int],
    hint: Sequence[int],
    bound: int,
    limit: int,
    effort: Effort,
    as_rectangles: bool = False,
) -> Solution:
    """The lowest placement of the members with an end in [bound, limit], starting from the offsets in `hint`.

    One worker, a fixed seed and deterministic time: the same answer on every machine. A problem that is too large is
    given back unsolved. `as_rectangles`: where no buffers may overlap more can be looked at, but it takes its time.
    """
    as_rectangles = as_rectangles and not problem.overlaps
    inside = set(members)
    pairs = sum(index > buffer and index in inside for buffer in members for index, _, _ in problem.neighbours(buffer))
    if pairs > MOST_PAIRS and (not as_rectangles or len(members) > MOST_RECTANGLES):
        return Solution(None, bound)
    proof = effort.proof if effort.purse is None else effort.purse.share(effort.proof)
    if proof < LEAST_PROOF or effort.is_late:
        return Solution(None, bound)
    # Half a second to import, and seldom needed.
    from ortools.sat.python import cp_model

    unit = problem.unit_bytes
    model = cp_model.CpModel()
    height = model.new_int_var(bound // unit, limit // unit, "")
    starts, places = {}, {}
    for buffer in members:
        size, stride = -(-problem.buffers[buffer].size_bytes // unit), problem.buffers[buffer].align_bytes // unit
        low, high = 0, (limit // unit - size) // stride
        if buffer in problem.pins:
            low = high = problem.pins[buffer] // unit // stride
        places[buffer] = model.new_int_var(low, high, "")
        starts[buffer] = places[buffer] * stride
        model.add(starts[buffer] + size <= height)
        model.add_hint(places[buffer], hint[buffer] // problem.buffers[buffer].align_bytes)
    (_keep_rectangles_apart if as_rectangles else _keep_pairs_apart)(model, problem, starts)
    model.minimize(height)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = proof
    if effort.purse is not None and effort.purse.seconds_left is not None:
        solver.parameters.max_time_in_seconds = effort.purse.seconds_left
    status = solved(solver, model)
    if effort.purse is not None:
        effort.purse.spend(LEAST_PROOF + solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return Solution(None, limit + unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(None, bound)
    offsets = {b: solver.value(place) * problem.buffers[b].align_bytes for b, place in places.items()}
    return Solution(offsets, round(solver.best_objective_bound) * unit)


def _keep_pairs_apart(model: Any, problem: Problem, starts: Mapping[int, Any]) -> None:
    unit = problem.unit_bytes
    for buffer, start in starts.items():
        for index, below, above in problem.neighbours(buffer):
            if index > buffer and index in starts:
                is_below = model.new_bool_var("")
                rise = starts[index] - start
                model.add(rise >= below // unit).only_enforce_if(is_below)
                model.add(-rise >= above // unit).only_enforce_if(~is_below)


def _keep_rectangles_apart(model: Any, problem: Problem, starts: Mapping[int, Any]) -> None:
    unit, in_space, in_time = problem.unit_bytes, {}, {}
    for index, start in starts.items():
        buffer = problem.buffers[index]
        in_space[index] = model.new_fixed_size_interval_var(start, -(-buffer.size_bytes // unit), "")
        in_time[index] = model.new_fixed_size_interval_var(buffer.first_step, buffer.end_step - buffer.first_step, "")
    model.add_no_overlap_2d(list(in_time.values()), list(in_space.values()))
    for clique in cliques(problem, list(starts)):
        model.add_no_overlap([in_space[index] for index in clique])


def solved(solver: Any, model: Any) -> Any:
    """The solver's status. It works in a thread of its own, so that an interruption is heard at once and ends it: left
    to itself the solver takes the signal, answers with what it has, and leaves the next one to kill the process."""
    from concurrent.futures import ThreadPoolExecutor, wait  # Brings logging with it: not before it is needed.

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
