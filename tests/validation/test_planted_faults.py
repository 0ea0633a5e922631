"""Faults planted in the planner: the validator alone finds each of them.

A fault is a change to one name of the planner. Small networks are planned with it while the pipeline's own check is
switched off; a plan that comes out other than it should must be refused at least once. What the validator itself builds
on (the graph, `accesses`, what kinds say about their kernels) is left alone: no second opinion on that is to be had.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from diagmem.model.errors import DiagmemError
from diagmem.model.schedule import PUSH, Schedule
from diagmem.planning import plan as plans
from diagmem.planning.place.fit import ints
from diagmem.planning.plan import Plan
from tests.validation.beds import BEDS

Change = Callable[[Any], Any]
"""From what the planner has to what stands there instead."""


def then(after: Callable[..., Any]) -> Change:
    """The same, but something is done to the result; `after` gets it, and the arguments."""

    def change(original: Any) -> Any:
        return lambda *args, **named: after(original(*args, **named), *args, **named)

    return change


def then_each(after: Callable[[Any], Any]) -> Change:
    """The same for each of many results; None: it is left out."""
    return then(lambda found, *_: [made for made in map(after, found) if made is not None])


def asking(before: Callable[..., tuple[Any, ...]]) -> Change:
    """The same, but asked something else."""

    def change(original: Any) -> Any:
        return lambda *args, **named: original(*before(*args), **named)

    return change


def _placing(change: Callable[[int], int]) -> tuple[str | Change, ...]:
    """Other offsets wherever first fit has found some, with compiled loops and without. No fault gets into a compiled
    loop, so it is planted in what calls it."""
    after = then(lambda offsets, *_, **__: offsets and tuple(map(change, offsets)))
    return "planning.place.local_search:SqueakyWheel.first_fit", after


def property_then(after: Callable[[Any, Any], Any]) -> Change:
    """Likewise for a property that is worked out once."""

    def change(original: Any) -> Any:
        made = cached_property(lambda self: after(original.func(self), self))
        made.__set_name__(object, original.attrname)
        return made

    return change


def without_last_row(need: Any, *_: Any) -> Any:
    end = tuple(max(f, e - 1) for f, e in zip(need.first, need.end, strict=True))
    return replace(need, end=end, apart=tuple(a[: max(0, len(a) - 1)] for a in need.apart))


def without_first_row(need: Any, *_: Any) -> Any:
    first = tuple(min(f + 1, e) for f, e in zip(need.first, need.end, strict=True))
    return replace(need, first=first, apart=tuple(a[1:] for a in need.apart))


def nearer_by(bytes_less: int) -> Change:
    def nearer(need: Any, *_: Any) -> Any:
        return replace(need, apart=tuple(tuple(a - bytes_less for a in row) for row in need.apart))

    return then(nearer)


def needs_only_the_first_input(need: Any, turns: Any, tensor: Any) -> Any:
    is_first = tensor.index == turns.node.input(0).index
    nothing = (0,) * len(need.first)
    return need if is_first else replace(need, first=nothing, end=nothing, apart=((),) * len(nothing))


def with_ops(change_op: Callable[[Any], Any]) -> Change:
    return then(lambda rows, *_: replace(rows, ops=tuple(change_op(op) for op in rows.ops)))


def steps_changed(change_steps: Callable[[list[Any]], list[Any]]) -> Change:
    """Another order of steps."""

    def changed(made: Any, *_: Any) -> Any:
        schedule = getattr(made, "schedule", made)
        steps = Schedule(tuple(change_steps(list(schedule.steps))), schedule.name)
        return steps if schedule is made else replace(made, schedule=steps)

    return then(changed)


def with_dependent_steps_swapped(steps: list[Any]) -> list[Any]:
    at = next(n for n in range(len(steps) - 1, 0, -1) if steps[n].op != steps[n - 1].op and steps[n - 1].op != PUSH)
    return [*steps[: at - 1], steps[at], steps[at - 1], *steps[at + 1 :]]


def every_store(change_store: Callable[[Any], Any]) -> Change:
    return then(lambda needs, *_, **__: replace(needs, stores=tuple(map(change_store, needs.stores))))


def each_life(after: Callable[[range], range]) -> Change:
    """Other steps for each life of a row, or for each accumulator."""

    def changed(found: Any, *_: Any) -> Any:
        return {
            key: [after(life) for life in lives] if isinstance(lives, list) else after(lives)
            for key, lives in found.items()
        }

    return then(changed)


def never_again(original: Any) -> Any:
    """Only the first life of a row counts."""
    made = original.__func__
    return classmethod(lambda cls, buffer, lives: made(cls, buffer, [lives[0], range(lives[-1].stop, lives[-1].stop)]))


def with_all_overlaps(problem: Any, needs: Any, *_: Any) -> Any:
    """Also of inputs that are read again later."""
    ops = range(len(needs.after))
    separations = {pair: apart for op in ops for pair, apart in needs.separations(op).items()}
    return replace(problem, overlaps={**separations, **problem.overlaps})


def buffers_changed(change_buffer: Callable[[Any], Any]) -> Change:
    return then_each(change_buffer)


def state_dies(buffer: Any) -> Any:
    return replace(buffer, end_step=2) if buffer.scratch_of == PUSH else buffer


def late_window(window: Any, *_: Any) -> Any:
    """It grows by a row only when the next one is made."""
    size = int(window.high[0]) if len(window.high) else 0
    return replace(window, high=(window.high - size).clip(0))


def shifted_views(views: Iterator[Any], *_: Any) -> Iterator[Any]:
    """All parts but the first an element too low."""
    for number, view in enumerate(views):
        yield replace(view, offset_elems=view.offset_elems - 1) if number else view


FAULTS: dict[str, tuple[Any, ...]] = {
    # What turns need.
    "a turn forgets the last row of its window": ("kernels.rows:Turns.need", then(without_last_row)),
    "a turn forgets the first row of its window": ("kernels.rows:Turns.need", then(without_first_row)),
    "a turn forgets all inputs but one": ("kernels.rows:Turns.need", then(needs_only_the_first_input)),
    "a row may lie one byte nearer to what it is made of": ("kernels.rows:Turns.need", nearer_by(1)),
    "a row may lie anywhere over what it is made of": ("kernels.rows:Turns.need", nearer_by(1 << 20)),
    "an element is taken as written one step late": (
        "kernels.rows:Turns.written_before",
        property_then(lambda found, turns: (found - turns.node.output.dtype.size_bytes).clip(0)),
    ),
    "sums are taken as half as large": (
        "kernels.rows:row_graph",
        with_ops(lambda op: replace(op, accumulator_bytes=op.accumulator_bytes // 2)),
    ),
    "the last turn of all sums is forgotten": (
        "kernels.rows:row_graph",
        with_ops(lambda op: replace(op, turns=op.turns - 1) if op.accumulator_bytes else op),
    ),
    # When rows live.
    "rows die a step early": (
        "planning.needs.build_problem:row_lives",
        each_life(lambda life: life[:-1] or life),
    ),
    "rows are born a step late": (
        "planning.needs.build_problem:row_lives",
        each_life(lambda life: life[1:] or life),
    ),
    "the last row that a step reads does not live for it": (
        "planning.needs.build_problem:rows_read",
        then(lambda found, *_: found[:-1]),
    ),
    "sums live for one step": (
        "planning.needs.build_problem:sum_lives",
        each_life(lambda life: life[:1]),
    ),
    "sums live from the last turn on": (
        "planning.needs.build_problem:sum_lives",
        each_life(lambda life: life[-1:]),
    ),
    # The problem built of rows.
    "the state is not placed": (
        "planning.needs.build_problem:LiveWindows.held_by_ops",
        buffers_changed(lambda buffer: None if buffer.scratch_of == PUSH else buffer),
    ),
    "the state dies at once": ("planning.needs.build_problem:LiveWindows.held_by_ops", buffers_changed(state_dies)),
    "sums and state are not aligned": (
        "planning.needs.build_problem:LiveWindows.held_by_ops",
        buffers_changed(lambda buffer: replace(buffer, align_bytes=1)),
    ),
    "rows that live on are taken to die": (
        *("planning.needs.build_problem:Built._dies", then(lambda *_: True)),
        *("planning.needs.build_problem:Built._beside", then(lambda *_: [-(1 << 30)])),
    ),
    "a row that is recomputed is not held again": ("planning.needs.build_problem:LiveWindow.of_lives", never_again),
    "windows grow a row late": ("planning.needs.build_problem:LiveWindows._moving", then(late_window)),
    "rows are taken as a byte shorter": (
        "planning.needs.build_problem:LiveWindows._table",
        then_each(
            lambda window: replace(window, buffer=replace(window.buffer, size_bytes=window.buffer.size_bytes - 1))
        ),
    ),
    # The problem built of whole tensors.
    "an input that is read again later is overlapped": (
        "planning.needs.build_problem:build_problem",
        then(with_all_overlaps),
    ),
    "pairs may start a unit nearer": (
        "planning.needs.problem:Problem.near",
        property_then(
            lambda near, problem: near._replace(
                below=near.below - problem.unit_bytes, above=near.above - problem.unit_bytes
            )
        ),
    ),
    "what ends in the step in which another begins is clear of it": (
        "planning.needs.problem:Problem._pairs",
        then(
            lambda found, problem: _but(found, lambda a, b: _meet_in_one_step(problem.buffers[a], problem.buffers[b]))
        ),
    ),
    "each third pair is forgotten": (
        "planning.needs.problem:Problem._pairs",
        then(lambda found, *_: tuple(np.delete(side, np.s_[::3]) for side in found)),
    ),
    # What a graph needs.
    "separations are a byte too small": (
        "kernels._library:Library.separation",
        then(lambda apart, *_: None if apart is None else apart - 1),
    ),
    "separations of convolutions are an element too small": (
        "ops.kind:OpKind.separation",
        then(lambda apart, kind, node, *_: apart - node.output.dtype.size_bytes if "CONV" in node.op.kind else apart),
    ),
    "element-wise ops are taken for reshapes": (
        "planning.needs.footprint:is_alias",
        then(lambda found, node: found or node.op.kind == "RELU"),
    ),
    "graph outputs are not kept": (
        "planning.needs.footprint:footprint",
        every_store(lambda store: replace(store, is_kept=False)),
    ),
    "--keep-inputs is ignored": (
        "planning.needs.footprint:footprint",
        asking(lambda graph, options, *rest: (graph, replace(options, keep_inputs=False), *rest)),
    ),
    "--align is ignored": (
        "planning.needs.footprint:footprint",
        asking(lambda graph, options, *rest: (graph, replace(options, align=1), *rest)),
    ),
    "the caller is taken to hold inputs and outputs": (
        "planning.needs.footprint:footprint",
        asking(lambda graph, options, *rest: (graph, replace(options, external_io=True), *rest)),
    ),
    "scratch is forgotten": ("planning.needs.footprint:_scratch_stores", then(lambda *_: [])),
    "scratch is half as large": (
        "planning.needs.footprint:_scratch_stores",
        then_each(lambda store: replace(store, size_bytes=store.size_bytes // 2)),
    ),
    "stores are a byte too small": (
        "planning.needs.footprint:footprint",
        every_store(lambda store: replace(store, size_bytes=store.size_bytes - 1)),
    ),
    "the last reader of a store is forgotten": (
        "planning.needs.footprint:footprint",
        every_store(lambda store: replace(store, readers=frozenset(sorted(store.readers)[:-1]))),
    ),
    "only the last writer of a store counts": (
        "planning.needs.footprint:footprint",
        every_store(lambda store: replace(store, writers=frozenset(sorted(store.writers)[-1:]))),
    ),
    "an op waits for one of its inputs only": (
        "planning.needs.footprint:predecessors",
        then_each(lambda before: before[:1]),
    ),
    # Orders.
    "two steps that depend on each other are swapped": (
        "planning.order.rows:RowOrders.best",
        steps_changed(with_dependent_steps_swapped),
    ),
    "the last step is left out": (
        "planning.order.rows:RowOrders.best",
        steps_changed(lambda steps: steps[:-1]),
    ),
    "an op runs twice": (
        "planning.order.rows:RowOrders.best",
        steps_changed(lambda steps: [*steps, steps[-1]]),
    ),
    "a row counts as made before it is": (
        "planning.order.demand:flat_rows",
        then(lambda flat, *_: _asked_for_less(flat)),
    ),
    "more is recomputed than is allowed": (
        "planning.order.rows:recomputing_orders",
        asking(lambda rows, input_rows, most: (rows, input_rows, 4 * most)),
    ),
    # Allocators.
    "a ring has a slot too few": (
        "planning.place.rings:_Met.period",
        then(lambda period, *_: max(1, period - 1)),
    ),
    "slots of a ring are a byte too short": (
        "planning.place.rings:_pitch",
        then(lambda pitch, *_: pitch - 1),
    ),
    "a ring lies anywhere": ("planning.place.rings:_Met.lowest_base", then(lambda *_: 0)),
    "rows are put anywhere": _placing(lambda at: at // 2),
    "the allocator does not align": _placing(lambda at: at + (at > 0)),
    # Transforms.
    "parts lie an element too low in the whole": ("transforms.in_place:_places", then(shifted_views)),
    "parts lie in the wrong order in the whole": (
        "transforms.in_place:_places",
        then(lambda views, *_: reversed(list(views))),
    ),
    "kernels are taken to address any view": ("transforms._editing:_can_address", then(lambda *_: True)),
}
"""What is wrong -> names in the planner (module:attribute, below diagmem), each followed by how it is changed."""


def _but(pairs: tuple[Any, Any], goes: Callable[[int, int], bool]) -> tuple[Any, Any]:
    stays = [not goes(a, b) for a, b in zip(*pairs, strict=True)]
    return pairs[0][stays], pairs[1][stays]


def _meet_in_one_step(a: Any, b: Any) -> bool:
    return bool(a.first_step >= b.end_step - 1 or b.first_step >= a.end_step - 1)


def _asked_for_less(flat: Any, *_: Any) -> Any:
    """Each third turn of a need asks for a row less."""
    ends = (max(f, e - (n % 3 == 2)) for n, (f, e) in enumerate(zip(flat.first, flat.end, strict=True)))
    flat.end = ints(ends)
    return flat


def planted(patch: pytest.MonkeyPatch, fault: str) -> None:
    """Puts the fault wherever the name is known, but not into the validator."""
    for target, change in zip(FAULTS[fault][::2], FAULTS[fault][1::2], strict=True):
        replaced(patch, target, change)


def place_of(target: str) -> tuple[Any, str]:
    """What holds the function that a target like `planning.bounds:Bounds.of` names, and its name there."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(f"diagmem.{module}")
    for step in owners:
        owner = getattr(owner, step)
    return owner, name


