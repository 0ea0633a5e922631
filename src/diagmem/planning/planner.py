"""From a graph to its plan: orders, problems, placements, and the choice among them.

What several plans of one model share (footprints, the plan without overlap, the plan layer by layer) is worked out
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial

from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import Graph
from diagmem.model.schedule import PUSH, Schedule
from diagmem.planning.memory.caller import has_caller_memory, with_caller_memory
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import ALL, AUTO, BEST, LAYER_BY_LAYER, ROW_BY_ROW, ROWS, SPEED, STREAMED, WAYS, Options
from diagmem.planning.order.joint import Joint, jointly
from diagmem.planning.order.rows import RowSchedule, recomputing_orders, sums_that_cost
from diagmem.planning.order.search import SCHEDULERS, every_order, file_order, gates, search
from diagmem.planning.place import MULTI_START, OPTIMAL, Allocator, Placement, optimal
from diagmem.planning.place.effort import Effort
from diagmem.planning.place.local_search import SqueakyWheel
from diagmem.planning.place.rings import with_rings
from diagmem.planning.plan import Plan, checked
from diagmem.planning.plan import Planned as Planned
from diagmem.planning.plan import Rung as Rung
from diagmem.planning.removal import Removed, leaner_graphs, wide_orders, without_ops_by_rows
from diagmem.transforms import ALWAYS, FOR_ROWS, ONLY_FOR_ROWS, TRANSFORMS, Removal, transformed
from diagmem.transforms.asked import as_asked, check_external

MOST_ORDERS = 50
"""Where nothing cheaper proves a plan to be the best, and there are no more orders than these, all are placed."""

Place = Callable[[Problem], Placement]
"""An allocator, or a function that returns known offsets."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order, its placement problem, and where everything goes. `bound_bytes`: that of the placement, or one that
    holds for all orders."""

    schedule: Schedule
    problem: Problem
    placement: Placement
    bound_bytes: int
    is_over_all_orders: bool = False

    @classmethod
    def of(cls, needs: Footprint, schedule: Schedule, place: Place) -> PlacedOrder:
        problem = build_problem(needs, schedule)
        placement = place(problem)
        return cls(schedule, problem, placement, placement.lower_bound_bytes)

    @property
    def arena_bytes(self) -> int:
        return self.placement.arena_bytes

    @property
    def gap(self) -> int:
        """Bytes above what is proven to be needed."""
        return self.placement.arena_bytes - self.placement.lower_bound_bytes

    def plan(self, needs: Footprint, recompute: float = 1.0) -> Plan:
        offsets = with_rings(self.problem, self.placement.offsets)
        return Plan.of(
            *(needs.graph, needs.options, self.schedule, self.problem, offsets),
            arena_bytes=self.arena_bytes,
            lower_bound_bytes=self.bound_bytes,
            is_over_all_orders=self.is_over_all_orders,
            recompute=recompute,
        )


def allocator(needs: Footprint, name: str, effort: Effort) -> Allocator:
    return Allocator.named(OPTIMAL if name == BEST else name, effort, needs.options.pinned_at)


def in_file_order(apart: Footprint, effort: Effort) -> PlacedOrder:
    return PlacedOrder.of(apart, file_order(apart), allocator(apart, BEST, effort))


def layer_by_layer(
    needs: Footprint, order: str, effort: Effort, name: str, plain: PlacedOrder | None = None
) -> PlacedOrder:
    """The best choice for ops that run whole. `name`: of the allocator. `plain`: the best without overlap in file
    order, if that is known."""
    place = allocator(needs, name, effort)
    if order in (BEST, "search"):
        chosen = _over_all_orders(needs, place, effort, others=order == BEST)
    else:
        chosen = PlacedOrder.of(needs, SCHEDULERS[order](needs), place)
    if name != BEST or order not in (BEST, "file"):
        return chosen
    if plain is None:
        apart = footprint(needs.graph, replace(needs.options, overlap=False))
        if build_problem(apart, file_order(apart)).lower_bound_bytes >= chosen.arena_bytes:
            return chosen
        plain = in_file_order(apart, effort.for_comparison)
    if chosen.arena_bytes <= plain.arena_bytes:
        return chosen
    # A placement without overlap is also valid where overlap is allowed.
    offsets = plain.placement.offsets
    kept = PlacedOrder.of(needs, plain.schedule, lambda problem: Placement.of(problem, offsets))
    return replace(kept, bound_bytes=chosen.bound_bytes, is_over_all_orders=chosen.is_over_all_orders)


def row_by_row(
    needs: Footprint, order: RowSchedule, place: Allocator, others: Collection[Schedule] = ()
) -> PlacedOrder:
    orders = dict.fromkeys((order.schedule, *others))
    best = min((PlacedOrder.of(needs, each, place) for each in orders), key=lambda choice: choice.arena_bytes)
    if order.plain is not None:
        # It rarely wins, so it gets a quarter of the effort.
        problem = build_problem(needs, order.plain)
        if problem.lower_bound_bytes <= best.arena_bytes:
            placement = place.times(0.25)(problem)
            plain = PlacedOrder(order.plain, problem, placement, placement.lower_bound_bytes)
            best = min(best, plain, key=lambda choice: (choice.arena_bytes, choice.gap))
    return best


def _over_all_orders(needs: Footprint, place: Allocator, effort: Effort, others: bool) -> PlacedOrder:
    """The best choice found, with a bound that holds for all orders. `others`: where the order that needs least cannot
    be placed at its bound, try other ones."""
    states = effort.states_for(len(needs.after))
    searched = search(needs, states)
    best = PlacedOrder.of(needs, searched.schedule, place)
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
        choices = [PlacedOrder.of(needs, order, place) for order in every]
        least = min((c.placement.lower_bound_bytes for c in choices), default=best.arena_bytes)
        best = min(best, *choices, key=lambda choice: choice.arena_bytes) if choices else best
        bound = max(bound, min(least, best.arena_bytes))
    return replace(best, bound_bytes=bound, is_over_all_orders=True)


def with_other_orders(needs: Footprint, best: PlacedOrder, effort: Effort) -> PlacedOrder:
    """The best choice so far, or a smaller one; with orders and placements looked at together where it is not
    proven."""
    if not best.is_over_all_orders or needs.options.pinned_at:
        return best
    bound, limit = best.bound_bytes, best.arena_bytes + 1
    # Each time for a smaller arena, in which more of the stores are in each other's way.
    while bound < best.arena_bytes < limit:
        limit = best.arena_bytes
        found = jointly(needs, bound, limit, effort)
        if found.schedule is not None:
            other = PlacedOrder.of(needs, found.schedule, partial(_as_found, found=found, effort=effort))
            best = min(best, other, key=lambda choice: choice.arena_bytes)
        bound = max(bound, min(found.bound_bytes, best.arena_bytes))
    return replace(best, bound_bytes=bound, is_over_all_orders=True)


def _as_found(problem: Problem, found: Joint, effort: Effort) -> Placement:
    """The placement found with an order; or a new one, if more state is live in that order than the model assumed."""
    placed = {buffer: at for buffer, at in enumerate(found.offsets) if at is not None}
    offsets = SqueakyWheel.of(problem).with_others(placed, found.rest)
    return Placement.of(problem, offsets) if problem.is_met_by(offsets) else optimal(problem, effort)


def _better(needs: Footprint, best: PlacedOrder, order: Schedule, place: Allocator) -> PlacedOrder:
    """The best choice so far, or that of another order if it is smaller."""
    if order.ops == best.schedule.ops or max(needs.pressure(order.ops)) * needs.unit_bytes >= best.arena_bytes:
        return best
    return min(best, PlacedOrder.of(needs, order, place), key=lambda choice: choice.arena_bytes)


def _bound_of_fixed_part(needs: Footprint, problem: Problem, bound: int, effort: Effort) -> int:
    """A bound from the buffers whose writers and readers run in the same sequence in every order: their separations are
    the same in every order too."""
    fixed = gates(needs)
    users = [store.writers | store.readers for store in needs.stores]
    members = [index for index, ops in enumerate(users) if all(fixed >> op & 1 for op in ops)]
    return optimal(replace(problem.part(members), lower_bound_bytes=bound), effort).lower_bound_bytes


MOST_TURNS = 16_384
"""Of a run row by row: beyond that the list of steps would take more flash than anyone has, and planning minutes."""

MOST_TURNS_BY_ITSELF = 2_000
"""Rows that the schedule `auto` plans without being asked to, in a second or two. Thorough effort has no such limit."""

LEAST_LEANER, MOST_OPS_AGAIN = 2, 6_000
"""How often a model is planned again for kernels with less scratch: as many ops as this in all."""


Tell = Callable[[str, int, int], None]
"""Told what stage of planning begins, how many are done, and how many there are."""


def silently(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a model: one of WAYS. `made`: its plan, None where there is none for the `reason` given.
    `is_chosen`: it is the plan that was asked for."""

    name: str
    made: Planned | None = None
    reason: str = ""
    is_chosen: bool = False


