"""Which operations to remove: as many as can go without making the plan larger.

A removal is not always a gain: a concatenated tensor is held whole from its first part on, and stays where it is; a
slice keeps its source alive; a result that is computed once must be held until its last use. So removals are tried,
each by the order that needs least and a quick placement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from diagmem.model.graph import Graph, Node, Op
from diagmem.model.schedule import PUSH, Schedule
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import Options
from diagmem.planning.order.rows import RowSchedule, recomputing_orders
from diagmem.planning.order.search import search
from diagmem.planning.place import greedy, optimal
from diagmem.planning.place.effort import Effort
from diagmem.transforms import ALWAYS, CHANNELS, SOMETIMES_WORSE, Removal, transformed

LEAST_TRIALS, MOST_TRIALS = 2, 60

MOST_OPS_TRIED, MOST_SQUARES_TRIED = 30_000, 60_000_000
"""Ops of all trials together, and their squares: of a network of 5,000 ops a trial takes a second."""

MOST_SEARCHES = 5
"""Of orders, as long as one may be: all trials together look at so many times the states of one."""

MOST_ROW_TRIALS, MOST_TURNS_TRIED = 8, 12_000
"""Of graphs that run row by row, fewer where there are many rows."""

AT_ONCE_BY_ROWS = ("drop-no-ops",)
"""Transforms that remove all that they can, or nothing."""

SHARE = 0.04
"""Of the effort of an exact placement, for each trial."""

Candidate = tuple[str, int]
"""A transform, and the number of an op that it can remove."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A graph from which ops were removed, and by what."""

    graph: Graph
    removals: tuple[Removal, ...]


def without_ops(
    begun: Removed, options: Options, names: Collection[str], limit_bytes: int, effort: Effort
) -> tuple[Removed, ...]:
    """Graphs from which transforms have removed more ops, the one with fewest first: after all that let a plan stay
    within the limit, after those that never cost anything."""
    free = [name for name in names if name not in SOMETIMES_WORSE]
    lean, removals = transformed(begun.graph, free, block=options.library.channel_block)
    removals = begun.removals + removals
    found = [Removed(lean, removals)] if removals else []
    chosen, more = _Trials(lean, options, limit_bytes, effort).best([name for name in SOMETIMES_WORSE if name in names])
    found += [Removed(chosen, removals + more)] if more else []
    return tuple(reversed(found))


def leaner_graphs(
    graph: Graph, begun: Removed, options: Options, names: Collection[str], limit_bytes: int, effort: Effort
) -> Iterator[Removed]:
    """Graphs with fewer ops and channels; behind them, should plans have grown without channels, with all of those.
    `begun`: the graph after those of the transforms that come first."""
    more = [name for name in names if name not in ALWAYS]
    found = without_ops(begun, options, more, limit_bytes, effort) if names else ()
    yield from found
    if any(removal.transform == CHANNELS for removed in found for removal in removed.removals):
        rest = [name for name in names if name != CHANNELS]
        yield from without_ops(Removed(graph, ()), options, rest, limit_bytes, effort)


def wide_orders(model: Graph, needs: Footprint, removals: tuple[Removal, ...]) -> tuple[Schedule, ...]:
    """The orders for the graph before channel removal: they are valid after it too, and their rows are sometimes easier
    to place."""
    names = [removal.transform for removal in removals if removal.transform != CHANNELS]
    if len(names) == len(removals):
        return ()
    wide = transformed(model, names)[0]
    rows = footprint(wide, needs.options).rows.with_whole(needs.rows.unsummed)
    order = recomputing_orders(rows, needs.options.input_rows, 1.0)[0].schedule
    index_of = {PUSH: PUSH, **{op.number: op.index for op in needs.graph.ops}}
    numbers = {PUSH: PUSH, **{op.index: op.number for op in wide.ops}}
    steps = (replace(s, op=index_of[numbers[s.op]]) for s in order.steps if numbers[s.op] in index_of)
    return (replace(order, steps=tuple(steps)),)


def without_ops_by_rows(needs: Footprint, order: RowSchedule, names: Collection[str], effort: Effort) -> Removed | None:
    """The graph that a run row by row can do without more ops of: those whose results become parts of others, or are
    there already, as many as let what lives stay within that of the order given. None if there are none."""
    graph, options = needs.graph, needs.options
    trials = _RowTrials(graph, options, effort, needs.rows.unsummed)
    gone = {op for removal in transformed(graph, names)[1] for op in removal.ops}
    # What is flattened at the end, a single row, makes no difference to rows.
    matters = any(graph.tensors[t].rows > 1 for op in graph.ops if op.number in gone for t in op.outputs)
    if not trials.left or not matters:
        return None
    trials.limit_bytes = build_problem(needs, order.schedule).lower_bound_bytes
    plain = transformed(graph, [name for name in AT_ONCE_BY_ROWS if name in names])
    lean, removals = plain if plain[1] and trials.is_no_worse(plain[0]) else (graph, ())
    trials.graph = lean
    chosen, more = trials.best([name for name in SOMETIMES_WORSE if name in names])
    return Removed(chosen, removals + more) if removals or more else None


