"""The smallest placement there is, with proof, or the best found and the gap.

Heuristics come first, and end it if they meet the lower bound. What is left is a small core of buffers that falls apart
into components. One without a cycle is solved exactly at once, any other by CP-SAT. What is too large for that is
compacted by search.

Where no buffers live at once in a circle, as in chains of operations, the common case in small networks, placement is
exact. Take a tree of buffers, two being joined if they live at once, and an arena's size. For a buffer and the part of
the tree below it, let low and high be the least and greatest start for which that part can be placed. Its parent may
start at x if x is far enough above low, or far enough below high; what lies between does not matter. So two numbers for
each buffer, from the leaves up, decide whether all fit, and a walk back down places them.

For CP-SAT each pair of buffers that may overlap is a choice of which one lies below. Where none may they are rectangles
in time and space; and of those alive at once, set by set, none may be in another's place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.branch_and_bound import cliques
from diagmem.planning.place.compaction import Compaction
from diagmem.planning.place.effort import NORMAL, THOROUGH, Effort, SharedBudget
from diagmem.planning.place.fit import Offsets, Placement
from diagmem.planning.place.local_search import SqueakyWheel, greedy, improve

MOST_ROUNDS = 8

MOST_PAIRS = 600
"""Beyond so many pairs that must be kept apart the solver takes minutes, whatever its limit, and finds little."""

LEAST_PROOF = 0.02
"""Of deterministic time: to pose a problem takes about as long."""

MOST_RECTANGLES = 500
"""As many it can look at, if there is time; it seldom proves anything beyond a hundred."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Offsets of some buffers, None if none were found; and a size that no placement of them stays below."""

    offsets: dict[int, int] | None
    bound: int


