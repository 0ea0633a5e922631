"""From a graph to its plan: orders, problems, placements, and the choice among them.

What several plans of one model share (footprints, the plan without overlap, the plan layer by layer) is worked out
once, and what each step on the way is worth is written down as it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.allocators import ALLOCATORS, Placement, optimal
from diagmem.planning.allocators.effort import Effort
from diagmem.planning.allocators.many_orders import many_orders
from diagmem.planning.allocators.pinned import pinned
from diagmem.planning.allocators.rings import with_rings
from diagmem.planning.footprint import Footprint, footprint
from diagmem.planning.memories import in_memories
from diagmem.planning.options import BEST, ROWS, SPEED, Options
from diagmem.planning.owned import as_asked, check_external, is_owned, with_owned
from diagmem.planning.plan import Plan, scratch_of, stored
from diagmem.planning.posing import problem
from diagmem.planning.problem import Problem
from diagmem.planning.removal import leaner_graphs, wide_orders
from diagmem.planning.roomier import checked_team
from diagmem.planning.schedulers import SCHEDULERS, every_order, file_order, gates, search
from diagmem.planning.schedulers.recompute import recomputing_orders
from diagmem.planning.schedulers.rows import RowSchedule
from diagmem.planning.worth import Planned as Planned
from diagmem.planning.worth import Rung as Rung
from diagmem.transforms import FOR_ROWS, ONLY_FOR_ROWS, TRANSFORMS, Removal, transformed

MOST_TURNS = 16_384
"""Of a run row by row: beyond that the list of steps would take more flash than anyone has, and planning minutes."""

MOST_ORDERS = 50
"""Where nothing cheaper proves a plan to be the best, and there are no more orders than these, all are placed."""

LEAST_LEANER, MOST_OPS_AGAIN = 2, 6_000
"""How often a model is planned again for kernels with less scratch: as many ops as this in all."""

Allocator = Callable[[Problem], Placement]

Tell = Callable[[str, int, int], None]
"""Told what stage of planning begins, how many are done, and how many there are."""


def silently(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


def planned(model: Graph, options: Options, tell: Tell = silently) -> Planned:
    """The plan of a model. It has passed the validator; one that does not is a bug, and raises UnsafePlanError."""
    effort = Effort.named(options.effort, options.time_limit)
    model = _as_asked(model, options)
    found = _of_given_kernels(model, options, effort, tell)[-1]
    found = found if options.prefer == SPEED else _leaner(model, options, effort, found)
    return in_memories(found, effort) if options.pools else found


def _as_asked(model: Graph, options: Options) -> Graph:
    model = as_asked(model, options)
    check_external(model, options.external)
    return model


def planned_front(model: Graph, options: Options, tell: Tell = silently) -> list[Planned]:
    """Plans of which each takes less RAM than the one before: a single one, unless rows may be made again, or kernels
    may be slower."""
    effort = Effort.named(options.effort, options.time_limit)
    model = _as_asked(model, options)
    found = _of_given_kernels(model, options, effort, tell)
    leaner = [_leaner(model, options, effort, found[-1])]
    if options.schedule == ROWS and not found[0].plan.runs_by_rows:
        whole = replace(options, schedule=BEST, input_rows=False, recompute=1)
        leaner.append(_leaner(model, whole, effort, found[0]))
    by_size = {made.arena_bytes: made for made in (*leaner, *found)}
    return [by_size[size] for size in sorted(by_size, reverse=True)]


def _of_given_kernels(model: Graph, options: Options, effort: Effort, tell: Tell) -> list[Planned]:
    planner = _Planner(model, options, effort, tell)
    return planner.by_rows() if options.schedule == ROWS else [planner.layer_by_layer()]


def _leaner(model: Graph, options: Options, effort: Effort, best: Planned) -> Planned:
    """As long as that makes the plan smaller, the op that sets its peak goes without scratch."""
    for _ in range(max(LEAST_LEANER, MOST_OPS_AGAIN // max(1, len(model.ops)))):
        plan, peak_op = best.plan, best.plan.peak_op
        library = plan.options.library
        if library.instructions is None or peak_op is None or not library.scratch_bytes(plan.graph.nodes[peak_op]):
            return best
        leaner = library.leaner(plan.graph.ops[peak_op].number)
        made = _of_given_kernels(model, replace(options, kernels=leaner.name), effort, silently)[-1]
        if made.arena_bytes >= best.arena_bytes or effort.is_late:
            return min(best, made, key=lambda found: found.arena_bytes)
        best = made
    return best


@dataclass(frozen=True, slots=True)
class _Choice:
    """An order, the problem that it poses, and where everything goes. `bound_bytes`: that of the placement, or one that
    holds for all orders."""

    schedule: Schedule
    problem: Problem
    placement: Placement
    bound_bytes: int
    is_over_all_orders: bool = False

    @classmethod
    def of(cls, needs: Footprint, schedule: Schedule, place: Allocator) -> _Choice:
        posed = problem(needs, schedule)
        placement = _placed(needs, posed, place)
        return cls(schedule, posed, placement, placement.lower_bound_bytes)

    @property
    def arena_bytes(self) -> int:
        return self.placement.arena_bytes

    @property
    def gap(self) -> int:
        """Bytes above what is proven to be needed."""
        return self.placement.arena_bytes - self.placement.lower_bound_bytes

    def plan(self, needs: Footprint, recompute: float = 1.0) -> Plan:
        offsets = with_rings(self.problem, self.placement.offsets)
        return Plan(
            needs.graph,
            needs.options,
            self.schedule,
            stored(needs.graph, self.problem.buffers, offsets),
            scratch_of(self.problem.buffers, offsets),
            self.arena_bytes,
            self.bound_bytes,
            self.is_over_all_orders,
            recompute,
            self.problem.buffers,
            offsets,
            self.problem.pressure,
        )


@dataclass(frozen=True)
class _Planner:
    """Plans one model."""

    model: Graph
    options: Options
    effort: Effort
    tell: Tell

    @cached_property
    def needs(self) -> Footprint:
        return footprint(self.model, self.options)

    @cached_property
    def apart(self) -> Footprint:
        """What the model needs if no two live buffers share a byte."""
        return footprint(self.model, replace(self.options, overlap=False)) if self.options.overlap else self.needs

    @cached_property
    def baseline(self) -> _Choice:
        """The best without overlap, in file order."""
        self.tell("placing whole tensors", 0, self.stages)
        return _in_file_order(self.apart, self.whole_effort)

    @cached_property
    def whole(self) -> _Choice:
        """The best layer by layer, with every op of the model."""
        baseline = self.baseline
        self.tell("ordering ops, and overlapping their tensors", 1, self.stages)
        return _layer_by_layer(self.needs, self.order, self.whole_effort, self.options.allocator, baseline)

    @property
    def stages(self) -> int:
        """Whole tensors, order and overlap, removal; and rows."""
        return 4 if self.options.schedule == ROWS else 3

    @property
    def whole_effort(self) -> Effort:
        return self.effort.for_whole_tensors

    @property
    def order(self) -> str:
        return BEST if self.options.schedule == ROWS else self.options.schedule

    @cached_property
    def transforms(self) -> Collection[str]:
        """The transforms to try."""
        remove = self.options.remove
        unknown = sorted(set(remove or ()) - TRANSFORMS.keys())
        if unknown:
            raise PlanError(f"transform '{unknown[0]}' is not known; known: {', '.join(TRANSFORMS)}")
        return (TRANSFORMS if remove is None else remove) if self.options.library.addresses_views else ()

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """What is gained with every op run whole."""
        rungs = [Rung("whole tensors", self.baseline.arena_bytes)]
        order = BEST if self.whole.is_over_all_orders else self.order
        if self.options.overlap:
            ordered = _layer_by_layer(self.apart, order, self.whole_effort, BEST, self.baseline).arena_bytes
            rungs += [Rung(f"{order} order", ordered), Rung("overlap", self.whole.arena_bytes)]
        else:
            rungs.append(Rung(f"{order} order", self.whole.arena_bytes))
        return tuple(rungs)

    def layer_by_layer(self) -> Planned:
        """With as few ops as do not make the plan larger."""
        options, whole = self.options, self.whole
        self.tell("leaving out ops", 2, self.stages)
        names = [name for name in self.transforms if name not in ONLY_FOR_ROWS]
        for removed in leaner_graphs(self.model, options, names, whole.arena_bytes, self.whole_effort):
            needs = footprint(removed.graph, options)
            chosen = _layer_by_layer(needs, self.order, self.whole_effort, options.allocator)
            if chosen.arena_bytes <= whole.arena_bytes:
                rungs = (*self.ladder, Rung("removal", chosen.arena_bytes))
                return self._told(chosen.plan(needs), rungs, removed.removals)
        return self._told(whole.plan(self.needs), self.ladder)

    def by_rows(self) -> list[Planned]:
        """Plans that take ever less memory for ever more work: layer by layer (unless the input is streamed), row by
        row, and with rows that are made again. A model with state is run whole, for its state would be in two rows'
        places at once."""
        self._check_rows()
        if self.model.variables:
            return [self.layer_by_layer()]
        needs, removals = self._needs_of_rows()
        input_rows = self.options.input_rows
        allocator = self.options.allocator
        place = partial(many_orders, effort=self.effort) if allocator == BEST else _allocator(allocator, self.effort)
        found = [] if input_rows else [self.layer_by_layer()]
        orders = recomputing_orders(needs.rows, input_rows, self.options.recompute)
        rungs = self.ladder
        for number, order in enumerate(orders):
            self.tell("running row by row", self.stages - 1 + number, self.stages - 1 + len(orders))
            if found and self.effort.is_late:
                break
            chosen = _row_by_row(needs, order, place, () if number else wide_orders(self.model, needs, removals))
            again = order.macs / orders[0].macs if orders[0].macs else 1.0
            if not found or chosen.arena_bytes < found[-1].arena_bytes:
                step = "recomputation" if again > 1 else "streamed input" if input_rows else "rows"
                last = Rung(step, chosen.arena_bytes)
                found.append(self._told(chosen.plan(needs, again), (*rungs, last), removals))
            if again == 1:
                once = min(chosen.arena_bytes, found[-1].arena_bytes)
                rungs = (*self.ladder, Rung("streamed input" if input_rows else "rows", once))
        return found

    def _told(self, plan: Plan, ladder: tuple[Rung, ...], removals: tuple[Removal, ...] = ()) -> Planned:
        plan = checked_team(with_owned(plan) if is_owned(plan) else plan, "; this is a bug, please report it")
        return Planned(plan, self.baseline.plan(self.apart), ladder, removals)

    def _check_rows(self) -> None:
        options = self.options
        if not options.library.is_own or options.external_io:
            raise PlanError("rows are run by our own kernels, in one arena: kernels 'diagmem' and no external_io")
        if any(tensor.view is not None for tensor in self.model.tensors):
            raise PlanError("rows are planned for the model as its file has it: ops must not have been removed before")
        if options.input_rows and self.model.variables:
            raise PlanError("a model with state is run whole: its input cannot come row by row")
        names = {self.model.tensors[t].name for t in self.model.inputs}
        if options.input_rows and (len(self.model.inputs) != 1 or options.keep_inputs or names & {*options.external}):
            raise PlanError(
                "to hand over the input row by row the model must have one input, neither kept nor the caller's"
            )

    def _needs_of_rows(self) -> tuple[Footprint, tuple[Removal, ...]]:
        """What the graph needs as it runs row by row, without some ops, and what was done to it. Very long lines are
        not cut up."""
        turns = 0
        for chosen in (FOR_ROWS, [name for name in FOR_ROWS if name not in ONLY_FOR_ROWS]):
            names, block = [n for n in self.transforms if n in chosen], self.options.library.channel_block
            lean, removals = transformed(self.model, names, block=block)
            needs = footprint(lean, self.options)
            turns = sum(op.turns for op in needs.rows.ops)
            if turns <= MOST_TURNS:
                return needs, removals
        raise PlanError(
            f"{turns} rows are too many to run one by one, {MOST_TURNS} can be: plan it without the schedule 'rows'"
        )


def _placed(needs: Footprint, posed: Problem, place: Allocator) -> Placement:
    pins = needs.options.pinned_at
    if not pins:
        return place(posed)
    return pinned(posed, pins, place.keywords.get("effort") if isinstance(place, partial) else None)


def _allocator(name: str, effort: Effort) -> Allocator:
    return partial(optimal, effort=effort) if name in (BEST, "optimal") else ALLOCATORS[name]


def _in_file_order(apart: Footprint, effort: Effort) -> _Choice:
    return _Choice.of(apart, file_order(apart), _allocator(BEST, effort))


def _layer_by_layer(
    needs: Footprint, order: str, effort: Effort, allocator: str, plain: _Choice | None = None
) -> _Choice:
    """The best choice for ops that run whole. `plain`: the best without overlap in file order, if that is known."""
    place = _allocator(allocator, effort)
    if order in (BEST, "search"):
        chosen = _over_all_orders(needs, place, effort, others=order == BEST)
    else:
        chosen = _Choice.of(needs, SCHEDULERS[order](needs), place)
    if allocator != BEST or order not in (BEST, "file"):
        return chosen
    if plain is None:
        plain = _in_file_order(footprint(needs.graph, replace(needs.options, overlap=False)), effort)
    if chosen.arena_bytes <= plain.arena_bytes:
        return chosen
    # What keeps buffers apart also serves where they might overlap.
    offsets = plain.placement.offsets
    apart = _Choice.of(needs, plain.schedule, lambda posed: Placement.of(posed, offsets))
    return replace(apart, bound_bytes=chosen.bound_bytes, is_over_all_orders=chosen.is_over_all_orders)


def _row_by_row(needs: Footprint, order: RowSchedule, place: Allocator, others: Collection[Schedule] = ()) -> _Choice:
    orders = dict.fromkeys((order.schedule, *others))
    best = min((_Choice.of(needs, each, place) for each in orders), key=lambda choice: choice.arena_bytes)
    if order.plain is not None:
        # It seldom wins, so it gets a quarter of the time.
        briefly = place
        if isinstance(place, partial) and place.func is many_orders:
            briefly = partial(many_orders, effort=place.keywords["effort"].times(0.25))
        posed = problem(needs, order.plain)
        if posed.lower_bound_bytes <= best.arena_bytes:
            placement = _placed(needs, posed, briefly)
            plain = _Choice(order.plain, posed, placement, placement.lower_bound_bytes)
            best = min(best, plain, key=lambda choice: (choice.arena_bytes, choice.gap))
    return best


def _over_all_orders(needs: Footprint, place: Allocator, effort: Effort, others: bool) -> _Choice:
    """The best choice found, with a bound that holds for all orders. `others`: where the order that needs least cannot
    be placed at its bound, try other ones."""
    states = effort.states_for(len(needs.after))
    searched = search(needs, states)
    best = _Choice.of(needs, searched.schedule, place)
    bound = searched.bound_bytes
    if best.arena_bytes > bound:
        bound = max(bound, _bound_of_fixed_part(needs, best.problem, bound, effort))
    for name in [name for name in SCHEDULERS if name != "search"] if others else ():
        if best.arena_bytes <= bound or effort.is_late:
            break
        best = _better(needs, best, SCHEDULERS[name](needs), place)
    may_try = others and best.arena_bytes > bound and not effort.is_late
    every = every_order(needs, best.arena_bytes, MOST_ORDERS, states) if may_try else None
    if every is not None:
        choices = [_Choice.of(needs, order, place) for order in every]
        least = min((c.placement.lower_bound_bytes for c in choices), default=best.arena_bytes)
        best = min(best, *choices, key=lambda choice: choice.arena_bytes) if choices else best
        bound = max(bound, min(least, best.arena_bytes))
    return replace(best, bound_bytes=bound, is_over_all_orders=True)


def _better(needs: Footprint, best: _Choice, order: Schedule, place: Allocator) -> _Choice:
    """The best choice so far, or that of another order if it is smaller."""
    if order.ops == best.schedule.ops or max(needs.pressure(order.ops)) * needs.unit_bytes >= best.arena_bytes:
        return best
    return min(best, _Choice.of(needs, order, place), key=lambda choice: choice.arena_bytes)


def _bound_of_fixed_part(needs: Footprint, posed: Problem, bound: int, effort: Effort) -> int:
    """A bound from the buffers whose writers and readers run in the same sequence in every order: what they are to each
    other does not depend on the order either."""
    fixed = gates(needs)
    users = [store.writers | store.readers for store in needs.stores]
    members = [index for index, ops in enumerate(users) if all(fixed >> op & 1 for op in ops)]
    return optimal(replace(posed.part(members), lower_bound_bytes=bound), effort).lower_bound_bytes
