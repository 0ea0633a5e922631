"""Orders of single rows: interleaved better than on demand, and split into pieces as the paper does it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.frontends import zoo
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels import library
from diagmem.kernels.rows import RowGraph, row_graph
from diagmem.model.graph import DType, Graph, Padding
from diagmem.model.schedule import PUSH
from diagmem.ops.convolution.conv_2d import Conv2D
from diagmem.ops.moving.concatenation import Split
from diagmem.planning.needs.build_problem import RowStep, row_lives, shared_bytes, sum_lives
from diagmem.planning.options import Options
from diagmem.planning.order.demand import Demand
from diagmem.planning.order.rows import RowOrders, Segment, interleaved, recomputing_orders
from diagmem.planning.planner import planned
from diagmem.reports.paper.document import splitting
from tests.networks import Net
from tests.profiles import examples
from tests.row_networks import Images, has_image_input, image_net

SEEDS = st.integers(0, 400)


def rows_of_graph(graph: Graph) -> RowGraph:
    return row_graph(graph, library("diagmem"))


def peak(rows: RowGraph, turns: tuple[RowStep, ...]) -> int:
    """The most bytes that live at a step, counted forwards, life by life."""
    change = [0] * (len(turns) + 1)
    lives = row_lives(rows, turns)
    for (tensor, _), life in ((row, life) for row, own in lives.items() for life in own):
        change[life.start] += rows.row_bytes[tensor]
        if tensor not in rows.graph.outputs:
            change[life.stop] -= rows.row_bytes[tensor]
    for op, life in sum_lives(rows, turns).items():
        change[life.start] += rows.ops[op].accumulator_bytes
        change[life.stop] -= rows.ops[op].accumulator_bytes
    live = itertools.accumulate(change[:-1])
    ends = {(t, row, life[-1]) for (t, row), own in lives.items() for life in own if t not in rows.graph.outputs}
    needed = [
        now - shared_bytes(rows, step, {(t, row) for t, row, end in ends if end == at})
        for at, (step, now) in enumerate(zip(turns, live, strict=True))
    ]
    return max(needed, default=0)


def check_dependencies(rows: RowGraph, turns: tuple[RowStep, ...], input_rows: bool) -> None:
    """Every row is there when it is read."""
    given_rows = () if input_rows else rows.graph.inputs
    there = {(tensor, row) for tensor in given_rows for row in range(rows.rows[tensor])}
    for index, turn in turns:
        if index == PUSH:
            there.add((rows.graph.inputs[0], turn))
            continue
        op = rows.ops[index]
        assert {(n.tensor, row) for n in op.needs for row in range(n.first[turn], n.end[turn])} <= there
        made = op.makes_at(turn)
        there |= {(t, row) for t in op.makes for row in (range(rows.rows[t]) if made is None else made)}


@examples(60)
@given(SEEDS, st.booleans())
def test_interleaving_keeps_what_matters(seed: int, input_rows: bool) -> None:
    """The same turns, each op's in the same order, everything made before it is read; and never a higher peak, which is
    the one that is told."""
    graph = image_net(seed)
    input_rows = input_rows and has_image_input(graph)
    rows = rows_of_graph(graph)
    before = RowOrders(rows, input_rows).best()
    told, after = interleaved(rows, before.steps, frozenset(graph.outputs))
    assert Counter(after) == Counter(before.steps)
    for op in {op for op, _ in after}:
        assert [t for o, t in after if o == op] == [t for o, t in before.steps if o == op]
    check_dependencies(rows, tuple(after), input_rows)
    assert told == peak(rows, tuple(after)) <= peak(rows, before.steps) <= before.peak_bytes


@pytest.mark.parametrize(("name", "most"), [("vww_96_int8", 9504), ("mobilenet_v1_0.25_128_int8", 14208)])
def test_turns_move_across_the_borders_of_segments(name: str, most: int) -> None:
    """What an order on demand holds at its peak can partly wait."""
    orders = RowOrders(rows_of_graph(zoo.build(name)), input_rows=True)
    before = orders.best()
    after = orders.improved(before)
    assert after.peak_bytes <= most < before.peak_bytes
    assert after.plain == before.schedule
    assert after.macs == before.macs


def inverted_bottleneck() -> Graph:
    """A wide tensor between narrow ones, and a window over it."""
    b = Builder("bottleneck", DType.INT8)
    x = b.conv(b.input(1, 32, 8, 3), 4, 3)
    x = b.conv(b.depthwise(b.conv(x, 48, 1), 3), 4, 1)
    return b.graph(b.conv(x, 4, 3))


@pytest.mark.parametrize("piece", [1, 2, 4, 8, 32])
def test_pieces_recompute_their_margins(piece: int) -> None:
    """The rows of a piece come at once; at each border between pieces two rows of the wide tensor are recomputed."""
    rows = rows_of_graph(inverted_bottleneck())
    wide = rows.graph.ops[1].outputs[0]
    made = RowOrders(rows, input_rows=True, again=4).best(frozenset({(wide, piece)}))
    assert len([op for op, _ in made.steps if op == 1]) == 32 + 2 * (32 // piece - 1)
    check_dependencies(rows, made.steps, input_rows=True)
    if made.segments == ((0, 5),):
        narrow = [at for at, (op, _) in enumerate(made.steps) if op == 3]
        for begin in range(0, 32, piece):
            between = made.steps[narrow[begin] : narrow[min(begin + piece, 32) - 1]]
            assert {op for op, _ in between} <= {PUSH, 0, 1, 2, 3}


def check_turns(rows: RowGraph, turns: tuple[RowStep, ...]) -> None:
    """No op leaves out a turn: none comes before the one that it follows, and the last one comes."""
    done = Counter[int]()
    for op, turn in turns:
        assert turn <= done[op]
        done[op] = max(done[op], turn + 1)
    assert all(done[op.index] == op.turns for op in rows.ops)


@examples(25)
@given(SEEDS, st.booleans(), st.sampled_from([1, 2, 4]), st.integers(0, 9))
def test_dropped_tensors_are_made_in_full(seed: int, input_rows: bool, piece: int, which: int) -> None:
    """Whatever tensor is dropped, or all that can be: every turn runs, after the one before it, and finds its rows."""
    rows = rows_of_graph(image_net(seed))
    input_rows = input_rows and has_image_input(rows.graph)
    once = Segment(rows, 0, len(rows.ops), input_rows)
    can_be = [t for op in rows.ops if op.makes_rows for t in op.makes if droppable(rows, t)]
    dropped = frozenset((t, piece) for t in (can_be[which : which + 1] or can_be))
    told, steps = Demand(rows, input_rows, again=1000.0).best(replace(once, to_drop=dropped, again=1000.0))
    check_turns(rows, steps)
    check_dependencies(rows, steps, input_rows)
    assert told == peak(rows, steps)


def droppable(rows: RowGraph, tensor: int) -> bool:
    readers = rows.graph.consumers.get(tensor, ())
    return len(readers) == 1 and tensor not in rows.graph.outputs and rows.ops[readers[0]].makes_rows


@pytest.mark.parametrize(
    ("rows", "channels", "kernels", "strides", "is_worth_it"),
    [
        (13, (4, 2), (2, 3), (1, 2), False),
        (14, (4, 8, 8), (3, 3, 3), (1, 1, 2), True),
        (16, (4, 8, 4), (4, 3, 3), (1, 2, 2), False),
    ],
)
def test_rows_that_no_window_reaches_are_made(
    rows: int, channels: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...], is_worth_it: bool
) -> None:
    """A stride leaves the last row over; where the tensor is dropped and recomputed, that row has to be made too."""
    b = Images("left over", DType.INT8)
    x = b.input(1, rows, 1, 1)
    for count, kernel, stride in zip(channels, kernels, strides, strict=True):
        x = b.any_conv(x, count, Conv2D(Padding.VALID, stride, 1), (kernel, 1))
    found = planned(b.graph(x), Options(schedule="rows", input_rows=True, recompute=2.0))
    assert (found.plan.recompute > 1) == is_worth_it


def test_the_papers_splitting() -> None:
    """Its example: two operations, the second one's rows in four pieces; as much is computed twice as it comes to."""
    graph = zoo.build("mobilenet_v1_0.25_128_int8")
    rows = rows_of_graph(graph)
    between = max((t for t in graph.tensors if not t.is_constant), key=lambda t: t.size_bytes)
    (reader,) = graph.consumers[between.index]
    piece = rows.ops[reader].turns // splitting().pieces
    segment = (graph.producer[between.index], reader + 1)
    made = RowOrders(rows, again=4).best(frozenset({(between.index, piece)}))
    turns = [turn for op, turn in made.steps if op == segment[0]]
    assert any(begin <= segment[0] and segment[1] <= end for begin, end in made.segments)
    again = len(turns) - rows.rows[between.index]
    assert again * between.elems // rows.rows[between.index] == splitting().repeated_elems


