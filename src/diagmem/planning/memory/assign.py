"""Plans for chips with several memories: a plan for one arena goes in, one for the pools comes out.

What is touched most for its size goes to the fastest pool that still has room: that is quick, and mostly near the best.
Then a relaxation is asked for something better, and the allocators whether it can be placed, until it can or until
there is nothing better. The relaxation knows only what lives at each moment: a group's bytes must fit into its pool
with those of the others there, less what an op's output may share with its inputs if they are in the same pool. What
the allocators cannot place comes back to it as a cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from diagmem.model.pools import LEAST_ALIGN_BYTES, OpWeights, Pool, PoolLayout, WeightsPool, WeightsTraffic
from diagmem.model.schedule import Schedule
from diagmem.planning.memory.traffic import Group, check_copy_pool, copies, groups_of, weights_of, with_copies
from diagmem.planning.needs.build_problem import Moment, build_problem, moments
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import BEST
from diagmem.planning.order.search import SCHEDULERS
from diagmem.planning.place import Placement, greedy, optimal
from diagmem.planning.place.compaction import Compaction
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import solved
from diagmem.planning.place.fit import Offsets, Partial, lowest_fit
from diagmem.planning.place.local_search import SqueakyWheel
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Plan

PoolAssignment = tuple[int, ...]
"""For each group, the number of its pool; STAYS for weights that are read from flash."""

STAYS = -1

PRECISION = 1000
"""Costs are counted in so many parts of one."""

Demand = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int, int], ...]]
"""What lives at a moment: (group, bytes) each; and (group made, group dying, bytes that they may share) each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A choice, None if there is none or none was found; what no choice costs less than; whether that is certain."""

    choice: PoolAssignment | None
    bound: float
    is_final: bool


@dataclass(frozen=True)
class Relaxation:
    """`cuts`: groups that cannot all be in one pool, by the pool's number. `copy_pool`: where weights may be copied to,
    if some of the groups are such copies."""

    groups: tuple[Group, ...]
    pools: tuple[Pool, ...]
    moments: Sequence[Moment]
    cuts: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    copy_pool: WeightsPool | None = None

    def cost(self, choice: PoolAssignment) -> float:
        """Bytes read and written, times the cost of their pools."""
        return sum(costs[pool] or 0.0 for costs, pool in zip(self.costs, choice, strict=True))

    @cached_property
    def costs(self) -> tuple[tuple[float | None, ...], ...]:
        """For each group what it costs in each pool and, of weights, at last in flash; None where it cannot be."""
        return tuple(self._costs(group) for group in self.groups)

    def _costs(self, group: Group) -> tuple[float | None, ...]:
        if group.weights is None or self.copy_pool is None:
            return tuple(group.traffic_bytes * pool.cost for pool in self.pools)
        name, flash = self.copy_pool.name, self.copy_pool.flash_cost
        copied = (group.weights.copied_cost(pool.cost, flash) if pool.name == name else None for pool in self.pools)
        return (*copied, group.weights.flash_cost(flash))

    @property
    def least_cost(self) -> float:
        """If there were room for everything where it is cheapest."""
        return sum(min(cost for cost in costs if cost is not None) for costs in self.costs)

    def flash_bytes(self, choice: PoolAssignment) -> int:
        """What a run reads of weights where they lie: to copy them, or as often as it needs them."""
        chosen = [(g.weights, p) for g, p in zip(self.groups, choice, strict=True) if g.weights is not None]
        return sum(weights.read_bytes if pool == STAYS else weights.size_bytes for weights, pool in chosen)

    @cached_property
    def _group_of(self) -> Mapping[int, int]:
        return {buffer: number for number, group in enumerate(self.groups) for buffer in group.members}

    @cached_property
    def _demands(self) -> tuple[Demand, ...]:
        """Of all moments, those alike once."""
        found: dict[Demand, None] = {}
        for moment in self.moments:
            live: dict[int, int] = defaultdict(int)
            shared: dict[tuple[int, int], int] = defaultdict(int)
            for buffer, size in moment.live.items():
                live[self._group_of[buffer]] += size
            for (out, source), size in moment.shared.items():
                shared[self._group_of[out], self._group_of[source]] += size
            pairs = tuple((*pair, size) for pair, size in sorted(shared.items()))
            found[tuple(sorted(live.items())), pairs] = None
        return tuple(found)

    @cached_property
    def largest(self) -> tuple[int, ...]:
        """The most bytes of each group that live at once."""
        found = [0] * len(self.groups)
        for live, _ in self._demands:
            for group, size in live:
                found[group] = max(found[group], size)
        return tuple(found)

    def needed_bytes(self, members: Collection[int]) -> int:
        """What no placement of these groups in one pool stays below."""
        inside = set(members)
        most = 0
        for live, pairs in self._demands:
            held = sum(size for group, size in live if group in inside)
            most = max(most, held - sum(size for out, source, size in pairs if out in inside and source in inside))
        return most

    def solved(self, effort: Effort, below: float | None = None, is_grown: bool = False) -> Answer:
        """The choice that costs least, `below` a cost that is known; or, if it `is_grown`, the one for which the last
        pool must grow least."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        chosen = [[model.new_bool_var("") for _ in costs] for costs in self.costs]
        for row, costs in zip(chosen, self.costs, strict=True):
            model.add_exactly_one(row)
            for x in (x for x, cost in zip(row, costs, strict=True) if cost is None):
                model.add(x == 0)
        most = sum(size for live, _ in self._demands for _, size in live)
        grown = model.new_int_var(0, most if is_grown else 0, "")
        self._keep_capacities(model, chosen, grown)
        for number, members in self.cuts:
            if not is_grown or number < len(self.pools) - 1:
                model.add_bool_or([~chosen[group][number] for group in sorted(members)])
        total = sum(
            round(cost * PRECISION) * x
            for costs, row in zip(self.costs, chosen, strict=True)
            for cost, x in zip(costs, row, strict=True)
            if cost is not None
        )
        if below is not None:
            model.add(total <= round(below * PRECISION) - 1)
        for row in (row for row, group in zip(chosen, self.groups, strict=True) if is_grown and group.weights):
            model.add(row[STAYS] == 1)
        model.minimize(grown if is_grown else total)
        solver, status = solved(model, effort.proof)
        if status == cp_model.INFEASIBLE:
            return Answer(None, float("inf") if below is None else below, True)
        bound = solver.best_objective_bound / PRECISION
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer(None, max(0.0, bound), False)
        numbers = (*range(len(self.pools)), STAYS)
        choice = tuple(next(p for p, x in zip(numbers, row, strict=False) if solver.value(x)) for row in chosen)
        return Answer(choice, bound, status == cp_model.OPTIMAL)

    def _keep_capacities(self, model: Any, chosen: list[list[Any]], grown: Any) -> None:
        together: dict[tuple[int, int, int], Any] = {}

        def are_together(out: int, source: int, number: int) -> Any:
            key = out, source, number
            if key not in together:
                together[key] = both = model.new_bool_var("")
                model.add_implication(both, chosen[out][number])
                model.add_implication(both, chosen[source][number])
            return together[key]

        last = len(self.pools) - 1
        for number, pool in enumerate(self.pools):
            for live, pairs in self._demands:
                if sum(size for _, size in live) > pool.capacity_bytes:
                    held = sum(size * chosen[group][number] for group, size in live)
                    shared = sum(size * are_together(out, source, number) for out, source, size in pairs)
                    model.add(held - shared <= pool.capacity_bytes + (grown if number == last else 0))


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
    problem, pools, copy_pool = build_problem(needs, schedule), needs.options.pools, needs.options.copy_pool
    groups, live = groups_of(needs, schedule, problem.buffers), moments(needs, schedule)
    if weights:
        copied, number = copies(needs, schedule, weights), len(problem.buffers)
        live = with_copies(live, copied, number, needs.unit_bytes)
        problem = replace(problem, buffers=(*problem.buffers, *copied))
        groups = (*groups, *(Group.of_copy(number + n, found) for n, found in enumerate(weights)))
    relaxation = Relaxation(groups, tuple(pools), live, copy_pool=copy_pool)
    chooser = _Chooser(problem, relaxation, effort, schedule.has_turns)
    choice, bound = chooser.best()
    chosen = choice if choice is not None else chooser.grown()
    found = _laid(schedule, chooser, chooser.final(chosen), bound)
    if copy_pool is None:
        return found
    flash_bytes = relaxation.flash_bytes(chosen)
    return replace(found, layout=replace(found.layout, flash_bytes=flash_bytes, flash_cost=copy_pool.flash_cost))


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
    problem, kept = chooser.problem, sorted(addresses)
    # Weights that stay where they are need no buffer.
    problem = problem if len(kept) == len(problem.buffers) else problem.part(kept)
    return Pooled(schedule, problem, tuple(addresses[buffer] for buffer in kept), layout)


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

    def best(self) -> tuple[PoolAssignment | None, float]:
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

    def _densest_first(self) -> PoolAssignment | None:
        """By bytes read and written for each byte that is taken: each group at the first free place of the fastest pool
        that has one or, where there are few groups, that the allocator finds room in. Copies of weights come last."""
        groups, problem, sizes = self.relaxation.groups, self.problem, self.relaxation.largest
        dense = sorted(range(len(groups)), key=lambda g: (-groups[g].traffic_bytes / max(1, sizes[g]), g))
        order = sorted(dense, key=lambda g: groups[g].weights is not None)
        inside: list[list[int]] = [[] for _ in self.pools]
        placed: list[Partial] = [[None] * len(problem.buffers) for _ in self.pools]
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

    def _is_placed(self, choice: PoolAssignment, number: int) -> bool:
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
                found = Compaction.of(part, found.offsets, part.lower_bound_bytes, self.effort, goal_bytes).placement()
            else:
                found = optimal(part, self.effort, goal_bytes)
        line = self.line_bytes
        is_impossible = goal_bytes is not None and found.lower_bound_bytes > goal_bytes
        return _Placed(groups, members, found.offsets, -(-found.arena_bytes // line) * line, is_impossible)

    def _cut(self, choice: PoolAssignment, number: int) -> bool:
        """Adds a cut: these groups may not all be in this pool; returns whether that is proven. Groups that always fit
        are left out of the cut."""
        groups = tuple(g for g, n in enumerate(choice) if n == number)
        members, part = self._part(groups)
        hard, _ = SqueakyWheel.of(part).core(self._room(number))
        hard_buffers = {members[b] for b in hard}
        to_blame = frozenset(g for g in groups if hard_buffers & set(self.relaxation.groups[g].members))
        self.relaxation.cuts.append((number, to_blame or frozenset(groups)))
        return self._place(groups, self._room(number)).is_impossible

    def grown(self) -> PoolAssignment:
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

    def final(self, choice: PoolAssignment) -> list[_Placed]:
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


OTHER_ORDERS = ("file", "eager", "lazy")
"""Orders that are tried besides that of the plan for one arena, where none was asked for."""


MOST_OPS = 100
"""Beyond so many, to try other orders takes too long."""


def in_pools(plan: Plan, effort: Effort) -> Plan:
    """The plan's graph in the pools of its options: in its order, or in another one if that costs less traffic."""
    needs = footprint(plan.graph, plan.options)
    own, copy_pool = plan.schedule, plan.options.copy_pool
    if copy_pool is not None:
        check_copy_pool(needs, copy_pool)
    weights = () if copy_pool is None else weights_of(needs, own)
    best = _pooled(needs, own, effort, weights)
    is_free = plan.options.schedule == BEST and not plan.runs_by_rows and len(plan.graph.ops) <= MOST_OPS
    others = OTHER_ORDERS if is_free else ()
    tried = {own.steps}
    for name in others:
        order = SCHEDULERS[name](needs)
        if order.steps not in tried and best.layout.uses[0].traffic_bytes < sum(
            u.traffic_bytes for u in best.layout.uses
        ):
            tried.add(order.steps)
            best = min(best, _pooled(needs, order, effort, weights), key=lambda found: found.rank)
    if copy_pool is None:
        return _plan(plan, best)
    # Beside the same without any copies, which is also what remains where these cost more than they save.
    plain = _reading_flash(_pooled(needs, best.schedule, effort, ()), weights, copy_pool.flash_cost)
    best = min(best, plain, key=lambda found: found.rank)
    made = _plan(plan, best)
    return replace(made, weights=WeightsTraffic(copy_pool.name, copy_pool.flash_cost, weights, plain.layout.cost))


def _pooled(needs: Footprint, order: Schedule, effort: Effort, weights: Sequence[OpWeights]) -> Pooled:
    """With copies of those weights of which some room, and a gain, can be hoped for; the others are read from flash."""
    copy_pool = needs.options.copy_pool
    if copy_pool is None:
        return pooled(needs, order, effort)
    pool = next(pool for pool in needs.options.pools if pool.name == copy_pool.name)
    copied = [w for w in weights if w.pays(pool.cost, copy_pool.flash_cost) and w.size_bytes <= pool.capacity_bytes]
    others = [w for w in weights if w not in copied]
    return _reading_flash(pooled(needs, order, effort, copied), others, copy_pool.flash_cost)


def _reading_flash(found: Pooled, weights: Sequence[OpWeights], flash_cost: float) -> Pooled:
    """What is found, and these weights read from flash besides."""
    read_bytes = sum(w.read_bytes for w in weights)
    layout = found.layout
    bound = layout.lower_bound + read_bytes * flash_cost
    more = replace(layout, flash_bytes=layout.flash_bytes + read_bytes, flash_cost=flash_cost, lower_bound=bound)
    return replace(found, layout=more)


def _plan(single: Plan, found: Pooled) -> Plan:
    return single.with_buffers(
        found.problem.buffers,
        found.offsets,
        schedule=found.schedule,
        copies_ahead=single.options.weights_ahead,
        arena_bytes=sum(use.used_bytes for use in found.layout.uses),
        pressure=found.problem.pressure,
        pools=replace(found.layout, single_bytes=single.pools.single_bytes or single.arena_bytes),
    )
