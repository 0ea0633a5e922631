"""The pool of each group and the place of each buffer: all fit, and the traffic to slow memory is as small as possible.

What is touched most for its size goes to the fastest pool that still has room: that is quick, and mostly near the best.
Then the relaxation is asked for something better, and the allocators whether it can be placed, until it can or until
there is nothing better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagmem.model.schedule import Schedule
from diagmem.planning.footprint import Footprint
from diagmem.planning.place import Placement, greedy, optimal
from diagmem.planning.place.core import core
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.fit import Offsets, Partial, lowest_fit
from diagmem.planning.place.lowering import Lowering
from diagmem.planning.place.rings import with_rings
from diagmem.planning.pooling.relaxation import STAYS, Choice, Relaxation
from diagmem.planning.pooling.traffic import Group, groups_of
from diagmem.planning.pooling.weights import copies, with_copies
from diagmem.planning.pools import LEAST_ALIGN_BYTES, Pool, PoolLayout
from diagmem.planning.posing import moments, problem
from diagmem.planning.problem import Problem
from diagmem.planning.staging import OpWeights

MOST_ROUNDS = 25
"""Of asking for something better that can then not be placed."""

MOST_GROUPS = 100
"""Beyond so many the allocator takes too long to be asked about each, and there are fewer rounds."""

FEW_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Pooled:
    """Where everything is: `offsets` are addresses, pools one behind the other."""

    schedule: Schedule
    problem: Problem
    offsets: Offsets
    layout: PoolLayout

    @property
    def rank(self) -> tuple[int, float, int]:
        """Better is less: what is missing, what the traffic costs, what is used."""
        return self.layout.missing_bytes, self.layout.cost, sum(use.used_bytes for use in self.layout.uses)


def pooled(needs: Footprint, schedule: Schedule, effort: Effort, weights: Sequence[OpWeights] = ()) -> Pooled:
    """The best choice found for an order, with what no choice costs less than. Where the pools are too small, the last
    one is as large as it would have to be. `weights`: those that may be copied."""
    posed, pools, staging = problem(needs, schedule), needs.options.pools, needs.options.staging
    groups, live = groups_of(needs, schedule, posed.buffers), moments(needs, schedule)
    if weights:
        copied, number = copies(needs, schedule, weights), len(posed.buffers)
        live = with_copies(live, copied, number, needs.unit_bytes)
        posed = replace(posed, buffers=(*posed.buffers, *copied))
        groups = (*groups, *(Group.of_copy(number + n, found) for n, found in enumerate(weights)))
    relaxation = Relaxation(groups, tuple(pools), live, staging=staging)
    chooser = _Chooser(posed, relaxation, effort, schedule.has_turns)
    choice, bound = chooser.best()
    chosen = choice if choice is not None else chooser.grown()
    found = _laid(schedule, chooser, chooser.final(chosen), bound)
    if staging is None:
        return found
    flash_bytes = relaxation.flash_bytes(chosen)
    return replace(found, layout=replace(found.layout, flash_bytes=flash_bytes, flash_cost=staging.flash_cost))


def _laid(schedule: Schedule, chooser: _Chooser, placements: Sequence[_Placed], bound: float) -> Pooled:
    groups, used = chooser.relaxation.groups, [placed.used_bytes for placed in placements]
    traffic = [sum(groups[g].traffic_bytes for g in placed.groups) for placed in placements]
    align = max(LEAST_ALIGN_BYTES, chooser.line_bytes)
    layout = replace(PoolLayout.of(chooser.relaxation.pools, used, traffic, align), lower_bound=bound)
    addresses = {
        buffer: use.start + offset
        for placed, use in zip(placements, layout.uses, strict=True)
        for buffer, offset in zip(placed.members, placed.offsets, strict=True)
    }
    posed, kept = chooser.problem, sorted(addresses)
    # Weights that stay where they are need no buffer.
    posed = posed if len(kept) == len(posed.buffers) else posed.part(kept)
    return Pooled(schedule, posed, tuple(addresses[buffer] for buffer in kept), layout)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Groups in a pool: their buffers at offsets from its start. `is_impossible`: proven not to fit."""

    groups: tuple[int, ...]
    members: tuple[int, ...]
    offsets: Offsets
    used_bytes: int
    is_impossible: bool = False


