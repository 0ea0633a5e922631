"""A placement lowered step by step: by first fit, repaired, by buffers that settle, and by the tree search, in turns.

First fit takes small steps down, and many of them; the others are asked for an arena halfway to the bound, then for
less or for more. Each turn is twice as long as the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from diagmem.planning.compiled import PLAIN, Machine, machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.attempt import Attempt
from diagmem.planning.place.effort import Effort, Meter
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.greedy import orders
from diagmem.planning.place.placement import Placement
from diagmem.planning.place.repair import Repair
from diagmem.planning.place.settle import Settle
from diagmem.planning.place.tree import MOST_MEMBERS, MOST_SHARING

FIRST_ROUNDS = 50
"""In which an order is repaired; twice as many each time that no order has brought anything."""

MOST_FITS = 200_000
"""Of one order: after that it is another one's turn, and the clock is looked at."""

TURNS = 6
"""An effort is spent in so many turns."""

FIRST_SHARE = 1 / (2**TURNS - 1)


@dataclass
class Lowering:
    """The best offsets so far; a size that no placement stays below; and a size that is small enough."""

    problem: Problem
    offsets: Offsets
    bound: int
    goal: int
    fits: int
    moves: int
    meter: Meter
    machine: Machine
    is_goal_given: bool = False
    rounds: int = FIRST_ROUNDS
    lucky: int = 0
    asked: int = 0
    attempts: dict[int, Attempt] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, offsets: Offsets, bound: int, effort: Effort, goal: int | None = None) -> Lowering:
        """`goal`: the bound, if there is none."""
        count = len(problem.buffers)
        fits, nodes = effort.fits_for(count) if problem.overlaps else 0, effort.nodes_for(count, bool(problem.overlaps))
        moves = effort.moves_for(count) if problem.overlaps else 0
        goal_bytes, meter = max(bound, goal or 0), Meter(nodes, effort.purse)
        is_small = problem.arena_bytes(offsets) <= goal_bytes
        near = 10 + len(problem.near.near) // max(1, count)
        loops = PLAIN if is_small else machine((fits * near // 6 + moves * near + nodes * count) // 10)
        return cls(problem, offsets, bound, goal_bytes, fits, moves, meter, loops, goal is not None)

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
        repair = Repair.of(self.problem, self.machine)
        settle = Settle(self.problem, self.machine, self.meter)
        fits, moves, nodes = (int(most * FIRST_SHARE) for most in (self.fits, self.moves, self.meter.nodes))
        for _ in range(TURNS):
            self._repair(repair, fits)
            self._settle(repair, settle, moves)
            self._climb(repair, nodes)
            fits, moves, nodes = 2 * fits, 2 * moves, 2 * nodes

    def _repair(self, repair: Repair, fits: int) -> None:
        """Many small steps down."""
        end = repair.fits + fits
        while repair.fits < end and not self.is_done:
            if not self._step(repair, end):
                self.rounds *= 2

    def _step(self, repair: Repair, end: int) -> bool:
        """Whether any of the orders comes to a smaller arena."""
        limit = self.arena_bytes - self.problem.unit_bytes
        hard, removed = repair.core(limit)
        members, starts = set(hard), self._starts
        for number in sorted(range(len(starts)), key=lambda n: n != self.lucky):
            order = [buffer for buffer in starts[number]() if buffer in members]
            placed = repair.within(limit, order, self.rounds, min(end - repair.fits, MOST_FITS))
            if placed is not None:
                self.lucky = number
                self.offsets = repair.with_others(placed, reversed(removed))
                return True
            if repair.fits >= end or self.meter.is_late:
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

    def _settle(self, repair: Repair, settle: Settle, moves: int) -> None:
        """Asks for what lies between the goal and the arena, by halves, each time with a third of the moves."""
        end, low = settle.moves + moves, self.goal
        while settle.moves < end and not self.is_done:
            target = self._middle(low)
            hard, removed = repair.core(target)
            placed = settle.within(target, hard, self.offsets, min(moves // 3 + 1, end - settle.moves))
            if placed is not None:
                self.offsets = repair.with_others(placed, reversed(removed))
            low = low if placed is not None else target + self.problem.unit_bytes
            if low >= self.arena_bytes:
                low = self.goal

    def _climb(self, repair: Repair, nodes: int) -> None:
        """Asks the tree for the goal, then for what lies between that and the arena, by halves."""
        if not (self.is_goal_given or self.problem.overlaps):
            self._descend(repair, nodes)
            return
        unit, end = self.problem.unit_bytes, self.meter.nodes - nodes
        low, target, share = self.goal, self.goal, nodes
        if self.problem.overlaps:
            target, share = self._middle(low), nodes // 3
        while low < self.arena_bytes and self.meter.nodes > end and not self.meter.is_late:
            if not self._reach(repair, target, share):
                low = target + unit
            target, share = self._middle(low), nodes // 3

    def _descend(self, repair: Repair, nodes: int) -> None:
        """Asks the tree for the goal, then for an eighth less of what lies above it, again and again; where that is not
        found, for half as much less, until it is found or as little as can be."""
        end, unit, share = self.meter.nodes - nodes, self.problem.unit_bytes, nodes // 4
        self._reach(repair, self.goal, share)
        part = 8
        while self.meter.nodes > end and not self.is_done:
            step = max((self.arena_bytes - self.goal) // part, unit)
            target = (self.arena_bytes - step) // unit * unit
            if self._reach(repair, target, min(share, self.meter.nodes - end)) or step == unit:
                part = 8
            else:
                part *= 2

    def _middle(self, low: int) -> int:
        unit = self.problem.unit_bytes
        return min((low + self.arena_bytes) // 2 // unit * unit, self.arena_bytes - unit)

    def _reach(self, repair: Repair, target: int, nodes: int) -> bool:
        """Whether the tree finds a placement within the target, in about so many nodes."""
        hard, removed = repair.core(target)
        placed: dict[int, int] | None = None if hard else {}
        if len(hard) > (MOST_SHARING if self.problem.overlaps else MOST_MEMBERS):
            self.meter.nodes -= nodes
            return False
        attempt = self._attempt(hard, target)
        while placed is None and nodes > 0 and not (attempt.is_impossible or self.meter.is_late):
            placed, taken = attempt.run(nodes)
            nodes -= taken
            self.meter.nodes -= taken
        if attempt.is_impossible:
            self.bound = max(self.bound, target + self.problem.unit_bytes)
            self.goal = max(self.goal, self.bound)
        if placed is not None:
            self.offsets = repair.with_others(placed, reversed(removed))
        return placed is not None

    def _attempt(self, hard: list[int], target: int) -> Attempt:
        """One for the goal that was asked for before goes on where it ended; and where no two may overlap, any."""
        found = self.attempts.get(target)
        if found is None:
            found = Attempt.of(self.problem, hard, target, self.offsets, self.machine, self.asked)
            self.asked += 1
        if target == self.goal or not self.problem.overlaps:
            self.attempts = {size: kept for size, kept in self.attempts.items() if size < self.arena_bytes}
            self.attempts[target] = found
        return found