def optimal(problem: Problem, effort: Effort = NORMAL, goal_bytes: int | None = None) -> Placement:
    """Lowers the best placement and raises the bound until they meet, or until the effort is spent. `goal_bytes`: an
    arena that is small enough."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, bound, problem.arena_bytes(offsets)))
    goal = max(bound, goal_bytes or 0)
    offsets = improve(problem, offsets, goal)
    if problem.arena_bytes(offsets) > goal:
        offsets, bound = _exactly(problem, offsets, bound, effort)
    found = Compaction.of(problem, offsets, bound, effort, goal_bytes).placement()
    return found if found.arena_bytes <= goal or effort.fits < THOROUGH.fits else _proven(problem, found, effort)


def multi_start(problem: Problem, effort: Effort = NORMAL) -> Placement:
    """The best placement found, and a bound for all placements: for hundreds of small buffers, the rows of a network
    that runs row by row. No proof is in reach, so what the effort allows is spent on compaction."""
    offsets, bound = greedy(problem), problem.lower_bound_bytes
    bound = max(bound, chain_bound(problem, bound, problem.arena_bytes(offsets)))
    return Compaction.of(problem, offsets, bound, effort).placement()


def _proven(problem: Problem, found: Placement, effort: Effort) -> Placement:
    """The placement, or a smaller one, with the bound that CP-SAT proves for the whole: at thorough effort."""
    members, limit = range(len(problem.buffers)), found.arena_bytes - problem.unit_bytes
    bound = found.lower_bound_bytes
    solution = solve_by_cp_sat(problem, members, found.offsets, bound, limit, effort.times(0.1), as_rectangles=True)
    offsets = found.offsets if solution.offsets is None else tuple(solution.offsets[b] for b in members)
    return Placement.of(problem, offsets, min(solution.bound, problem.arena_bytes(offsets)))


def _exactly(problem: Problem, offsets: Offsets, bound: int, effort: Effort) -> tuple[Offsets, int]:
    """The best offsets of problems that can be solved with proof, and the bound of all."""
    for _ in range(MOST_ROUNDS):
        arena = problem.arena_bytes(offsets)
        if arena <= bound:
            break
        # Most problems are tight, so first ask for no more than the bound; then for anything less than there is.
        for limit in dict.fromkeys((bound, arena - problem.unit_bytes)):
            found, least = _place(problem, offsets, bound, limit, effort)
            bound = max(bound, least)
            if found is not None:
                offsets = found
                break
        else:
            break
    return offsets, bound


def chain_bound(problem: Problem, low: int, high: int) -> int:
    """A size in [low, high] that no placement stays below, from a part of the buffers without a circle."""
    if low >= high:
        return low
    hard, _ = SqueakyWheel.of(problem).core(high - problem.unit_bytes)
    return forest_bound(problem, spanning_forest(problem, hard), low, high)


def _place(problem: Problem, offsets: Offsets, bound: int, limit: int, effort: Effort) -> tuple[Offsets | None, int]:
    """Offsets within the limit, None if there are none or none were found; and a bound for all offsets."""
    hard, removed = _hard(problem, limit)
    placed: dict[int, int] = {}
    for members in components(problem, hard):
        solution = _solve(problem, members, offsets, bound, limit, effort)
        bound = max(bound, solution.bound)
        if solution.offsets is None:
            return None, bound
        placed |= solution.offsets
    return SqueakyWheel.of(problem).with_others(placed, reversed(removed)), bound


def _solve(problem: Problem, members: list[int], hint: Offsets, bound: int, limit: int, effort: Effort) -> Solution:
    """The lowest placement of a component within the limit."""
    if pairs_of(problem, members) > max(MOST_PAIRS, len(members) - 1):
        return Solution(None, bound)
    if len(spanning_forest(problem, members)) < len(members):
        return solve_by_cp_sat(problem, members, hint, bound, limit, effort)
    if place_forest(problem, members, limit) is None:
        return Solution(None, limit + problem.unit_bytes)
    least = forest_bound(problem, members, bound, limit)
    return Solution(place_forest(problem, members, least), least)


def core(count: int, always_fits: Callable[[int, Collection[int]], bool]) -> tuple[list[int], list[int]]:
    """Splits so many buffers into those that matter for an arena's size, and the rest in the order of its removal.

    Pigeonhole: if a buffer's neighbours cannot block all the places where it may start, wherever they lie, then it can
    be left out and placed last. Without it, its neighbours may follow. `always_fits`: asked of a buffer and those left.
    """
    left, removed = {*range(count)}, list[int]()
    while leaving := [buffer for buffer in sorted(left) if always_fits(buffer, left)]:
        left.difference_update(leaving)
        removed += leaving
    return sorted(left), removed


def _hard(problem: Problem, limit: int) -> tuple[list[int], list[int]]:
    """The core of an arena of `limit` bytes, and the rest."""
    near_from, near, below, above = problem.near
    align, size = (np.array([getattr(b, n) for b in problem.buffers]) for n in ("align_bytes", "size_bytes"))
    own = np.repeat(np.arange(len(align)), np.diff(near_from))
    # An open interval of n units between whole units holds n - 1 of them inside.
    taken = -(-((below + above) // problem.unit_bytes - 1) // (align[own] // problem.unit_bytes))
    left, removed = np.ones(len(align), dtype=np.bool_), list[int]()
    while True:
        blocked = np.bincount(own, np.where(left[near], taken, 0), len(align))
        leaving = np.flatnonzero(left & ((limit - size) // align + 1 > blocked))
        if not len(leaving):
            return np.flatnonzero(left).tolist(), removed
        left[leaving] = False
        removed += leaving.tolist()


def components(problem: Problem, members: Collection[int]) -> list[list[int]]:
    """Groups of members that have nothing to do with each other, the one with most bytes first."""
    left, found = set(members), []
    while left:
        group, stack = [], [min(left)]
        left.discard(stack[0])
        while stack:
            buffer = stack.pop()
            group.append(buffer)
            near = [index for index, _, _ in problem.neighbours(buffer) if index in left]
            left.difference_update(near)
            stack.extend(near)
        found.append(sorted(group))
    return sorted(found, key=lambda g: (-sum(problem.buffers[b].size_bytes for b in g), g))


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and greatest start of a buffer."""

    low: int
    high: int


def spanning_forest(problem: Problem, members: Iterable[int]) -> list[int]:
    """As many members as can be kept without a circle, larger ones first. Each of its bounds holds for the whole."""
    root: dict[int, int] = {}
    near_from, near = problem.near.near_from.tolist(), problem.near.near.tolist()

    def find(buffer: int) -> int:
        while root[buffer] != buffer:
            root[buffer] = root[root[buffer]]
            buffer = root[buffer]
        return buffer

    for buffer in sorted(members, key=lambda b: (-problem.buffers[b].size_bytes, b)):
        trees: set[int] = set()
        for q in range(near_from[buffer], near_from[buffer + 1]):
            if near[q] in root:
                tree = find(near[q])
                if tree in trees:
                    break
                trees.add(tree)
        else:
            root[buffer] = buffer
            root.update(dict.fromkeys(trees, buffer))
    return sorted(root)