def replaced(patch: pytest.MonkeyPatch, target: str, change: Change) -> None:
    owner, name = place_of(target)
    original = vars(owner)[name]
    changed = change(original)
    patch.setattr(owner, name, changed)
    for known, other in list(sys.modules.items()):
        if known.startswith("diagmem.") and not known.startswith("diagmem.validation") and not isinstance(owner, type):
            for alias in [alias for alias, value in vars(other).items() if value is original]:
                patch.setattr(other, alias, changed)


@cache
def sound(bed: str) -> Plan:
    return BEDS[bed].plan()


def essence(plan: Plan) -> tuple[Any, ...]:
    return plan.graph, plan.schedule.steps, plan.row_offsets, plan.scratch, plan.arena_bytes


def plans_with(fault: str) -> Iterator[tuple[str, Plan]]:
    """The plans that come out other than they should, unchecked."""
    for name, bed in BEDS.items():
        expected = essence(sound(name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plans, "findings_of", lambda plan: [])
            planted(patch, fault)
            try:
                plan = bed.plan()
            except (DiagmemError, ArithmeticError, LookupError, TypeError, ValueError, StopIteration):
                # Many a fault makes planning fail on some network; what counts is a plan that is shipped.
                continue
        if essence(plan) != expected:
            yield name, plan


@pytest.mark.parametrize("bed", BEDS)
def test_without_a_fault_there_is_no_finding(bed: str) -> None:
    assert BEDS[bed].findings(sound(bed)) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    """The plan is another one on some network, and the validator refuses it there."""
    assert any(BEDS[name].findings(plan) for name, plan in plans_with(fault))


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 30