class _Trials:
    """Sets of candidates, and what they cost. Separations are computed once for each op and layout."""

    def __init__(self, graph: Graph, options: Options, limit_bytes: int, effort: Effort) -> None:
        self.graph, self.options, self.limit_bytes, self.effort = graph, options, limit_bytes, effort
        count = max(1, len(graph.ops))
        self.left = max(LEAST_TRIALS, min(MOST_TRIALS, MOST_OPS_TRIED // count, MOST_SQUARES_TRIED // count**2))
        self.states_left = MOST_SEARCHES * effort.states_for(len(graph.ops))
        self.separations: dict[Hashable, int | None] = {}

    def best(self, names: Sequence[str]) -> tuple[Graph, tuple[Removal, ...]]:
        """One transform after the other: all its candidates if the plan does not grow; else those halves, quarters and
        single ones with which it does not. Finally all candidates of all transforms at once, in case they only help
        together."""
        accepted: frozenset[Candidate] = frozenset()
        for number, name in enumerate(names):
            candidates = self._candidates(names[: number + 1], accepted, name)
            groups = [candidates] if candidates else []
            while groups and self.left and not self.effort.is_late:
                group = groups.pop()
                if self.is_no_worse(self._without(names, accepted.union(group))[0]):
                    accepted = accepted.union(group)
                elif len(group) > 1:
                    groups += [group[len(group) // 2 :], group[: len(group) // 2]]
        found, everything = self._without(names, accepted), transformed(self.graph, names)
        limit_bytes = self.limit_bytes
        if len(everything[0].ops) == len(found[0].ops) or not self.left or self.effort.is_late:
            return found
        return everything if self.is_no_worse(everything[0]) and self.limit_bytes < limit_bytes else found

    def _candidates(self, names: Sequence[str], accepted: Collection[Candidate], new: str) -> tuple[Candidate, ...]:
        may_go = _only(accepted)
        removals = transformed(self.graph, names, lambda name, op: name == new or may_go(name, op))[1]
        return tuple((new, op) for removal in removals if removal.transform == new for op in removal.ops)

    def _without(self, names: Collection[str], candidates: Collection[Candidate]) -> tuple[Graph, tuple[Removal, ...]]:
        return transformed(self.graph, names, _only(candidates))

    def is_no_worse(self, graph: Graph) -> bool:
        """Whether a plan is no larger than the smallest so far, and every view as well aligned as a tensor."""
        self.left -= 1
        if any(tensor.offset_bytes % self.options.align_bytes for tensor in graph.tensors):
            return False
        needed_bytes = self.needed_bytes(graph)
        if needed_bytes > self.limit_bytes:
            return False
        self.limit_bytes = needed_bytes
        return True

    def needed_bytes(self, graph: Graph) -> int:
        """What a plan takes; where it is sure to take more than the limit, a bound that says so."""
        needs = footprint(graph, self.options, self._separation)
        least = needs.least_pressure * needs.unit_bytes
        if least > self.limit_bytes:
            return least
        searched = search(needs, min(self.states_left, self.effort.states_for(len(graph.ops))))
        self.states_left = max(0, self.states_left - searched.states)
        if searched.bound_bytes > self.limit_bytes:
            return searched.bound_bytes
        return _placed_bytes(build_problem(needs, searched.schedule), self.limit_bytes, self.effort)

    def _separation(self, node: Node, position: int, output: int) -> int | None:
        views = tuple(t.view for t in (node.input(position), node.outputs[output]))
        key = node.op.number, position, output, views
        if key not in self.separations:
            self.separations[key] = self.options.library.separation(node, position, output)
        return self.separations[key]


class _RowTrials(_Trials):
    """The same for runs row by row: judged by what lives, in the order found."""

    def __init__(self, graph: Graph, options: Options, effort: Effort, unsummed: Collection[int]) -> None:
        super().__init__(graph, options, 0, effort)
        self.unsummed = unsummed
        self.left = min(MOST_ROW_TRIALS, MOST_TURNS_TRIED // max(1, sum(tensor.rows for tensor in graph.tensors)))

    def needed_bytes(self, graph: Graph) -> int:
        needs = footprint(graph, self.options).with_whole(self.unsummed)
        order = recomputing_orders(needs.rows, self.options.input_rows, 1.0)[0]
        return build_problem(needs, order.schedule).lower_bound_bytes


def _only(candidates: Collection[Candidate]) -> Callable[[str, Op], bool]:
    return lambda name, op: (name, op.number) in candidates


def _placed_bytes(problem: Problem, limit_bytes: int, effort: Effort) -> int:
    """What a placement takes; the exact one only where a simple one is above the limit."""
    simple = problem.arena_bytes(greedy(problem))
    return simple if simple <= limit_bytes else optimal(problem, effort.times(SHARE)).arena_bytes