def place_forest(problem: Problem, members: Collection[int], limit: int) -> dict[int, int] | None:
    """Offsets of the members of a forest in an arena of `limit` bytes; None: there are none."""
    offsets: dict[int, int] = {}
    inside = set(members)
    for start in sorted(inside):
        if start in offsets:
            continue
        walk = _walk(problem, start, inside)
        ranges: dict[int, _Range] = {}
        for buffer, parent in reversed(walk):
            found = _range(problem, buffer, parent, inside, ranges, limit)
            if found is None:
                return None
            ranges[buffer] = found
        for buffer, parent in walk:
            offsets[buffer] = ranges[buffer].low
            if parent is not None:
                below = next(below for n, below, _ in problem.neighbours(buffer) if n == parent)
                fits_low = offsets[parent] - ranges[buffer].low >= below
                offsets[buffer] = ranges[buffer].low if fits_low else ranges[buffer].high
    return offsets


def _walk(problem: Problem, start: int, inside: set[int]) -> list[tuple[int, int | None]]:
    """Buffers of a tree with their parents, parents first."""
    walk: list[tuple[int, int | None]] = [(start, None)]
    for buffer, parent in walk:
        walk.extend((n, buffer) for n, _, _ in problem.neighbours(buffer) if n in inside and n != parent)
    return walk


def _range(
    problem: Problem, buffer: int, parent: int | None, inside: set[int], ranges: dict[int, _Range], limit: int
) -> _Range | None:
    """Where a buffer may start so that all its children find a place too."""
    children = [near for near in problem.neighbours(buffer) if near[0] in inside and near[0] != parent]
    taken = [(ranges[n].high - below, ranges[n].low + above) for n, below, above in children]
    align = problem.buffers[buffer].align_bytes
    top = (limit - problem.buffers[buffer].size_bytes) // align * align
    low = 0
    for start, end in sorted(taken):
        if start < low < end:
            low = -(-end // align) * align
    high = top
    for start, end in sorted(taken, key=lambda t: -t[1]):
        if start < high < end:
            high = start // align * align
    return _Range(low, high) if low <= top and high >= 0 else None


def forest_bound(problem: Problem, members: Collection[int], low: int, high: int) -> int:
    """The least arena in [low, high] that the forest fits into, `high` if none less does; in whole units."""
    unit = problem.unit_bytes
    # Most fit into no more than that, so it comes first.
    middle = low // unit * unit
    while low < high:
        if place_forest(problem, members, middle) is None:
            low = middle + unit
        else:
            high = middle
        middle = (low + high) // 2 // unit * unit
    return high


def pairs_of(problem: Problem, members: Sequence[int]) -> int:
    """Pairs of members that must be kept apart."""
    inside = np.zeros(len(problem.buffers), dtype=np.bool_)
    inside[list(members)] = True
    return int((inside[problem.near.near] & np.repeat(inside, np.diff(problem.near.near_from))).sum()) // 2


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

    A problem that is too large is given back unsolved. `as_rectangles`: where no buffers may overlap more can be looked
    at, but it takes its time.
    """
    if any(problem.buffers[buffer].size_bytes > limit for buffer in members):
        return Solution(None, limit + problem.unit_bytes)
    as_rectangles = as_rectangles and not problem.overlaps
    if pairs_of(problem, members) > MOST_PAIRS and (not as_rectangles or len(members) > MOST_RECTANGLES):
        return Solution(None, bound)
    proof = effort.proof if effort.budget is None else effort.budget.share(effort.proof)
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

    solver, status = solved(model, proof, effort.budget)
    if effort.budget is not None:
        effort.budget.spend(LEAST_PROOF + solver.response_proto.deterministic_time)
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


def solved(model: Any, proof: float, budget: SharedBudget | None = None, **parameters: int) -> tuple[Any, Any]:
    """The solver and its status after so much deterministic time; `budget`: ends it by the clock. One worker and a
    fixed seed: the same answer on every machine.

    It works in a thread of its own, so that an interruption is heard at once and ends it: left to itself the solver
    takes the signal, answers with what it has, and leaves the next one to kill the process."""
    from concurrent.futures import ThreadPoolExecutor, wait  # Brings logging with it: not before it is needed.

    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters |= {"num_workers": 1, "random_seed": 0, "catch_sigint_signal": False}
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    solver.parameters.max_deterministic_time = proof
    if budget is not None and budget.seconds_left is not None:
        solver.parameters.max_time_in_seconds = budget.seconds_left
    with ThreadPoolExecutor(1) as worker:
        solving = worker.submit(solver.solve, model)
        try:
            return solver, solving.result()
        except BaseException:
            # Again and again: it may not have begun yet.
            while not solving.done():
                solver.stop_search()
                wait([solving], timeout=0.05)
            raise
