"""Which pool each group goes to, by what lives at each moment alone.

A group's bytes at a moment must fit into its pool with those of the others there, less what an op's output may share
with its inputs if they are in the same pool. Whether offsets can be found is for the allocators to say; what they
cannot place comes back as a cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diagmem.planning.place.cp_sat import solved
from diagmem.planning.place.effort import Effort
from diagmem.planning.pooling.traffic import Group
from diagmem.planning.pools import Pool, WeightsPool
from diagmem.planning.posing import Moment

Choice = tuple[int, ...]
"""For each group, the number of its pool; STAYS for weights that are read from flash."""

STAYS = -1

PRECISION = 1000
"""Costs are counted in so many parts of one."""

Demand = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int, int], ...]]
"""What lives at a moment: (group, bytes) each; and (group made, group dying, bytes that they may share) each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A choice, None if there is none or none was found; what no choice costs less than; whether that is certain."""

    choice: Choice | None
    bound: float
    is_final: bool


@dataclass(frozen=True)
class Relaxation:
    """`cuts`: groups that cannot all be in one pool, by the pool's number. `staging`: where weights may be copied to,
    if some of the groups are such copies."""

    groups: tuple[Group, ...]
    pools: tuple[Pool, ...]
    moments: Sequence[Moment]
    cuts: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    staging: WeightsPool | None = None

    def cost(self, choice: Choice) -> float:
        """Bytes read and written, times the cost of their pools."""
        return sum(costs[pool] or 0.0 for costs, pool in zip(self.costs, choice, strict=True))

    @cached_property
    def costs(self) -> tuple[tuple[float | None, ...], ...]:
        """For each group what it costs in each pool and, of weights, at last in flash; None where it cannot be."""
        return tuple(self._costs(group) for group in self.groups)

    def _costs(self, group: Group) -> tuple[float | None, ...]:
        if group.weights is None or self.staging is None:
            return tuple(group.traffic_bytes * pool.cost for pool in self.pools)
        name, flash = self.staging.name, self.staging.flash_cost
        copied = (group.weights.copied_cost(pool.cost, flash) if pool.name == name else None for pool in self.pools)
        return (*copied, group.weights.flash_cost(flash))

    @property
    def least_cost(self) -> float:
        """If there were room for everything where it is cheapest."""
        return sum(min(cost for cost in costs if cost is not None) for costs in self.costs)

    def flash_bytes(self, choice: Choice) -> int:
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
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = effort.proof
        status = solved(solver, model)
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
