"""Buffers, lifetimes, separations and bounds of a graph in an order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.allocators import optimal
from diagmem.planning.footprint import footprint
from diagmem.planning.options import Options
from diagmem.planning.posing import problem
from diagmem.planning.problem import BEFORE_RUN, Buffer, Problem
from diagmem.planning.schedulers import file_order
from tests.networks import Net, chain, nets


def posed(graph: Graph, options: Options | None = None) -> Problem:
    needs = footprint(graph, options or Options())
    return problem(needs, file_order(needs))


def buffer_of(found: Problem, tensor: int) -> Buffer:
    return next(b for b in found.buffers if tensor in b.tensors)


def overlapped(found: Problem) -> set[tuple[int, int]]:
    """(output, input) pairs that may overlap, by tensor."""
    return {(found.buffers[a].tensors[0], found.buffers[b].tensors[0]) for a, b in found.overlaps}


def test_lifetimes_are_half_open() -> None:
    """Inputs live from before the run, tensors from their op to their last reader, outputs beyond the last step."""
    graph = chain(2, 2)
    found = posed(graph)
    lives = [(buffer_of(found, t).first_step, buffer_of(found, t).end_step) for t in (0, 2, 4)]
    assert lives == [(BEFORE_RUN, 1), (0, 2), (1, 3)]


def test_kept_inputs_live_to_the_end_and_never_overlap() -> None:
    """keep_inputs."""
    graph = chain(2, 2)
    assert (2, 0) in overlapped(posed(graph))
    found = posed(graph, Options(keep_inputs=True))
    assert buffer_of(found, 0).end_step == 3
    assert (2, 0) not in overlapped(found)


def test_only_dying_inputs_overlap() -> None:
    """A tensor that is read again later may not be overwritten by an earlier reader, but by its last one."""
    net = Net()
    x = net.relu(net.input(1, 3, 3, 2))
    y = net.relu(x)
    z = net.add(x, y)
    pairs = overlapped(posed(net.graph(z)))
    assert (y, x) not in pairs
    assert {(z, x), (z, y)} <= pairs


def test_a_graph_output_that_the_last_op_reads_is_not_overwritten() -> None:
    """It dies after the run, not with its last reader."""
    net = Net()
    x = net.relu(net.input(1, 3, 3, 2))
    y = net.relu(x)
    assert (y, x) not in overlapped(posed(net.graph(x, y)))


def test_several_outputs_each_overlap_the_input() -> None:
    """SPLIT: each output has its own separation from the dying input, and outputs stay apart."""
    net = Net()
    x = net.relu(net.input(1, 2, 2, 4))
    left, right = net.split(x, 2)
    found = posed(net.graph(left, right))
    assert {(left, x), (right, x)} <= overlapped(found)
    assert (left, right) not in overlapped(found)


def test_unused_outputs_live_during_their_op() -> None:
    """They are written, so they need a place then."""
    net = Net()
    left, right = net.split(net.input(1, 2, 2, 4), 2)
    unused = buffer_of(posed(net.graph(left)), right)
    assert (unused.first_step, unused.end_step) == (0, 1)


def test_unread_inputs_need_a_place_before_the_run() -> None:
    """The caller fills all inputs at once, so they lie apart; the first op may overwrite what nobody reads."""
    net = Net()
    unread, x = net.input(8), net.input(4)
    found = posed(net.graph(net.relu(x)))
    assert buffer_of(found, unread).end_step == 0
    assert found.lower_bound_bytes == 12


def test_variables_live_for_ever() -> None:
    """They hold state between runs."""
    net = Net()
    state = net.variable(3)
    y = net.opaque(net.input(3), state)
    found = posed(net.graph(net.relu(y)))
    assert (buffer_of(found, state).first_step, buffer_of(found, state).end_step) == (BEFORE_RUN, 3)


def test_unknown_ops_never_overlap() -> None:
    """An op that no kind knows, or whose order the library does not know."""
    net = Net()
    y = net.opaque(net.relu(net.input(6)))
    assert overlapped(posed(net.graph(y))) == {(1, 0)}


def test_scratch_lives_for_one_step() -> None:
    """Kernel scratch is a buffer without tensors."""
    net = Net()
    y = net.mean(net.relu(net.input(1, 4, 4, 3)))
    found = posed(net.graph(net.relu(y)), Options("tflm-reference", 16))
    (scratch,) = [b for b in found.buffers if not b.tensors]
    assert (scratch.first_step, scratch.end_step, scratch.scratch_of) == (1, 2, 1)


def test_separations_are_rounded_up_to_units() -> None:
    """With 16-byte alignment a separation of 17 means 32."""
    found = Problem((Buffer("out", 64, 0, 1, 16), Buffer("in", 64, 0, 1, 16)), {(0, 1): 17}, unit_bytes=16)
    assert found.separation(0, 1) == 32
    assert found.separation(1, 0) == 64
    assert found.is_met_by((0, 32))
    assert not found.is_met_by((0, 16))


def test_a_pair_without_limits_is_no_pair() -> None:
    """A separation of minus the input's size leaves all placements open."""
    found = Problem((Buffer("out", 4, 0, 1), Buffer("in", 3, 0, 1)), {(0, 1): -3})
    assert [found.neighbours(buffer) for buffer in (0, 1)] == [(), ()]


@given(nets())
@settings(max_examples=60)
def test_no_placement_beats_the_lower_bound(graph: Graph) -> None:
    """The pressure of every step is below what an exact allocator needs, at any alignment."""
    for options in (Options(), Options(align=8), Options("tflm-reference", 16, keep_inputs=True)):
        found = posed(graph, options)
        unbounded = Problem(found.buffers, found.overlaps, found.unit_bytes)
        assert found.lower_bound_bytes <= optimal(unbounded).arena_bytes


@pytest.mark.parametrize("ops", [(0,), (0, 0), (1, 0), (0, 1, 2)])
def test_a_schedule_that_is_no_order_is_refused(ops: tuple[int, ...]) -> None:
    """Each op once, after those it depends on."""
    needs = footprint(chain(2, 2), Options())
    with pytest.raises(PlanError, match="schedule 'given'"):
        problem(needs, Schedule.whole(ops))
