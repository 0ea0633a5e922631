"""From a graph to its plan: orders, problems, placements, and the choice among them.

What several plans of one model share (footprints, the plan without overlap, the plan layer by layer) is worked out
once, and what each step on the way is worth is written down as it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.planning.choices import (
    Choice,
    in_file_order,
    layer_by_layer,
    row_by_row,
    with_other_orders,
)
from diagmem.planning.memory.caller import has_caller_memory, with_caller_memory
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.options import BEST, ROWS, SPEED, Options
from diagmem.planning.order.rows import RowSchedule, recomputing_orders
from diagmem.planning.place import MULTI_START, Allocator
from diagmem.planning.place.effort import Effort
from diagmem.planning.plan import Plan, checked
from diagmem.planning.plan import Planned as Planned
from diagmem.planning.plan import Rung as Rung
from diagmem.planning.removal import Removed, leaner_graphs, wide_orders, without_ops_by_rows
from diagmem.transforms import ALWAYS, FOR_ROWS, ONLY_FOR_ROWS, TRANSFORMS, Removal, transformed
from diagmem.transforms.asked import as_asked, check_external

MOST_TURNS = 16_384
"""Of a run row by row: beyond that the list of steps would take more flash than anyone has, and planning minutes."""

LEAST_LEANER, MOST_OPS_AGAIN = 2, 6_000
"""How often a model is planned again for kernels with less scratch: as many ops as this in all."""


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
    if not options.pools:
        return found
    from diagmem.planning.memory.caller import in_memories  # As all that few plans need: loaded for these.

    return in_memories(found, effort)


def _as_asked(model: Graph, options: Options) -> Graph:
    model = as_asked(model, options.keep, options.double_buffer)
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
    def baseline(self) -> Choice:
        """The best without overlap, in file order."""
        self.tell("placing whole tensors", 0, self.stages)
        return in_file_order(self.apart, self.whole_effort)

    @cached_property
    def whole(self) -> Choice:
        """The best layer by layer, with every op of the model."""
        baseline = self.baseline
        self.tell("ordering ops, and overlapping their tensors", 1, self.stages)
        return layer_by_layer(self.needs, self.order, self.whole_effort, self.options.allocator, baseline)

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
    def narrower(self) -> Removed:
        """The model after the transforms that always help, by rows and not; the first ones."""
        names, block = [name for name in self.transforms if name in ALWAYS], self.options.library.channel_block
        return Removed(*transformed(self.model, names, block=block))

    @cached_property
    def ladder(self) -> tuple[Rung, ...]:
        """What is gained with every op run whole."""
        rungs = [Rung("whole tensors", self.baseline.arena_bytes)]
        order = BEST if self.whole.is_over_all_orders else self.order
        if self.options.overlap:
            ordered = layer_by_layer(self.apart, order, self.whole_effort, BEST, self.baseline).arena_bytes
            rungs += [Rung(f"{order} order", ordered), Rung("overlap", self.whole.arena_bytes)]
        else:
            rungs.append(Rung(f"{order} order", self.whole.arena_bytes))
        return tuple(rungs)

    def layer_by_layer(self) -> Planned:
        """With as few ops as do not make the plan larger."""
        options, whole = self.options, self.whole
        self.tell("leaving out ops", 2, self.stages)
        names = [name for name in self.transforms if name not in ONLY_FOR_ROWS]
        for removed in leaner_graphs(self.model, self.narrower, options, names, whole.arena_bytes, self.whole_effort):
            needs = footprint(removed.graph, options)
            chosen = layer_by_layer(needs, self.order, self.whole_effort, options.allocator)
            if chosen.arena_bytes <= whole.arena_bytes:
                chosen = self._with_other_orders(needs, chosen)
                rungs = (*self.ladder, Rung("removal", chosen.arena_bytes))
                return self._told(chosen.plan(needs), rungs, removed.removals)
        whole = self._with_other_orders(self.needs, whole)
        rungs = (*self.ladder[:-1], self.ladder[-1]._replace(arena_bytes=whole.arena_bytes))
        return self._told(whole.plan(self.needs), rungs)

    def _with_other_orders(self, needs: Footprint, chosen: Choice) -> Choice:
        """For the graph that was chosen alone: it takes longer than all that came before."""
        is_asked = self.order == BEST and self.options.allocator == BEST
        return with_other_orders(needs, chosen, self.whole_effort) if is_asked else chosen

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
        place = Allocator.named(MULTI_START if allocator == BEST else allocator, self.effort)
        found = [] if input_rows else [self.layer_by_layer()]
        orders = recomputing_orders(needs.rows, input_rows, self.options.recompute)
        rungs = self.ladder
        for number, order in enumerate(orders):
            self.tell("running row by row", self.stages - 1 + number, self.stages - 1 + len(orders))
            if found and self.effort.is_late:
                break
            used, gone = needs, removals
            chosen = row_by_row(needs, order, place, () if number else wide_orders(self.model, needs, removals))
            if not number:
                used, chosen, more = self._with_fewer_ops(needs, order, place, chosen)
                gone += more
            again = float(order.macs / orders[0].macs) if orders[0].macs else 1.0
            if not found or chosen.arena_bytes < found[-1].arena_bytes:
                step = "recomputation" if again > 1 else "streamed input" if input_rows else "rows"
                last = Rung(step, chosen.arena_bytes)
                found.append(self._told(chosen.plan(used, again), (*rungs, last), gone))
            if again == 1:
                once = min(chosen.arena_bytes, found[-1].arena_bytes)
                rungs = (*self.ladder, Rung("streamed input" if input_rows else "rows", once))
        return found

    def _with_fewer_ops(
        self, needs: Footprint, order: RowSchedule, place: Allocator, best: Choice
    ) -> tuple[Footprint, Choice, tuple[Removal, ...]]:
        """The best choice row by row, or a smaller one for fewer ops, with what it is for. Several cores share rows of
        tensors, not of parts."""
        names = [name for name in self.transforms if name not in FOR_ROWS and self.options.cores == 1]
        removed = without_ops_by_rows(needs, order, names, self.effort) if names else None
        if removed is not None and not self.effort.is_late:
            lean = footprint(removed.graph, self.options)
            chosen = row_by_row(lean, recomputing_orders(lean.rows, self.options.input_rows, 1.0)[0], place)
            if chosen.arena_bytes < best.arena_bytes:
                return lean, chosen, removed.removals
        return needs, best, ()

    def _told(self, plan: Plan, ladder: tuple[Rung, ...], removals: tuple[Removal, ...] = ()) -> Planned:
        plan = with_caller_memory(plan) if has_caller_memory(plan) else plan
        advice = "; this is a bug, please report it"
        if self.options.cores > 1:
            from diagmem.planning.cores.multicore import checked_multicore

            plan = checked_multicore(plan, advice)
        else:
            plan = checked(plan, advice)
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
            more = [name for name in self.transforms if name in chosen and name not in ALWAYS]
            lean, removals = transformed(self.narrower.graph, more)
            needs = footprint(lean, self.options)
            turns = sum(op.turns for op in needs.rows.ops)
            if turns <= MOST_TURNS:
                return needs, self.narrower.removals + removals
        raise PlanError(
            f"{turns} rows are too many to run one by one, {MOST_TURNS} can be: plan it without the schedule 'rows'"
        )
