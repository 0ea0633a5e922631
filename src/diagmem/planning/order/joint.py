"""The smallest plan over all orders, where the order that needs least cannot be placed in what it needs.

Orders and placements depend on each other, and there are too many orders to place them one by one. So both are one
problem for CP-SAT: each op has a place in the order, and each store an offset. Two stores that live at once lie one
above the other; or one of them is gone before the other comes, which asks ops to run in some order. What one order
fails by, a few stores and what brings them together, the solver learns, and tries no other that fails by the same.

Which bytes hold something when is said by operations and not by steps, so that it holds in every order. All of it is
weaker than what any single order asks for, or the same: what no offsets meet, no order can be placed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple

from diagmem.model.schedule import Schedule
from diagmem.planning.needs.footprint import Footprint, Hull, Store, bytes_of_any, hull_of, live_hulls
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.exact import core, solved

Ops = frozenset[int]

AT_ONCE: Ops = frozenset()
"""Of a live range's beginning: only after the run. Of its end: even before it."""


class LiveRange(NamedTuple):
    """Bytes [low, high) of a store that are live in every order, from when the first of the ops `begin` runs (None:
    before the run) until the last of the ops `end` has run (None: after it, too)."""

    begin: Ops | None
    end: Ops | None
    low_bytes: int
    high_bytes: int


def live_ranges(needs: Footprint, store: Store) -> tuple[LiveRange, ...]:
    """A store is there from its first writer to its last reader, all of it; one with state in parts."""
    if store.holds_state:
        return tuple(_of_state(needs, store))
    begin = store.writers or None
    end = None if store.is_kept else store.writers | store.readers
    return (LiveRange(begin, end, 0, store.size_bytes),)


def _of_state(needs: Footprint, store: Store) -> Iterator[LiveRange]:
    """Where all that touch a store run in one sequence in every order, so do its live windows: what every window from
    one of these moments to another has in common."""
    graph, inside = needs.graph, {*store.tensors}
    touching = [op.index for op in graph.ops if not inside.isdisjoint((*op.inputs, *op.outputs))]
    if not all(needs.earlier[b] >> a & 1 for a, b in pairwise(touching)):
        yield from _in_any_sequence(needs, store, touching)
        return
    # Between any two of them others may run.
    run = [None, *(step for op in touching for step in (op, None))]
    hulls = live_hulls(graph, store, run, needs.options.keep_inputs)
    common = _common(hulls)
    begins = [None, *(frozenset([op]) for op in touching), AT_ONCE]
    ends = [AT_ONCE, *(frozenset([op]) for op in touching), None]
    for (first, last), hull in common.items():
        # What also holds for longer is said there.
        if hull is not None and hull not in (common.get((first - 1, last)), common.get((first, last + 1))):
            yield from _range(begins[first], ends[last], hull)