def test_the_curve_has_no_point_that_another_one_beats() -> None:
    """Ever less memory for ever more work, within the limit."""
    b = Builder("bottlenecks", DType.INT8)
    x = b.input(1, 32, 4, 2)
    for channels in (2, 3, 4):
        x = b.conv(b.depthwise(b.conv(x, 16, 1), 3), channels, 1)
    found = recomputing_orders(rows_of_graph(b.graph(b.mean(x, keep_dims=True))), input_rows=True, most=3.0)
    assert len(found) > 2
    assert all(a.peak_bytes > b.peak_bytes and a.macs < b.macs for a, b in itertools.pairwise(found))
    assert found[-1].macs <= 3 * found[0].macs


@pytest.mark.parametrize("sizes", [(1, 6), (6, 1), (2, 1, 4)])
def test_parts_of_different_heights_are_there_at_once(sizes: tuple[int, ...]) -> None:
    """What one op makes whole is ready to its last row, whichever part comes first; a row that never came was asked
    for again and again."""
    net = Net()
    given = net.constant(len(sizes), values=sizes), net.constant(1, values=[1])
    first = net.op("SPLIT_V", Split(len(sizes)), net.input(1, sum(sizes), 2, 4), *given)
    ends = [net.conv(net.conv(first + part, 5, 1), 3, 3) for part in range(len(sizes))]
    found = planned(net.graph(*ends), Options(schedule="rows", recompute=2.0))
    assert found.arena_bytes <= planned(net.graph(*ends), Options()).arena_bytes