def planned(model: Graph, options: Options, tell: Tell = silently) -> Planned:
    """The plan of a model. It has passed the validator; one that does not is a bug, and raises UnsafePlanError."""
    planner = _Planner.of(model, options, tell)
    return planner.finished(planner.front(options)[-1])


def ways(model: Graph, options: Options, tell: Tell = silently) -> tuple[Way, ...]:
    """The plan of a model beside those of the other ways to run it, in the order of WAYS."""
    planner = _Planner.of(model, options, tell)
    chosen = planner.finished(planner.front(options)[-1])
    return tuple(planner.way(name, options, chosen) for name in WAYS)


def planned_front(model: Graph, options: Options, tell: Tell = silently) -> list[Planned]:
    """Plans of which each takes less RAM than the one before: a single one, unless rows may be recomputed, or kernels
    may be slower."""
    planner = _Planner.of(model, options, tell)
    found = planner.front(options)
    ends = [found[-1]] if found[0].plan.runs_by_rows else [found[-1], found[0]]
    by_size = {made.arena_bytes: made for made in (*map(planner.leaner, ends), *found)}
    return [_safe(by_size[size]) for size in sorted(by_size, reverse=True)]


def _safe(made: Planned) -> Planned:
    checked(made.plan, "; this is a bug, please report it")
    return made