@dataclass(frozen=True)
class _Chooser:
    problem: Problem
    relaxation: Relaxation
    effort: Effort
    by_rows: bool
    known: dict[tuple[int, frozenset[int]], Offsets] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        """Few enough to ask the allocator about each."""
        return len(self.relaxation.groups) <= MOST_GROUPS

    @cached_property
    def line_bytes(self) -> int:
        """Pools begin on multiples of it, so that whatever is aligned in its pool is so in the line of pools."""
        return max((buffer.align_bytes for buffer in self.problem.buffers), default=1)

    @property
    def pools(self) -> tuple[Pool, ...]:
        return self.relaxation.pools

    def best(self) -> tuple[Choice | None, float]:
        """The choice that costs least, None if none was found; and what none costs less than."""
        relaxation, found = self.relaxation, self._densest_first()
        best = None if found is None else relaxation.cost(found)
        bound, is_exact = relaxation.least_cost, True
        for _ in range(MOST_ROUNDS if self.is_small else FEW_ROUNDS):
            if (best is not None and best <= bound) or self.effort.is_late:
                break
            answer = relaxation.solved(self.effort, best)
            if is_exact and answer.bound != float("inf"):
                bound = max(bound, answer.bound)
            if answer.choice is None:
                break
            failed = [n for n in range(len(self.pools)) if not self._is_placed(answer.choice, n)]
            if not failed:
                found, best = answer.choice, relaxation.cost(answer.choice)
                continue
            for number in failed:
                is_exact &= self._cut(answer.choice, number)
        return found, bound if best is None else min(bound, best)

    def _densest_first(self) -> Choice | None:
        """By bytes read and written for each byte that is taken: each group at the first free place of the fastest pool
        that has one or, where there are few groups, that the allocator finds room in. Copies of weights come last."""
        groups, posed, sizes = self.relaxation.groups, self.problem, self.relaxation.largest
        dense = sorted(range(len(groups)), key=lambda g: (-groups[g].traffic_bytes / max(1, sizes[g]), g))
        order = sorted(dense, key=lambda g: groups[g].weights is not None)
        inside: list[list[int]] = [[] for _ in self.pools]
        placed: list[Partial] = [[None] * len(posed.buffers) for _ in self.pools]
        for group in order:
            for number in self._allowed(group):
                found = self._fitted(placed[number], group, number)
                if found is None and self.is_small and self._placed([*inside[number], group], number, False):
                    found = self._refitted([*inside[number], group], number)
                if found is not None:
                    inside[number].append(group)
                    placed[number] = found
                    break
            else:
                if groups[group].weights is None:
                    return None
        for number, members in enumerate(inside):
            self.known[number, frozenset(members)] = tuple(at for at in placed[number] if at is not None)
        number_of = {group: number for number, members in enumerate(inside) for group in members}
        return tuple(number_of.get(group, STAYS) for group in range(len(groups)))

    def _allowed(self, group: int) -> Iterator[int]:
        """The pools that a group may be in; of weights, if a copy pays."""
        costs = self.relaxation.costs[group]
        is_copy = self.relaxation.groups[group].weights is not None
        for number, cost in enumerate(costs[: len(self.pools)]):
            if cost is not None and not (is_copy and cost >= (costs[STAYS] or 0.0)):
                yield number

    def _fitted(self, placed: Partial, group: int, number: int) -> Partial | None:
        """What lies in a pool, with one group more, each buffer at the lowest place that is free; None if that is too
        high."""
        found = list(placed)
        for buffer in self.relaxation.groups[group].members:
            found[buffer] = at = lowest_fit(self.problem, buffer, found)
            if at + self.problem.buffers[buffer].size_bytes > self._room(number):
                return None
        return found

    def _refitted(self, groups: list[int], number: int) -> Partial:
        """What the allocator makes of a pool."""
        placed = self._place(tuple(groups), self._room(number), False)
        found: Partial = [None] * len(self.problem.buffers)
        for buffer, at in zip(placed.members, placed.offsets, strict=True):
            found[buffer] = at
        return found

    def _is_placed(self, choice: Choice, number: int) -> bool:
        return bool(self._placed([g for g, n in enumerate(choice) if n == number], number))

    def _placed(self, members: Sequence[int], number: int, is_thorough: bool = True) -> _Placed | None:
        """The groups in a pool, if they fit."""
        found = self._place(tuple(members), self._room(number), is_thorough)
        return found if found.used_bytes <= self.pools[number].capacity_bytes else None

    def _room(self, number: int) -> int:
        return self.pools[number].capacity_bytes // self.line_bytes * self.line_bytes

    def _part(self, groups: Sequence[int]) -> tuple[tuple[int, ...], Problem]:
        members = tuple(sorted(b for g in groups for b in self.relaxation.groups[g].members))
        bound = self.relaxation.needed_bytes(groups)
        return members, replace(self.problem.part(members), lower_bound_bytes=bound)

    def _place(self, groups: tuple[int, ...], goal_bytes: int | None, is_thorough: bool = True) -> _Placed:
        members, part = self._part(groups)
        found = Placement.of(part, greedy(part))
        if is_thorough and (goal_bytes is None or found.arena_bytes > goal_bytes) and members:
            if self.by_rows:
                found = Lowering.of(part, found.offsets, part.lower_bound_bytes, self.effort, goal_bytes).placement()
            else:
                found = optimal(part, self.effort, goal_bytes)
        line = self.line_bytes
        is_impossible = goal_bytes is not None and found.lower_bound_bytes > goal_bytes
        return _Placed(groups, members, found.offsets, -(-found.arena_bytes // line) * line, is_impossible)

    def _cut(self, choice: Choice, number: int) -> bool:
        """Never again all these in this pool; whether that is proven. What always finds a place is not to blame."""
        groups = tuple(g for g, n in enumerate(choice) if n == number)
        members, part = self._part(groups)
        hard, _ = core(part, self._room(number))
        hard_buffers = {members[b] for b in hard}
        to_blame = frozenset(g for g in groups if hard_buffers & set(self.relaxation.groups[g].members))
        self.relaxation.cuts.append((number, to_blame or frozenset(groups)))
        return self._place(groups, self._room(number)).is_impossible

    def grown(self) -> Choice:
        """Where the pools are too small: the choice for which the last one must grow least, as far as that is found."""
        last = len(self.pools) - 1
        for _ in range(MOST_ROUNDS):
            answer = self.relaxation.solved(self.effort, is_grown=True)
            if answer.choice is None:
                break
            failed = [n for n in range(last) if not self._is_placed(answer.choice, n)]
            if not failed:
                return answer.choice
            for number in failed:
                self._cut(answer.choice, number)
        return tuple(last if group.weights is None else STAYS for group in self.relaxation.groups)

    def final(self, choice: Choice) -> list[_Placed]:
        """Each pool as small as it can be, rows by a rule where that takes no more."""
        found = []
        for number in range(len(self.pools)):
            groups = tuple(g for g, n in enumerate(choice) if n == number)
            placed = self._place(groups, None)
            if placed.used_bytes > self.pools[number].capacity_bytes and self._is_placed(choice, number):
                placed = self._place(groups, self._room(number))
            known = self.known.get((number, frozenset(groups)))
            if placed.used_bytes > self.pools[number].capacity_bytes and known is not None:
                end = self._part(groups)[1].arena_bytes(known)
                placed = replace(placed, offsets=known, used_bytes=-(-end // self.line_bytes) * self.line_bytes)
            if self.by_rows and groups:
                placed = replace(placed, offsets=with_rings(self._part(groups)[1], placed.offsets))
            found.append(placed)
        return found
