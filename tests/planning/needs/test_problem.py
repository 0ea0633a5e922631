"""Buffers, lifetimes, separations and bounds of a graph in an order."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.model.schedule import Schedule
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import footprint
from diagmem.planning.needs.problem import BEFORE_RUN, Buffer, Problem
from diagmem.planning.options import Options
from diagmem.planning.order.search import file_order
from diagmem.planning.place import optimal
from tests.networks import Net, chain, nets
from tests.planning.problems import problems
from tests.profiles import examples


def problem(graph: Graph, options: Options | None = None) -> Problem:
    needs = footprint(graph, options or Options())
    return build_problem(needs, file_order(needs))


def buffer_of(found: Problem, tensor: int) -> Buffer:
    return next(b for b in found.buffers if tensor in b.tensors)


def overlapped(found: Problem) -> set[tuple[int, int]]:
    """(output, input) pairs that may overlap, by tensor."""
    return {(found.buffers[a].tensors[0], found.buffers[b].tensors[0]) for a, b in found.overlaps}


def test_lifetimes_are_half_open() -> None:
    """Inputs live from before the run, tensors from their op to their last reader, outputs beyond the last step."""
    graph = chain(2, 2)
    found = problem(graph)
    lives = [(buffer_of(found, t).first_step, buffer_of(found, t).end_step) for t in (0, 2, 4)]
    assert lives == [(BEFORE_RUN, 1), (0, 2), (1, 3)]


def test_kept_inputs_live_to_the_end_and_never_overlap() -> None:
    """keep_inputs."""
    graph = chain(2, 2)
    assert (2, 0) in overlapped(problem(graph))
    found = problem(graph, Options(keep_inputs=True))
    assert buffer_of(found, 0).end_step == 3
    assert (2, 0) not in overlapped(found)


def test_only_dying_inputs_overlap() -> None:
    """A tensor that is read again later may not be overwritten by an earlier reader, but by its last one."""
    net = Net()
    x = net.relu(net.input(1, 3, 3, 2))
    y = net.relu(x)
    z = net.add(x, y)
    pairs = overlapped(problem(net.graph(z)))
    assert (y, x) not in pairs
    assert {(z, x), (z, y)} <= pairs


def test_a_graph_output_that_the_last_op_reads_is_not_overwritten() -> None:
    """It dies after the run, not with its last reader."""
    net = Net()
    x = net.relu(net.input(1, 3, 3, 2))
    y = net.relu(x)
    assert (y, x) not in overlapped(problem(net.graph(x, y)))


def test_several_outputs_each_overlap_the_input() -> None:
    """SPLIT: each output has its own separation from the dying input, and outputs stay apart."""
    net = Net()
    x = net.relu(net.input(1, 2, 2, 4))
    left, right = net.split(x, 2)
    found = problem(net.graph(left, right))
    assert {(left, x), (right, x)} <= overlapped(found)
    assert (left, right) not in overlapped(found)


def test_unused_outputs_live_during_their_op() -> None:
    """They are written, so they need a place then."""
    net = Net()
    left, right = net.split(net.input(1, 2, 2, 4), 2)
    unused = buffer_of(problem(net.graph(left)), right)
    assert (unused.first_step, unused.end_step) == (0, 1)


def test_unread_inputs_need_a_place_before_the_run() -> None:
    """The caller fills all inputs at once, so they lie apart; the first op may overwrite what nobody reads."""
    net = Net()
    unread, x = net.input(8), net.input(4)
    found = problem(net.graph(net.relu(x)))
    assert buffer_of(found, unread).end_step == 0
    assert found.lower_bound_bytes == 12


def test_variables_live_for_ever() -> None:
    """They hold state between runs."""
    net = Net()
    state = net.variable(3)
    y = net.opaque(net.input(3), state)
    found = problem(net.graph(net.relu(y)))
    assert (buffer_of(found, state).first_step, buffer_of(found, state).end_step) == (BEFORE_RUN, 3)


def test_unknown_ops_never_overlap() -> None:
    """An op that no kind knows, or whose order the library does not know."""
    net = Net()
    y = net.opaque(net.relu(net.input(6)))
    assert overlapped(problem(net.graph(y))) == {(1, 0)}


def test_scratch_lives_for_one_step() -> None:
    """Kernel scratch is a buffer without tensors."""
    net = Net()
    y = net.mean(net.relu(net.input(1, 4, 4, 3)))
    found = problem(net.graph(net.relu(y)), Options("tflm-reference", 16))
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


@pytest.mark.parametrize(("first", "end", "meets"), [(0, 2, False), (0, 3, True), (4, 6, True), (5, 6, False)])
def test_lives_are_half_open(first: int, end: int, meets: bool) -> None:
    """What ends at a step is gone when another begins there."""
    one, other = Buffer("one", 1, 2, 5), Buffer("other", 1, first, end)
    assert one.lives_with(other) == other.lives_with(one) == meets


@pytest.mark.parametrize("at", [0, 1, 2, 4])
def test_what_never_lives_meets_nobody(at: int) -> None:
    """A buffer that is there at no step may lie anywhere, also while others live."""
    found = Problem((Buffer("one", 3, 0, 4), Buffer("other", 3, 1, 3), Buffer("none", 3, at, at)), {})
    assert [[other for other, *_ in found.neighbours(n)] for n in range(3)] == [[1], [0], []]
    assert found.is_met_by((0, 3, 1))


def test_unless_more_is_said_any_place_will_do() -> None:
    """A buffer is aligned to a byte, an arena is so many bytes, and nothing is known of what it takes."""
    found = Problem((Buffer("one", 3, 0, 1),), {})
    assert found.is_met_by((5,))
    assert found.arena_bytes((5,)) == 8
    assert found.lower_bound_bytes == 0


def steps_of(buffer: Buffer) -> set[int]:
    return set(range(buffer.first_step, buffer.end_step))


def restricted(found: Problem, a: int, b: int) -> tuple[int, int] | None:
    """How far b must start above a, and a above b, in whole units; None where they never meet, or may lie anywhere."""
    below, above = found.buffers[a], found.buffers[b]
    if a == b or not steps_of(below) & steps_of(above):
        return None
    unit = found.unit_bytes
    up = math.ceil(found.overlaps.get((a, b), below.size_bytes) / unit) * unit
    down = math.ceil(found.overlaps.get((b, a), above.size_bytes) / unit) * unit
    return (up, down) if up + down > 0 else None


@given(problems(), st.randoms(use_true_random=False))
@examples(150)
def test_neighbours_are_those_who_meet(found: Problem, chance: random.Random) -> None:
    """Those that live at some step together, and how far apart they start; offsets are right where all pairs are."""
    numbers = range(len(found.buffers))
    for a in numbers:
        wanted = [(b, *limits) for b in numbers if (limits := restricted(found, a, b)) is not None]
        assert list(found.neighbours(a)) == wanted
    offsets = [chance.randint(-1, 9) for _ in numbers]
    is_right = all(at >= 0 and at % found.buffers[b].align_bytes == 0 for b, at in enumerate(offsets))
    for a, b in product(numbers, numbers):
        limits, rise = restricted(found, a, b), offsets[b] - offsets[a]
        is_right = is_right and (limits is None or rise >= limits[0] or -rise >= limits[1])
    assert found.is_met_by(offsets) == is_right


@given(problems(), st.randoms(use_true_random=False))
@examples(100)
def test_a_part_is_what_its_buffers_are_to_each_other(found: Problem, chance: random.Random) -> None:
    """Numbered anew, in their old sequence; the bound of the whole stays."""
    bounded = replace(found, lower_bound_bytes=3)
    kept = [b for b in range(len(found.buffers)) if chance.random() < 0.6]
    part = bounded.part(reversed(kept))
    assert part.lower_bound_bytes == 3
    assert part.buffers == tuple(found.buffers[b] for b in kept)
    for a, old in enumerate(kept):
        near = [(kept.index(b), *limits) for b, *limits in found.neighbours(old) if b in kept]
        assert list(part.neighbours(a)) == near


@pytest.mark.parametrize(("ends", "arena"), [((), 0), ((1,), 8), ((8,), 8), ((9,), 16), ((17, 3), 24)])
def test_arenas_are_whole_units(ends: tuple[int, ...], arena: int) -> None:
    """Up to the highest end."""
    found = Problem(tuple(Buffer("b", 1, 0, 1) for _ in ends), {}, unit_bytes=8)
    assert found.arena_bytes([end - 1 for end in ends]) == arena


@pytest.mark.parametrize(("offsets", "is_met"), [((0, 8), True), ((8, 0), True), ((0, 12), False), ((-8, 0), False)])
def test_places_are_aligned_and_not_below_the_start(offsets: tuple[int, int], is_met: bool) -> None:
    """Buffers that never meet: nothing else is asked of them."""
    found = Problem((Buffer("a", 4, 0, 1, 8), Buffer("b", 4, 1, 2, 8)), {}, unit_bytes=8)
    assert found.is_met_by(offsets) == is_met


@given(nets())
@examples(60)
def test_no_placement_beats_the_lower_bound(graph: Graph) -> None:
    """The pressure of every step is below what an exact allocator needs, at any alignment."""
    for options in (Options(), Options(align=8), Options("tflm-reference", 16, keep_inputs=True)):
        found = problem(graph, options)
        unbounded = Problem(found.buffers, found.overlaps, found.unit_bytes)
        assert found.lower_bound_bytes <= optimal(unbounded).arena_bytes


@pytest.mark.parametrize("ops", [(0,), (0, 0), (1, 0), (0, 1, 2)])
def test_a_schedule_that_is_no_order_is_refused(ops: tuple[int, ...]) -> None:
    """Each op once, after those it depends on."""
    needs = footprint(chain(2, 2), Options())
    with pytest.raises(PlanError, match="schedule 'given'"):
        build_problem(needs, Schedule.whole(ops))
