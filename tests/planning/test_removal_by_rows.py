"""Parts of a tensor that are made and read row by row where they lie: safe, exact, and taken where it is worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.backends.json import from_json, to_json
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels.rows import lines_up
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import How, Multicore, Phases, Split
from diagmem.planning.needs.build_problem import LiveWindows
from diagmem.planning.needs.footprint import Store, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import Options
from diagmem.planning.order.rows import RowSchedule, recomputing_orders
from diagmem.planning.place import greedy
from diagmem.planning.place.fit import Placement
from diagmem.planning.plan import Plan, checked, findings_of
from diagmem.planning.planner import PlacedOrder
from diagmem.transforms import FOR_ROWS, TRANSFORMS, transformed
from diagmem.validation.findings import Fault
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, with_weights
from tests.row_networks import joined_net

STATE_BYTES = 64
"""That a run with a streamed input remembers, at the most; orders do not count it."""


def quickly(problem: Problem) -> Placement:
    return Placement.of(problem, greedy(problem))


def all_removed(graph: Graph, input_rows: bool) -> tuple[Plan, RowSchedule, Problem]:
    """A plan row by row, whether or not it is worth it, without any join or cut that can go."""
    lean, _ = transformed(graph, (*FOR_ROWS, "merge-duplicates", "remove-slices", "remove-concat"))
    needs = footprint(lean, Options(schedule="rows", input_rows=input_rows))
    order = recomputing_orders(needs.rows, input_rows, 1.0)[0]
    choice = PlacedOrder.of(needs, order.schedule, quickly)
    return choice.plan(needs), order, choice.problem


def joined_rows(plan: Plan) -> list[int]:
    """Tensors with parts whose rows lie anywhere."""
    return [t for t, how in plan.storage.items() if t in plan.graph.families and how.form != "linear"]


def test_random_networks_are_safe_and_counted_exactly() -> None:
    """Whatever is joined or cut: the validator finds nothing, and the order's peak is what the problem has."""
    found = 0
    for seed in range(24):
        plan, order, problem = all_removed(joined_net(seed), input_rows=bool(seed % 2))
        checked(plan)
        assert order.peak_bytes <= problem.lower_bound_bytes <= order.peak_bytes + STATE_BYTES
        found += bool(joined_rows(plan))
    assert found > 12


@pytest.mark.parametrize(("seed", "input_rows"), [(0, False), (4, True), (7, True)])
def test_every_row_is_computed_where_it_is_part_of_another(seed: int, input_rows: bool) -> None:
    """Bit for bit, each row of each part as it is made."""
    compiler("gcc")
    graph = joined_net(seed)
    plan = checked(all_removed(graph, input_rows)[0])
    assert joined_rows(plan)
    assert run_on_host(Program.running(plan, graph), sample_inputs(graph, 2)).failure is None


def test_a_part_that_dies_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validator refuses plans in which a row goes when the first of its parts is made."""

    exact = LiveWindows._lives_of_parts

    def short(self: LiveWindows, store: Store) -> dict[int, list[range]]:
        return {row: [life[:1] for life in lives] for row, lives in exact(self, store).items()}

    monkeypatch.setattr(LiveWindows, "_lives_of_parts", short)
    plans = (all_removed(joined_net(seed), input_rows=True)[0] for seed in range(12))
    assert sum(bool(findings_of(plan)) for plan in plans) >= 6


def dense_net() -> Graph:
    """Each layer reads all that were made before it, joined."""
    b = Builder("dense", DType.INT8)
    made = [b.conv(b.input(1, 24, 24, 3), 16, (3, 3), 2)]
    for _ in range(4):
        made.append(b.conv(b.concat(*made) if len(made) > 1 else made[0], 8, (3, 3)))
    return with_weights(b.graph(b.fully_connected(b.mean(b.concat(*made), True), 4)))


@pytest.mark.parametrize("input_rows", [False, True])
def test_what_is_worth_it_is_removed(input_rows: bool) -> None:
    """A densely joined network takes less without some of its joins; its plan is the same from JSON; it computes what
    it should."""
    compiler("gcc")
    graph = dense_net()
    lean = pipeline.plan(graph, schedule="rows", input_rows=input_rows)
    full = pipeline.plan(graph, schedule="rows", input_rows=input_rows, skip=TRANSFORMS.keys() - {*FOR_ROWS})
    assert lean.plan.runs_by_rows
    assert lean.arena_bytes < 0.96 * full.arena_bytes
    assert [removal.transform for removal in lean.removals] == ["remove-concat"]
    program = Program.of(lean)
    assert emit(Program.running(from_json(to_json(lean), graph), graph)) == emit(program)
    assert run_on_host(program, sample_inputs(graph, 2)).failure is None


def test_which_rows_line_up() -> None:
    """Those of channels and columns; not those of some rows, nor of another shape."""
    b = Builder("views", DType.INT8)
    x = b.conv(b.input(1, 8, 6, 4), 4, (3, 3))
    wide = b.concat(b.conv(x, 4, (1, 1)), b.relu(x))
    graph = with_weights(b.graph(b.mean(b.conv(wide, 3, (3, 3)), True)))
    lean, _ = transformed(graph, ("remove-concat",))
    views = [t for t in lean.tensors if t.view is not None]
    assert views
    assert all(lines_up(t, lean.tensors[t.base]) for t in views)
    base = lean.tensors[views[0].base]
    assert not lines_up(views[0], lean.tensors[graph.inputs[0]])
    assert lines_up(base, base)


def test_cores_share_no_rows_of_parts() -> None:
    """A plan that says they do is refused: where such rows lie is more than phases are checked for."""
    plan = checked(all_removed(joined_net(0), input_rows=False)[0])
    options = replace(plan.options, cores=2)
    for node in plan.graph.nodes:
        turns = tuple(step.turn for step in plan.schedule.steps if step.op == node.op.index and step.turn is not None)
        is_part = any(t is not None and t.view is not None for t in (*node.inputs, *node.outputs))
        for cut in options.library.row_cuts(node) if turns else ():
            alone = Split(node.op.index, cut, (Phases(cut.units, cut.units, How.ALONE),), turns)
            shared = replace(plan, options=options, multicore=Multicore(2, (alone,)))
            found = {finding.fault for finding in findings_of(shared)}
            assert found == ({Fault.SHARED_UNKNOWN} if is_part else set())
