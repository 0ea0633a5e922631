"""A placement compacted step by step: by squeaky wheel optimisation, min-conflicts, and branch and bound, in turns.

The first takes small steps down, and many of them; the others are asked for an arena halfway to the bound, then for
less or for more. Each turn is twice as long as the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.branch_and_bound import MOST_MEMBERS, MOST_NEIGHBOURS, FeasibilitySearch
from diagmem.planning.place.effort import Effort, Meter
from diagmem.planning.place.fit import Offsets, Placement
from diagmem.planning.place.local_search import MinConflicts, SqueakyWheel, orders

FIRST_ROUNDS = 50
"""Of squeaky wheel optimisation for an order; twice as many each time that no order has brought anything."""

MOST_FITS = 200_000
"""Of one order: after that it is another one's turn, and the clock is looked at."""

TURNS = 6
"""An effort is spent in so many turns."""

FIRST_SHARE = 1 / (2**TURNS - 1)


@dataclass
class Compaction:
    """The best offsets so far; a size that no placement stays below; and a size that is small enough."""

    problem: Problem
    offsets: Offsets
    bound: int
    goal: int
    fits: int
    moves: int
    meter: Meter
    is_goal_given: bool = False
    rounds: int = FIRST_ROUNDS
    lucky: int = 0
    asked: int = 0
    searches: dict[int, FeasibilitySearch] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, offsets: Offsets, bound: int, effort: Effort, goal: int | None = None) -> Compaction:
        """`goal`: the bound, if there is none."""
        count = len(problem.buffers)
        fits, nodes = effort.fits_for(count) if problem.overlaps else 0, effort.nodes_for(count, bool(problem.overlaps))
        moves = effort.moves_for(count) if problem.overlaps else 0
        goal_bytes, meter = max(bound, goal or 0), Meter(nodes, effort.budget)
        return cls(problem, offsets, bound, goal_bytes, fits, moves, meter, goal is not None)

    @property
    def arena_bytes(self) -> int:
        return self.problem.arena_bytes(self.offsets)

    @property
    def is_done(self) -> bool:
        return self.arena_bytes <= self.goal or self.meter.is_late

    def placement(self) -> Placement:
        """The best that the effort brings; it ends where the goal is met."""
        if not self.is_done:
            self._spend()
        return Placement.of(self.problem, self.offsets, min(self.bound, self.arena_bytes))

    def _spend(self) -> None:
        wheel = SqueakyWheel.of(self.problem)
        conflicts = MinConflicts(self.problem, self.meter)
        fits, moves, nodes = (int(most * FIRST_SHARE) for most in (self.fits, self.moves, self.meter.nodes))
        for _ in range(TURNS):
            self._squeaky_wheel(wheel, fits)
            self._min_conflicts(wheel, conflicts, moves)
            self._branch_and_bound(wheel, nodes)
            fits, moves, nodes = 2 * fits, 2 * moves, 2 * nodes

    def _squeaky_wheel(self, wheel: SqueakyWheel, fits: int) -> None:
        """Many small steps down."""
        end = wheel.fits + fits
        while wheel.fits < end and not self.is_done:
            if not self._step(wheel, end):
                self.rounds *= 2

    def _step(self, wheel: SqueakyWheel, end: int) -> bool:
        """Whether any of the orders comes to a smaller arena."""
        limit = self.arena_bytes - self.problem.unit_bytes
        hard, removed = wheel.core(limit)
        members, starts = set(hard), self._starts
        for number in sorted(range(len(starts)), key=lambda n: n != self.lucky):
            order = [buffer for buffer in starts[number]() if buffer in members]
            placed = wheel.within(limit, order, self.rounds, min(end - wheel.fits, MOST_FITS))
            if placed is not None:
                self.lucky = number
                self.offsets = wheel.with_others(placed, reversed(removed))
                return True
            if wheel.fits >= end or self.meter.is_late:
                break
        return False

    @cached_property
    def _starts(self) -> Sequence[Callable[[], Sequence[int]]]:
        """Orders to begin with: some go by the present offsets."""
        buffers, indices = self.problem.buffers, range(len(self.problem.buffers))
        known = [
            *orders(self.problem),
            sorted(indices, key=lambda b: -buffers[b].end_step),
            sorted(indices, key=lambda b: buffers[b].first_step - buffers[b].end_step),
        ]
        found: list[Callable[[], Sequence[int]]] = [partial(tuple, order) for order in known]
        found.insert(0, lambda: sorted(indices, key=lambda b: (self.offsets[b], b)))
        found.insert(-1, lambda: sorted(indices, key=lambda b: (self.offsets[b] + buffers[b].size_bytes, b)))
        return found

    def _min_conflicts(self, wheel: SqueakyWheel, conflicts: MinConflicts, moves: int) -> None:
        """Asks for what lies between the goal and the arena, by halves, each time with a third of the moves."""
        end, low = conflicts.moves + moves, self.goal
        while conflicts.moves < end and not self.is_done:
            target = self._middle(low)
            hard, removed = wheel.core(target)
            placed = conflicts.within(target, hard, self.offsets, min(moves // 3 + 1, end - conflicts.moves))
            if placed is not None:
                self.offsets = wheel.with_others(placed, reversed(removed))
            low = low if placed is not None else target + self.problem.unit_bytes
            if low >= self.arena_bytes:
                low = self.goal

    def _branch_and_bound(self, wheel: SqueakyWheel, nodes: int) -> None:
        """Asks branch and bound for the goal, then for what lies between that and the arena, by halves."""
        if not (self.is_goal_given or self.problem.overlaps):
            self._descend(wheel, nodes)
            return
        unit, end = self.problem.unit_bytes, self.meter.nodes - nodes
        low, target, share = self.goal, self.goal, nodes
        if self.problem.overlaps:
            target, share = self._middle(low), nodes // 3
        while low < self.arena_bytes and self.meter.nodes > end and not self.meter.is_late:
            if not self._reach(wheel, target, share):
                low = target + unit
            target, share = self._middle(low), nodes // 3

    def _descend(self, wheel: SqueakyWheel, nodes: int) -> None:
        """Asks for the goal, then for an eighth less of what lies above it, again and again; where that is not found,
        for half as much less, until it is found or as little as can be."""
        end, unit, share = self.meter.nodes - nodes, self.problem.unit_bytes, nodes // 4
        self._reach(wheel, self.goal, share)
        part = 8
        while self.meter.nodes > end and not self.is_done:
            step = max((self.arena_bytes - self.goal) // part, unit)
            target = (self.arena_bytes - step) // unit * unit
            if self._reach(wheel, target, min(share, self.meter.nodes - end)) or step == unit:
                part = 8
            else:
                part *= 2

    def _middle(self, low: int) -> int:
        unit = self.problem.unit_bytes
        return min((low + self.arena_bytes) // 2 // unit * unit, self.arena_bytes - unit)

    def _reach(self, wheel: SqueakyWheel, target: int, nodes: int) -> bool:
        """Whether branch and bound finds a placement within the target, in about so many nodes."""
        hard, removed = wheel.core(target)
        placed: dict[int, int] | None = None if hard else {}
        if len(hard) > (MOST_NEIGHBOURS if self.problem.overlaps else MOST_MEMBERS):
            self.meter.nodes -= nodes
            return False
        search = self._search_within(hard, target)
        while placed is None and nodes > 0 and not (search.is_impossible or self.meter.is_late):
            placed, taken = search.run(nodes)
            nodes -= taken
            self.meter.nodes -= taken
        if search.is_impossible:
            self.bound = max(self.bound, target + self.problem.unit_bytes)
            self.goal = max(self.goal, self.bound)
        if placed is not None:
            self.offsets = wheel.with_others(placed, reversed(removed))
        return placed is not None

    def _search_within(self, hard: list[int], target: int) -> FeasibilitySearch:
        """One for the goal that was asked for before goes on where it ended; and where no two may overlap, any."""
        found = self.searches.get(target)
        if found is None:
            found = FeasibilitySearch.of(self.problem, hard, target, self.offsets, self.asked)
            self.asked += 1
        if target == self.goal or not self.problem.overlaps:
            self.searches = {size: kept for size, kept in self.searches.items() if size < self.arena_bytes}
            self.searches[target] = found
        return found
