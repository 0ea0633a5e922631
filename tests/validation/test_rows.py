"""The validator on plans that run row by row: it agrees with shadow memory on every one, sound or not."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem import pipeline
from diagmem.model.graph import DType, Graph
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.ops.elementwise.unary import Unary
from diagmem.planning.plan import Plan
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.validation import Fault, Rules
from tests.networks import Net, nets
from tests.profiles import examples
from tests.row_networks import has_image_input, image_net
from tests.validation.plans import Laid, mixed


@given(nets(one_output_each=True), st.randoms(use_true_random=False))
@examples(60)
def test_it_agrees_with_shadow_memory_on_mixed_plans(graph: Graph, chance: random.Random) -> None:
    """Whole ops and turns in any order, rows recomputed, streamed input, views, rows anywhere: with everything apart
    nothing is lost; with something moved, bytes are lost if and only if the validator says so."""
    laid = mixed(transformed(graph, TRANSFORMS)[0] if chance.random() < 0.5 else graph, chance)
    assert laid.faults() == set()
    assert not laid.loses_bytes()
    for _ in range(6):
        moved = laid.onto(chance) if chance.random() < 0.7 else laid.moved(chance, range(-12, 13))
        assert moved.loses_bytes() == bool(moved.faults())


def folded(chance: random.Random) -> Graph:
    """Images of which the same bytes are also images of other heights; joins, means and windows of them."""
    net = Net(chance.choice([DType.INT8, DType.INT16]))
    x = net.conv(net.input(1, *chance.choice([(4, 2, 3), (2, 4, 2), (6, 2, 1), (3, 4, 2)])), chance.randint(1, 4))
    for _ in range(2):
        _, height, width, depth = net.tensors[x].shape
        rows = chance.choice([rows for rows in range(1, height * width + 1) if height * width % rows == 0])
        x = net.reshape(x, 1, rows, height * width // rows, depth)
        y = net.op("LOGISTIC", Unary(), x)
        y = chance.choice([y, net.add(x, y), net.concat(x, y)])
        x = chance.choice([y, net.mean(y), net.depthwise(y, 2)])
    return net.graph(x)


@pytest.mark.parametrize("seed", range(16))
def test_it_agrees_with_shadow_memory_on_reshaped_images(seed: int) -> None:
    """Where a reshape stays in place, rows of one height are made of rows of another."""
    chance = random.Random(seed)
    graph = folded(chance)
    laid = mixed(transformed(graph, TRANSFORMS)[0] if chance.random() < 0.5 else graph, chance)
    assert laid.faults() == set()
    for _ in range(6):
        moved = laid.onto(chance)
        assert moved.loses_bytes() == bool(moved.faults())


@pytest.mark.parametrize("part", [(0, 5, 0, 1), (1, 3, 0, 2), (3, 2, 1, 1)])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_part_of_an_image_is_there_from_the_turns_that_make_it(part: tuple[int, ...], is_whole: bool) -> None:
    """An image that is made row by row, and of which a part is read where it lies: whatever row of the input is put
    where one of its rows lies, before that row is made or after, is judged as shadow memory has it."""
    first, count, channel, channels = part
    net = Net()
    x = net.input(1, 5, 2, 2)
    y = net.conv(x, 2)
    begin, size = net.constant(4, values=[0, first, 0, channel]), net.constant(4, values=[1, count, 2, channels])
    seen = net.op("SLICE", None, y, begin, size)
    graph, _ = transformed(net.graph(net.relu(seen)), ["remove-slices"])
    turns = [Step(PUSH, row) for row in range(5)], [Step(0, row) for row in range(5)]
    after = [Step(1, None)] if is_whole else [Step(1, row) for row in range(count)]
    steps = (*turns[0][:2], *(step for pair in zip(turns[1], turns[0][2:], strict=False) for step in pair))
    schedule = Schedule((*steps, *turns[1][3:], *after))
    held = [graph.tensors[t] for t in (x, y, graph.outputs[0])]
    rows = {t.index: tuple(64 + 64 * t.index + t.row_bytes * row for row in range(t.rows)) for t in held}
    laid = Laid(graph, schedule, rows, {PUSH: 4096})
    assert laid.faults() == set()
    verdicts = set()
    for mine, row, theirs in product((x, y), range(5), range(5)):
        places = list(rows[mine])
        places[row] = rows[x + y - mine][theirs] + (row + theirs) % 3 - 1
        moved = replace(laid, rows={**rows, mine: tuple(places)})
        found = moved.faults()
        if Fault.NOT_IN_ONE_PIECE not in found:
            assert moved.loses_bytes() == bool(found), (mine, row, theirs)
            verdicts.add(bool(found))
    assert verdicts == {True, False}


@pytest.mark.parametrize("seed", range(8))
def test_it_agrees_with_shadow_memory_on_tight_plans(seed: int) -> None:
    """Plans of the planner, in which rows share addresses as far as they may, streamed or not, once and with rows made
    again: moved by a few bytes, rows are lost if and only if the validator says so."""
    chance = random.Random(seed)
    graph = image_net(seed)
    verdicts = set()
    for plan in pipeline.pareto(graph, allocator="greedy", input_rows=has_image_input(graph) and seed % 2 == 0)[-2:]:
        laid = Laid.of(plan.plan)
        assert not laid.loses_bytes()
        for _ in range(10):
            moved = laid.moved(chance, [-2, -1, 1, 2, -8, 8])
            verdicts.add(moved.loses_bytes())
            assert moved.loses_bytes() == bool(moved.faults())
    assert True in verdicts


def tight() -> Plan:
    net = Net()
    x = net.conv(net.input(1, 12, 6, 4), 4)
    plan = diagmem.plan(net.graph(net.conv(net.relu(net.conv(x, 4)), 2)), schedule="rows", skip="all").plan
    assert plan.runs_by_rows
    return plan


def test_a_row_moved_onto_its_neighbour_is_caught() -> None:
    """Every row moved down by one byte: it is found, unless shadow memory shows that nothing alive was there."""
    laid = Laid.of(tight())
    caught = 0
    for tensor, offsets in laid.rows.items():
        for row, offset in enumerate(offsets):
            if offset and tensor not in laid.whole:
                rows = (*offsets[:row], offset - 1, *offsets[row + 1 :])
                moved = replace(laid, rows={**laid.rows, tensor: rows})
                assert moved.loses_bytes() == bool(moved.faults())
                caught += bool(moved.faults())
    assert caught > 10


def test_random_moves_never_pass_unseen() -> None:
    """A row moved anywhere in the arena is found if and only if shadow memory shows a loss, and most are."""
    plan = tight()
    laid, chance = Laid.of(plan), random.Random(1)
    caught = 0
    for _ in range(60):
        tensor = chance.choice(sorted(laid.rows.keys() - laid.whole))
        offsets = list(laid.rows[tensor])
        end = plan.arena_bytes - plan.graph.tensors[tensor].row_bytes
        offsets[chance.randrange(len(offsets))] = chance.randrange(end)
        moved = replace(laid, rows={**laid.rows, tensor: tuple(offsets)})
        assert moved.loses_bytes() == bool(moved.faults())
        caught += bool(moved.faults())
    assert caught > 30


@pytest.mark.parametrize("whole", [0, 1, 2])
def test_what_one_op_takes_whole_lies_in_one_piece(whole: int) -> None:
    """Whichever op it is, with all others row by row: what it reads and writes, and nothing else."""
    net = Net()
    graph = net.graph(net.relu(net.relu(net.relu(net.input(1, 3, 2, 2)))))
    steps = [Step(op, turn) for op in range(3) for turn in ((None,) if op == whole else range(3))]
    for tensor in range(1, 3):
        rows = {t: tuple(64 * t + 4 * row for row in range(3)) for t in range(4)}
        rows[tensor] = tuple(at + 8 * row for row, at in enumerate(rows[tensor]))
        found = Laid(graph, Schedule(tuple(steps)), rows, {}).faults()
        assert found == ({Fault.NOT_IN_ONE_PIECE} if tensor in (whole, whole + 1) else set())


def test_sums_that_are_overwritten_are_found() -> None:
    net = Net()
    graph = net.graph(net.mean(net.conv(net.conv(net.input(1, 8, 8, 4), 4), 4)))
    laid = Laid.of(diagmem.plan(graph, schedule="rows", skip="all").plan)
    (op,) = laid.scratch
    written = laid.rows[graph.ops[0].outputs[0]][5]
    assert laid.findings() == []
    found = replace(laid, scratch={op: written // 4 * 4}).findings()
    assert {finding.fault for finding in found} == {Fault.OVERWRITTEN}
    assert all("sums of op 2 't6' (MEAN)" in (finding.tensor, finding.writer) for finding in found)


def test_a_row_may_lie_over_rows_that_die_while_it_is_made() -> None:
    """As far as the kernel allows, and not a byte further: the validator looks into the step."""
    net = Net()
    graph = net.graph(net.mean(net.relu(net.depthwise(net.conv(net.input(1, 12, 6, 4), 4)))))
    plan = diagmem.plan(graph, schedule="rows", skip="all").plan
    relu, end = graph.ops[2], plan.arena_bytes + 2
    laid = Laid.of(plan)
    # All others out of the way.
    away = {t: tuple(at + end for at in rows) for t, rows in laid.rows.items()}
    laid = replace(laid, scratch={op: at + end // 4 * 4 for op, at in laid.scratch.items()})
    source = tuple(at + 1 for at in laid.rows[relu.inputs[0]])
    for moved, found in ((0, set()), (-1, set()), (1, {Fault.OVERWRITTEN})):
        target = tuple(at + moved for at in source)
        rows = {**away, relu.inputs[0]: source, relu.outputs[0]: target}
        assert replace(laid, rows=rows).faults() == found


def test_the_state_of_a_waiting_run_is_kept() -> None:
    """What a run remembers while it waits for the caller's rows lies in the arena; nothing may be written there."""
    net = Net()
    graph = net.graph(net.conv(net.conv(net.input(1, 12, 6, 4), 4), 4))
    plan = diagmem.plan(graph, schedule="rows", input_rows=True, skip="all").plan
    laid = Laid.of(plan)
    written = laid.rows[plan.graph.ops[0].outputs[0]][5]
    assert laid.findings() == []
    assert replace(laid, scratch={PUSH: written}).faults() == {Fault.RESULT_LOST}
    assert replace(laid, scratch={}).faults() == {Fault.NO_PLACE}
    (buffer,) = (b for b in plan.buffers if b.scratch_of == PUSH)
    assert (buffer.size_bytes, laid.scratch[PUSH] % 2) == (6, 0)


def test_no_more_is_recomputed_than_is_allowed() -> None:
    net = Net()
    x = net.input(1, 30, 4, 2)
    for _ in range(2):
        x = net.conv(net.depthwise(net.conv(x, 16, kernel=1)), 2, kernel=1)
    asked = {"schedule": "rows", "allocator": "greedy", "input_rows": True, "recompute": 2}
    plan = diagmem.plan(net.graph(net.mean(x)), **asked).plan
    laid = Laid.of(plan)
    assert plan.recompute > 1

    def found(recompute: float) -> set[Fault]:
        return {finding.fault for finding in laid.findings(rules=Rules(recompute=recompute))}

    assert found(1) == found(1 + (plan.recompute - 1) / 2) == {Fault.TOO_MUCH_WORK}
    assert found(plan.recompute) == found(round(plan.recompute, 4)) == set()
