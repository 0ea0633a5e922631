"""Orders and offsets as one problem for CP-SAT.

Each op has a place in the order, and each store an offset. Two stores that live at once lie one above the other; or one
of them is gone before the other comes, which asks ops to run in some order. What one order fails by, a few stores and
what brings them together, the solver learns, and tries no other order that fails by the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from diagmem.planning.footprint import Footprint
from diagmem.planning.joint.meetings import Before, Meeting, Pair, Way
from diagmem.planning.place.cp_sat import solved
from diagmem.planning.place.effort import Effort


class Found(NamedTuple):
    """`bound_bytes`: no order can be placed in less. `order`: of the ops whose order matters; None if none was found.
    `offsets`: of the stores that matter."""

    bound_bytes: int
    order: tuple[int, ...] | None = None
    offsets: Mapping[int, int] = MappingProxyType({})


@dataclass
class Model:
    """Under construction. `model`: CP-SAT's. `place`: op -> its place in the order. `start`: store -> its offset in
    units."""

    model: Any
    needs: Footprint
    place: dict[int, Any] = field(default_factory=dict)
    start: dict[int, Any] = field(default_factory=dict)
    _runs_before: dict[tuple[int, int], Any] = field(default_factory=dict)
    _all_run_before: dict[Before, Any] = field(default_factory=dict)
    _above: dict[tuple[int, int, int], Any] = field(default_factory=dict)

    def order(self, ops: Sequence[int]) -> None:
        """Ops take places one after another, as the graph has it."""
        earlier = self.needs.earlier
        for op in ops:
            self.place[op] = self.model.new_int_var(0, len(ops) - 1, "")
            before = [other for other in ops if earlier[op] >> other & 1]
            between = 0
            for other in before:
                between |= earlier[other]
            for other in before:
                if not between >> other & 1:
                    self.model.add(self.place[other] + 1 <= self.place[op])

    def put(self, stores: Iterable[int], limit_bytes: int, height: Any) -> None:
        """Stores lie within the arena, where their alignment lets them."""
        unit = self.needs.unit_bytes
        for index in stores:
            store = self.needs.stores[index]
            size, stride = -(-store.size_bytes // unit), store.align_bytes // unit
            most = (limit_bytes // unit - size) // stride
            self.start[index] = self.model.new_int_var(0, max(0, most), "") * stride
            self.model.add(self.start[index] + size <= height)

    def keep_apart(self, pair: Pair, meetings: Sequence[Meeting]) -> None:
        """However often two stores meet, the same one lies above."""
        a, b = pair
        is_up = self.model.new_bool_var("") if len(meetings) > 1 else None
        for met in meetings:
            up, down = self._ways(a, b, met.up), self._ways(b, a, met.down)
            self.model.add_bool_or(*map(self._all_before, met.gone_before), *up, *down)
            for chosen, side in ((up, is_up), (down, None if is_up is None else ~is_up)):
                for way in chosen if side is not None else ():
                    self.model.add_implication(way, side)

    def _ways(self, below: int, above: int, way: Way) -> list[Any]:
        found = [self._is_above(below, above, way.apart)]
        for units, order in way.shorter:
            chosen = self.model.new_bool_var("")
            self.model.add_implication(chosen, self._is_above(below, above, units))
            self.model.add_implication(chosen, self._all_before(order))
            found.append(chosen)
        return found

    def _is_above(self, below: int, above: int, units: int) -> Any:
        key = below, above, units
        if key not in self._above:
            self._above[key] = self.model.new_bool_var("")
            apart = self.start[above] - self.start[below] >= units
            self.model.add(apart).only_enforce_if(self._above[key])
        return self._above[key]

    def _all_before(self, order: Before) -> Any:
        if len(order) == 1:
            return self._before(*order[0])
        if order not in self._all_run_before:
            every = self._all_run_before[order] = self.model.new_bool_var("")
            for pair in order:
                self.model.add_implication(every, self._before(*pair))
        return self._all_run_before[order]

    def _before(self, first: int, second: int) -> Any:
        if (first, second) not in self._runs_before:
            is_first = self.model.new_bool_var("")
            self.model.add(self.place[first] + 1 <= self.place[second]).only_enforce_if(is_first)
            self.model.add(self.place[second] + 1 <= self.place[first]).only_enforce_if(~is_first)
            self._runs_before[first, second] = is_first
            self._runs_before[second, first] = ~is_first
        return self._runs_before[first, second]


def solve(
    needs: Footprint,
    meetings: Mapping[Pair, Sequence[Meeting]],
    stores: Sequence[int],
    sizes_bytes: tuple[int, int],
    effort: Effort,
) -> Found:
    """The smallest arena of these stores over all orders, of a size from the first to the second of `sizes_bytes`.

    One worker, a fixed seed and deterministic time, as for one order. Presolve is kept short: it would take longer than
    the search.
    """
    from ortools.sat.python import cp_model

    unit, (least_bytes, limit_bytes) = needs.unit_bytes, sizes_bytes
    model = Model(cp_model.CpModel(), needs)
    height = model.model.new_int_var(least_bytes // unit, limit_bytes // unit, "")
    model.order(_ops(meetings))
    model.put(stores, limit_bytes, height)
    for pair, met in meetings.items():
        model.keep_apart(pair, met)
    model.model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.linearization_level = 0
    solver.parameters.max_deterministic_time = effort.order_proof_left
    if effort.purse is not None and effort.purse.seconds_left is not None:
        solver.parameters.max_time_in_seconds = effort.purse.seconds_left
    status = solved(solver, model.model)
    if effort.purse is not None:
        effort.purse.order_proof -= solver.response_proto.deterministic_time
    if status == cp_model.INFEASIBLE:
        return Found(limit_bytes + unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found(least_bytes)
    order = sorted(model.place, key=lambda op: (solver.value(model.place[op]), op))
    offsets = {store: solver.value(start) * unit for store, start in model.start.items()}
    return Found(round(solver.best_objective_bound) * unit, tuple(order), offsets)


def _ops(meetings: Mapping[Pair, Sequence[Meeting]]) -> list[int]:
    """Those whose order makes a difference."""
    found: set[int] = set()
    for met in (meeting for of_pair in meetings.values() for meeting in of_pair):
        orders = [*met.gone_before, *(order for way in (met.up, met.down) for _, order in way.shorter)]
        found.update(op for order in orders for pair in order for op in pair)
    return sorted(found)