def _way_of(plan: Plan) -> str:
    return STREAMED if plan.input_rows else ROW_BY_ROW if plan.runs_by_rows else LAYER_BY_LAYER


def _first_rungs(
    model: Graph, options: Options, baseline_bytes: int, whole_bytes: int | None = None
) -> tuple[Rung, ...]:
    """The rungs of the ladder for ops that run whole. Plans what is not known yet: the best order without overlap, and
    `whole_bytes`, the arena layer by layer."""
    effort = Effort.named(options.effort, options.time_limit).for_whole_tensors
    order = BEST if options.schedule == "search" else options.schedule
    first = Rung("whole tensors", baseline_bytes)
    if whole_bytes is None:
        needs = footprint(model, options)
        whole_bytes = layer_by_layer(needs, options.schedule, effort, options.allocator).arena_bytes
    if not options.overlap:
        return first, Rung(f"{order} order", whole_bytes)
    ordered = baseline_bytes
    if order != "file":
        apart = footprint(model, replace(options, overlap=False))
        ordered = layer_by_layer(apart, order, effort.for_comparison, OPTIMAL).arena_bytes
        ordered = min(ordered, baseline_bytes) if order == BEST else ordered
    return first, Rung(f"{order} order", ordered), Rung("overlap", whole_bytes)