def _common(hulls: list[Hull | None]) -> dict[tuple[int, int], Hull | None]:
    """Moments (first, last) -> the bytes that live at both and all the time between; every second hull is that of a
    moment, the others lie between."""
    found: dict[tuple[int, int], Hull | None] = {}
    for first in range(0, len(hulls), 2):
        shared: Hull | None = hulls[first]
        found[first // 2, first // 2] = shared
        for last in range(first + 2, len(hulls), 2):
            for hull in hulls[last - 1 : last + 1]:
                shared = None if shared is None or hull is None else (max(shared[0], hull[0]), min(shared[1], hull[1]))
            found[first // 2, last // 2] = shared
    return found


def _in_any_sequence(needs: Footprint, store: Store, touching: Sequence[int]) -> Iterator[LiveRange]:
    """What an op touches, while it runs; and what one op writes, or the caller, and another one reads, where none that
    may run between the two writes it again."""
    graph, earlier, joined = needs.graph, needs.earlier, bytes_of_any(needs.graph, store)
    state = [t for t in store.tensors if graph.tensors[t].is_variable]
    kept = graph.inputs if needs.options.keep_inputs else ()
    given, wanted = joined([*state, *graph.inputs]), joined([*state, *graph.outputs, *kept])
    written = {op: joined(graph.ops[op].outputs) for op in touching}
    read = {op: joined(graph.ops[op].inputs) for op in touching}
    yield from _range(None, AT_ONCE, hull_of(given))
    yield from _range(AT_ONCE, None, hull_of(wanted))
    for op in touching:
        yield from _range(frozenset([op]), frozenset([op]), hull_of(read[op] | written[op]))
    for first, last in product((None, *touching), (*touching, None)):
        if first is not None and last is not None and not earlier[last] >> first & 1:
            continue
        held = (given if first is None else written[first]) & (wanted if last is None else read[last])
        for op in touching:
            is_before = op == first or (first is not None and earlier[first] >> op & 1)
            is_after = op == last or (last is not None and earlier[op] >> last & 1)
            held = held if is_before or is_after else held & ~written[op]
        begin, end = (None if op is None else frozenset([op]) for op in (first, last))
        yield from _range(begin, end, hull_of(held))


def _range(begin: Ops | None, end: Ops | None, hull: Hull | None) -> Iterator[LiveRange]:
    if hull is not None and hull[0] < hull[1]:
        yield LiveRange(begin, end, *hull)


Before = tuple[tuple[int, int], ...]
"""Pairs of ops that the graph leaves open: the first must run before the second."""

Pair = tuple[int, int]
"""Two stores by index, the smaller one first."""


class Way(NamedTuple):
    """Units from the start of one store to that of another above it, at the least: `apart`; or `shorter` ones, each if
    ops run in a certain order, so that the one is made while the other dies."""

    apart: int
    shorter: tuple[tuple[int, Before], ...]


class Meeting(NamedTuple):
    """Live ranges of two stores that overlap, unless the first ends before the second begins, or the other way round
    (`gone_before`, for each that may be). `up`: the second store lies above; `down`: the first does."""

    gone_before: tuple[Before, ...]
    up: Way
    down: Way


@dataclass(frozen=True)
class Meetings:
    """All that a footprint's stores are to each other, over all orders. `units` of an arena are those of the
    footprint."""

    needs: Footprint

    @cached_property
    def of_pair(self) -> Mapping[Pair, tuple[Meeting, ...]]:
        """For the pairs that may be in each other's way."""
        live = [live_ranges(self.needs, store) for store in self.needs.stores]
        found = {}
        for pair in combinations(range(len(live)), 2):
            met = tuple(self._met(pair, live[pair[0]], live[pair[1]]))
            if met and max(m.up.apart for m in met) + max(m.down.apart for m in met) > 0:
                found[pair] = met
        return found

    @cached_property
    def _separations(self) -> Mapping[tuple[int, int], list[tuple[int, int]]]:
        """(output, input) -> ops that make the one of the other, and the units that each keeps between them."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for op in range(len(self.needs.after)):
            for pair, size_bytes in self.needs.separations(op).items():
                found[pair].append((op, -(-size_bytes // self.needs.unit_bytes)))
        return found

    def _met(self, pair: Pair, ours: Iterable[LiveRange], theirs: Iterable[LiveRange]) -> Iterator[Meeting]:
        a, b = pair
        for one, other in product(ours, theirs):
            gone = (self._ends_before(one, other), self._ends_before(other, one))
            if () not in gone:
                possible = tuple(order for order in gone if order is not None)
                yield Meeting(possible, self._way((a, b), one, other), self._way((b, a), other, one))

    def _ends_before(self, one: LiveRange, other: LiveRange) -> Before | None:
        """What must hold for it; None if it cannot be."""
        if one.end is None or other.begin is None:
            return None
        return self._open(product(one.end, other.begin))

    def _way(self, pair: tuple[int, int], below: LiveRange, above: LiveRange) -> Way:
        apart = -(-(below.high_bytes - above.low_bytes) // self.needs.unit_bytes)
        shorter = []
        for op, units in self._separations.get(pair, ()):
            order = self._made_while_dying(below, above, op) if units < apart else None
            if order is not None:
                shorter.append((units, order))
        apart = min([apart, *(units for units, order in shorter if not order)])
        return Way(apart, tuple((units, order) for units, order in shorter if units < apart))

    def _made_while_dying(self, made: LiveRange, dying: LiveRange, op: int) -> Before | None:
        """What must hold for the one to begin with the op with which the other ends."""
        if made.begin is None or dying.end is None or op not in made.begin or op not in dying.end:
            return None
        others = [(x, op) for x in dying.end - {op}] + [(op, y) for y in made.begin - {op}]
        return self._open(others)

    def _open(self, pairs: Iterable[tuple[int, int]]) -> Before | None:
        """Those of the pairs that the graph leaves open; None if it says otherwise of some."""
        earlier, found = self.needs.earlier, []
        for first, second in pairs:
            if first == second or earlier[first] >> second & 1:
                return None
            if not earlier[second] >> first & 1:
                found.append((first, second))
        return tuple(sorted(found))

    @cached_property
    def _near(self) -> Mapping[int, list[tuple[int, int]]]:
        """Store -> others, and how many units they keep free of its starts at the most."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (a, b), met in self.of_pair.items():
            taken = max(m.up.apart for m in met) + max(m.down.apart for m in met) - 1
            found[a].append((b, taken))
            found[b].append((a, taken))
        return found

    def always_fits(self, limit_bytes: int, index: int, left: Collection[int]) -> bool:
        """Whether a store finds a place in so many bytes, wherever the others that are left lie, in every order."""
        store = self.needs.stores[index]
        places = (limit_bytes - store.size_bytes) // store.align_bytes + 1
        stride = store.align_bytes // self.needs.unit_bytes
        return places > sum(-(-taken // stride) for other, taken in self._near[index] if other in left)


@dataclass(frozen=True, slots=True)
class Joint:
    """`bound_bytes`: no plan is smaller, whatever its order. `schedule`: an order of all ops that may do with less than
    was known; None if none was found. `offsets`: of the stores that matter. `rest`: the others, in the order of their
    placement."""

    bound_bytes: int
    schedule: Schedule | None = None
    offsets: tuple[int | None, ...] = ()
    rest: tuple[int, ...] = ()


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
) -> Joint:
    """The smallest arena of these stores over all orders, of a size from the first to the second of `sizes_bytes`.
    Presolve is kept short: it would take longer than the search."""
    from ortools.sat.python import cp_model

    unit, (least_bytes, limit_bytes) = needs.unit_bytes, sizes_bytes
    model = Model(cp_model.CpModel(), needs)
    height = model.model.new_int_var(least_bytes // unit, limit_bytes // unit, "")
    model.order(_ops(meetings))
    model.put(stores, limit_bytes, height)
    for pair, met in meetings.items():
        model.keep_apart(pair, met)
    model.model.minimize(height)
    short = {"symmetry_level": 0, "cp_model_probing_level": 0, "linearization_level": 0}
    solver, status = solved(model.model, effort.order_proof_left, effort.budget, **short)
    if effort.budget is not None:
        effort.budget.order_proof -= solver.response_proto.deterministic_time
    if status == cp_model.INFEASIBLE:
        return Joint(limit_bytes + unit)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Joint(least_bytes)
    order = sorted(model.place, key=lambda op: (solver.value(model.place[op]), op))
    at = {store: solver.value(start) * unit for store, start in model.start.items()}
    offsets = tuple(at.get(store) for store in range(len(needs.stores)))
    return Joint(round(solver.best_objective_bound) * unit, _whole(needs, order), offsets)


def _ops(meetings: Mapping[Pair, Sequence[Meeting]]) -> list[int]:
    """Those whose order makes a difference."""
    found: set[int] = set()
    for met in (meeting for of_pair in meetings.values() for meeting in of_pair):
        orders = [*met.gone_before, *(order for way in (met.up, met.down) for _, order in way.shorter)]
        found.update(op for order in orders for pair in order for op in pair)
    return sorted(found)


CLAUSES = 5_000
"""For each unit of deterministic time: beyond so many it is spent before the search begins."""

PAIRS = 10
"""Of stores, for each clause: most do not meet."""


def jointly(needs: Footprint, bound_bytes: int, below_bytes: int, effort: Effort) -> Joint:
    """Looks for an order and offsets that take less than `below_bytes`; none take less than `bound_bytes`."""
    clauses, count = int(CLAUSES * effort.order_proof_left), len(needs.stores)
    if effort.is_late or count * (count - 1) // 2 > PAIRS * clauses:
        return Joint(bound_bytes)
    found, limit_bytes = Meetings(needs), below_bytes - needs.unit_bytes
    stores, removed = core(count, partial(found.always_fits, limit_bytes))
    inside = {*stores}
    meetings = {pair: met for pair, met in found.of_pair.items() if inside.issuperset(pair)}
    if sum(map(len, meetings.values())) > clauses:
        return Joint(bound_bytes)
    solution = solve(needs, meetings, stores, (bound_bytes, limit_bytes), effort)
    return replace(solution, rest=tuple(reversed(removed)))


def _whole(needs: Footprint, first: Sequence[int]) -> Schedule:
    """All ops: those whose order matters as it was found, each after all that it waits for."""
    order: dict[int, None] = {}
    for op in (*first, *range(len(needs.after))):
        order.update(dict.fromkeys(other for other in range(op) if needs.earlier[op] >> other & 1))
        order[op] = None
    return Schedule.whole(order, "joint")