@dataclass(frozen=True)
class _Planner:
    """Plans one model. `options`: those of its plan layer by layer."""

    model: Graph
    options: Options
    effort: Effort
    tell: Tell

    @classmethod
    def of(cls, model: Graph, options: Options, tell: Tell) -> _Planner:
        model = as_asked(model, options.keep, options.double_buffer, options.apart)
        check_external(model, options.external)
        order = BEST if options.schedule in (AUTO, ROWS) else options.schedule
        whole = replace(options, schedule=order, input_rows=False, recompute=1.0)
        return cls(model, whole, Effort.named(options.effort, options.time_limit), tell)

    @cached_property
    def needs(self) -> Footprint:
        return footprint(self.model, self.options)

    @cached_property
    def apart(self) -> Footprint:
        """What the model needs if no two live buffers share a byte."""
        return footprint(self.model, replace(self.options, overlap=False)) if self.options.overlap else self.needs

    @cached_property
    def baseline(self) -> PlacedOrder:
        """The best without overlap, in file order."""
        return in_file_order(self.apart, self.whole_effort.for_comparison)

    @cached_property
    def whole(self) -> PlacedOrder:
        """The best layer by layer, with every op of the model."""
        schedule, allocator = self.options.schedule, self.options.allocator
        return layer_by_layer(self.needs, schedule, self.whole_effort, allocator, self.baseline)

    @cached_property
    def whole_effort(self) -> Effort:
        return self.effort.for_whole_tensors

    @cached_property
    def transforms(self) -> Collection[str]:
        """The transforms to try."""
        skip = {*self.options.skip}
        unknown = sorted(skip - TRANSFORMS.keys() - {ALL})
        if unknown:
            raise PlanError(f"transform '{one_line(unknown[0])}' is not known; known: {', '.join((ALL, *TRANSFORMS))}")
        is_none = ALL in skip or not self.options.library.addresses_views
        return () if is_none else [name for name in TRANSFORMS if name not in skip]

    @cached_property
    def narrower(self) -> Removed:
        """The model after the transforms that always help, by rows and not; the first ones."""
        names, block = [name for name in self.transforms if name in ALWAYS], self.options.library.channel_block
        return Removed(*transformed(self.model, names, block=block))

    def front(self, asked: Options) -> list[Planned]:
        """Plans that take ever less memory, the last of which was asked for."""
        if asked.input_rows:
            streamed = self.by_rows(replace(asked, schedule=ROWS))
            return streamed if asked.schedule == ROWS else self._if_it_pays(streamed, asked)
        self.tell("placing whole tensors", 0, 3)
        _ = self.baseline
        self.tell("ordering ops, and overlapping their tensors", 1, 3)
        _ = self.whole
        self.tell("leaving out ops", 2, 3)
        whole = self.layer_by_layer
        if asked.schedule == ROWS:
            return self.by_rows(asked)
        if asked.schedule != AUTO or self.no_rows or whole.arena_bytes <= self.least_by_rows:
            return [whole]
        if self.untried:
            return [replace(whole, untried=f"row by row was {self.untried}")]
        return self.by_rows(replace(asked, schedule=ROWS))

    def _if_it_pays(self, streamed: list[Planned], asked: Options) -> list[Planned]:
        """The plans with the input streamed, or a smaller one that has it whole, which asks less of the firmware."""
        if streamed[-1].arena_bytes <= self.least_by_rows:
            return streamed
        other = self.front(replace(asked, input_rows=False))[-1]
        if streamed[-1].arena_bytes <= other.arena_bytes:
            return streamed
        return [replace(other, not_streamed=self._why_not(streamed[-1].plan, other))]

    @staticmethod
    def _why_not(streamed: Plan, other: Planned) -> str:
        """Why streaming the input does not pay."""
        assert streamed.peak_op is not None
        op, at = streamed.peak_op, streamed.schedule.ops.index(streamed.peak_op)
        name = "the input" if op == PUSH else streamed.graph.nodes[op].label
        is_whole = streamed.schedule.steps[at].turn is None
        peak = f"{name} needs whole tensors" if is_whole else f"rows of several tensors wait at {name}"
        return f"does not pay: {streamed.arena_bytes:,} bytes, with the input whole {other.arena_bytes:,}; {peak}"

    @property
    def least_by_rows(self) -> int:
        """A lower bound for plans row by row: all inputs are live before the run, all outputs after it."""
        tensors, external = self.model.tensors, self.options.external
        given, made = ({*some} for some in (self.model.inputs, self.model.outputs))
        held = [t for t in tensors if t.name not in external and not t.is_constant]
        return max(sum(t.size_bytes for t in held if t.index in some) for some in (given, made))

    @cached_property
    def no_rows(self) -> str:
        """Why rows are not planned unless they are asked for; nothing, where they may be."""
        if self.options.cores > 1 or self.options.pools:
            return "not tried for several cores or pools; --schedule rows tries it"
        if self.model.variables:
            return "models with state run layer by layer"
        try:
            self._check_rows(self.options)
        except PlanError as error:
            return str(error)
        return ""

    @cached_property
    def untried(self) -> str:
        """Why row by row was not tried: too many rows to plan without being asked; empty if it was."""
        most = MOST_TURNS if self.options.effort == "thorough" else MOST_TURNS_BY_ITSELF
        tensors = self.model.tensors
        rows = sum(max((tensors[t].rows for t in op.outputs), default=1) for op in self.model.ops)
        rows = rows if rows > most else self.row_needs[2]
        return f"not tried ({rows:,} rows); --schedule rows tries it" if rows > most else ""

    @cached_property
    def row_needs(self) -> tuple[Footprint, tuple[Removal, ...], int]:
        """What the graph needs as it runs row by row, without some ops; what was done to it; and how many rows its ops
        make. Very long lines are not cut up."""
        for chosen in (FOR_ROWS, [name for name in FOR_ROWS if name not in ONLY_FOR_ROWS]):
            more = [name for name in self.transforms if name in chosen and name not in ALWAYS]
            lean, removals = transformed(self.narrower.graph, more)
            needs = footprint(lean, replace(self.options, schedule=ROWS))
            turns = sum(op.turns for op in needs.rows.ops)
            if turns <= MOST_TURNS:
                break
        return needs, self.narrower.removals + removals, turns

    def way(self, name: str, asked: Options, chosen: Planned) -> Way:
        """One of WAYS, beside what was chosen."""
        if name == _way_of(chosen.plan):
            return Way(name, chosen, is_chosen=True)
        if name == STREAMED and chosen.not_streamed:
            return Way(name, reason=chosen.not_streamed)
        reason = "" if name == LAYER_BY_LAYER or asked.schedule == ROWS else self.no_rows or self.untried
        if name == ROW_BY_ROW and asked.schedule == AUTO and not reason and not chosen.plan.input_rows:
            return Way(name, reason="needs no less RAM")
        if name == STREAMED and not reason:
            heights = [self.model.tensors[t].rows for t in self.model.inputs]
            reason = "the input is a single row" if heights == [1] else ""
        if reason:
            return Way(name, reason=reason.replace("--schedule rows", "--input-rows") if name == STREAMED else reason)
        try:
            if name == LAYER_BY_LAYER:
                return Way(name, self.finished(self.layer_by_layer))
            made = self.by_rows(replace(self.options, schedule=ROWS, input_rows=name == STREAMED))[-1]
        except PlanError as error:
            return Way(name, reason=str(error))
        if name == STREAMED and made.arena_bytes > min(chosen.arena_bytes, self.layer_by_layer.arena_bytes):
            smaller = min((chosen, self.layer_by_layer), key=lambda found: found.arena_bytes)
            return Way(name, reason=self._why_not(made.plan, smaller))
        return Way(name, self.finished(made)) if _way_of(made.plan) == name else Way(name, reason="needs no less RAM")

    def finished(self, made: Planned) -> Planned:
        """The plan with leaner kernels, and in pools, where these are asked for."""
        made = made if self.options.prefer == SPEED else self.leaner(made)
        if not self.options.pools:
            return _safe(made)
        from diagmem.planning.memory.caller import in_caller_memory  # As all that few plans need: loaded for these.

        return in_caller_memory(made, self.effort)

    def leaner(self, best: Planned) -> Planned:
        """Repeatedly runs the op that sets the peak without scratch, as long as the plan shrinks."""
        for _ in range(max(LEAST_LEANER, MOST_OPS_AGAIN // max(1, len(self.model.ops)))):
            plan, peak_op = best.plan, best.plan.peak_op
            library = plan.options.library
            if library.instructions is None or peak_op is None or not library.scratch_bytes(plan.graph.nodes[peak_op]):
                return best
            kernels = library.leaner(plan.graph.ops[peak_op].number).name
            planner = replace(self, options=replace(self.options, kernels=kernels), tell=silently)
            made = planner.front(replace(plan.options, kernels=kernels))[-1]
            if made.arena_bytes >= best.arena_bytes or self.effort.is_late:
                return min(best, made, key=lambda found: found.arena_bytes)
            best = replace(made, not_streamed=best.not_streamed)
        return best

    @cached_property
    def layer_by_layer(self) -> Planned:
        """The plan with as many ops removed as possible without growing it."""
        options, effort, whole = self.options, self.whole_effort, self.whole
        names = [name for name in self.transforms if name not in ONLY_FOR_ROWS]
        for removed in leaner_graphs(self.model, self.narrower, options, names, whole.arena_bytes, effort):
            needs = footprint(removed.graph, options)
            chosen = layer_by_layer(needs, options.schedule, effort, options.allocator)
            if chosen.arena_bytes <= whole.arena_bytes:
                chosen = self._with_other_orders(needs, chosen)
                last = (Rung("removal", chosen.arena_bytes),)
                return self._told(chosen.plan(needs), whole.arena_bytes, last, removed.removals)
        whole = self._with_other_orders(self.needs, whole)
        return self._told(whole.plan(self.needs), whole.arena_bytes, ())

    def _with_other_orders(self, needs: Footprint, chosen: PlacedOrder) -> PlacedOrder:
        """For the graph that was chosen alone: it takes longer than all that came before."""
        is_asked = self.options.schedule == BEST and self.options.allocator == BEST
        return with_other_orders(needs, chosen, self.whole_effort) if is_asked else chosen

    def by_rows(self, asked: Options) -> list[Planned]:
        """Plans that take ever less memory for ever more work: layer by layer (unless the input is streamed), row by
        row, and with rows that are recomputed. A model with state is run whole, for its state would be in two rows'
        places at once."""
        self._check_rows(asked)
        if self.model.variables:
            return [self.layer_by_layer]
        needs, removals, turns = self.row_needs
        if turns > MOST_TURNS:
            raise PlanError(f"{turns} rows are more than the {MOST_TURNS} that can run row by row: use --schedule best")
        needs = needs if needs.options == asked else footprint(needs.graph, asked)
        name = MULTI_START if asked.allocator == BEST else asked.allocator
        place = Allocator.named(name, self.effort, asked.pinned_at)
        found = [] if asked.input_rows else [self.layer_by_layer]
        is_planned = not asked.input_rows or "whole" in vars(self)
        whole_bytes = self.whole.arena_bytes if is_planned else None
        (_, whole), *others = sums_that_cost(needs.rows, asked.input_rows) or [(0, frozenset[int]())]
        summing, needs = needs, needs.with_whole(whole)
        orders = recomputing_orders(needs.rows, asked.input_rows, asked.recompute)
        step, once = "streamed input" if asked.input_rows else "rows", tuple[Rung, ...]()
        for number, order in enumerate(orders):
            self.tell("running row by row", 3 + number, 3 + len(orders))
            if found and self.effort.is_late:
                break
            used, gone = needs, removals
            chosen = row_by_row(needs, order, place, () if number else wide_orders(self.model, needs, removals))
            if not number:
                used, chosen, more = self._with_fewer_ops(needs, order, place, chosen)
                for other in (summing.with_whole(some) for least, some in others if least < chosen.arena_bytes):
                    made = row_by_row(other, recomputing_orders(other.rows, asked.input_rows, 1.0)[0], place)
                    if made.arena_bytes < chosen.arena_bytes:
                        used, chosen, more = other, made, ()
                gone += more
            again = float(order.macs / orders[0].macs) if orders[0].macs else 1.0
            if not found or chosen.arena_bytes < found[-1].arena_bytes:
                last = Rung("recomputation" if again > 1 else step, chosen.arena_bytes)
                found.append(self._told(chosen.plan(used, again), whole_bytes, (*once, last), gone))
            if again == 1:
                once = (Rung(step, min(chosen.arena_bytes, found[-1].arena_bytes)),)
        return found

    def _with_fewer_ops(
        self, needs: Footprint, order: RowSchedule, place: Allocator, best: PlacedOrder
    ) -> tuple[Footprint, PlacedOrder, tuple[Removal, ...]]:
        """The best choice row by row, or a smaller one for fewer ops, with what it is for. Several cores share rows of
        tensors, not of parts."""
        names = [name for name in self.transforms if name not in FOR_ROWS and self.options.cores == 1]
        removed = without_ops_by_rows(needs, order, names, self.effort) if names else None
        if removed is not None and not self.effort.is_late:
            lean = footprint(removed.graph, needs.options).with_whole(needs.rows.unsummed)
            chosen = row_by_row(lean, recomputing_orders(lean.rows, needs.options.input_rows, 1.0)[0], place)
            if chosen.arena_bytes < best.arena_bytes:
                return lean, chosen, removed.removals
        return needs, best, ()

    def _told(
        self, plan: Plan, whole_bytes: int | None, last: tuple[Rung, ...], removals: tuple[Removal, ...] = ()
    ) -> Planned:
        plan = with_caller_memory(plan) if has_caller_memory(plan) else plan
        if self.options.cores > 1:
            from diagmem.planning.cores.multicore import spread

            plan = spread(plan)
        first = partial(_first_rungs, self.model, self.options, self.baseline.arena_bytes, whole_bytes)
        return Planned(plan, self.baseline.plan(self.apart), removals, first, last)

    def _check_rows(self, asked: Options) -> None:
        if not asked.library.is_own or asked.external_io:
            raise PlanError("running row by row needs diagmem's own kernels and no external_io: leave out both options")
        if any(tensor.view is not None for tensor in self.model.tensors):
            raise PlanError("running row by row is planned from the original graph: this one already has ops removed")
        if asked.input_rows and self.model.variables:
            raise PlanError("a model with state runs layer by layer: its input cannot be streamed")
        names = {self.model.tensors[t].name for t in self.model.inputs}
        if asked.input_rows and (len(self.model.inputs) != 1 or asked.keep_inputs or names & {*asked.external}):
            raise PlanError("a streamed input needs a model with exactly one input, which is neither kept nor external")
