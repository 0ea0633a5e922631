"""Row by row: what rows need, orders that keep few of them, and plans that are safe."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.backends.json import to_json
from diagmem.frontends.zoo.networks import Builder
from diagmem.kernels import library
from diagmem.kernels.rows import row_graph, sums_of
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph, Padding
from diagmem.model.schedule import PUSH
from diagmem.ops import kinds
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.planning.order.rows import recomputing_orders
from diagmem.planning.plan import Plan
from diagmem.transforms import transformed
from tests.networks import Net, nets
from tests.profiles import examples
from tests.row_networks import Images, with_values
from tests.validation.plans import Laid

DIAGMEM = library("diagmem")


@contextmanager
def within_seconds(seconds: int) -> Iterator[None]:
    """Ends what would never end."""

    def late(signum: int, frame: object) -> None:
        raise TimeoutError(f"after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def streamed(graph: Graph, input_rows: bool = False) -> Plan:
    """No op is removed."""
    return diagmem.plan(graph, schedule="rows", input_rows=input_rows, skip="all").plan


def test_a_row_of_a_convolution_needs_the_rows_under_its_window() -> None:
    net = Net()
    graph = net.graph(net.conv(net.input(1, 9, 4, 2), 3, kernel=3, stride=2))
    (need,) = row_graph(graph, DIAGMEM).ops[0].needs
    assert list(zip(need.first, need.end, strict=True)) == [(0, 2), (1, 4), (3, 6), (5, 8), (7, 9)]


def test_what_each_kind_of_op_needs() -> None:
    """Element-wise ops need their own row, a join both inputs' rows, a mean one row a turn, a reshape everything."""
    net = Net()
    x = net.input(1, 5, 4, 2)
    y = net.relu(x)
    joined = net.concat(x, y)
    graph = net.graph(net.reshape(net.mean(joined), 1, 4), net.reshape(joined, 1, 80))
    relu, concat, mean, small, large = row_graph(graph, DIAGMEM).ops
    assert relu.needs[0].first == tuple(range(5))
    assert [need.tensor for need in concat.needs] == [x, y]
    assert (mean.turns, mean.accumulator_bytes) == (5, 16)
    assert [mean.makes_at(turn) for turn in (0, 4)] == [range(0), range(1)]
    assert small.is_whole
    assert large.is_whole
    assert large.needs[0].end == (5,)


@pytest.mark.parametrize("input_rows", [False, True])
def test_known_figures(input_rows: bool) -> None:
    """Bytes of the arena, row by row, with the input in it or handed over row by row: never more than these."""
    most = {"vww_96_int8": (27750, 9922), "kws_dscnn_int8": (3866, 3576)}
    for name, limits in most.items():
        plan = diagmem.plan(f"zoo:{name}", schedule="rows", input_rows=input_rows).plan
        assert plan.arena_bytes <= limits[input_rows]
        assert plan.input_rows == input_rows


def test_never_more_than_layer_by_layer() -> None:
    """Where rows bring nothing, the plan is the one that runs layer by layer."""
    plan = diagmem.plan("zoo:autoencoder_int8", schedule="rows").plan
    assert not plan.runs_by_rows
    assert plan.arena_bytes == diagmem.plan("zoo:autoencoder_int8").arena_bytes


@examples(60)
@given(nets(), st.booleans())
def test_random_graphs_are_planned_safely(graph: Graph, input_rows: bool) -> None:
    """Each op does each of its rows once, or all in one step; no row is lost on shadow memory, and no more than the
    layer-by-layer arena is taken."""
    if input_rows and (len(graph.inputs) != 1 or graph.tensors[graph.inputs[0]].rows == 1):
        input_rows = False
    plan = streamed(graph, input_rows)
    if not plan.runs_by_rows:
        return
    assert not Laid.of(plan).loses_bytes()
    ops = row_graph(plan.graph, DIAGMEM).ops
    made = {op.index: [s.turn for s in plan.schedule.steps if s.op == op.index] for op in ops}
    assert all(made[op.index] == [None] or Counter(made[op.index]) == Counter(range(op.turns)) for op in ops)
    assert sums_of(plan.graph, DIAGMEM) == {op.index for op in ops if op.accumulator_bytes}
    if not input_rows:
        assert plan.arena_bytes <= diagmem.plan(graph, skip="all").arena_bytes


def tight() -> Plan:
    net = Net()
    x = net.conv(net.input(1, 12, 6, 4), 4)
    plan = streamed(net.graph(net.conv(net.relu(net.conv(x, 4)), 2)))
    assert plan.runs_by_rows
    return plan


def test_rows_that_nobody_reads_are_taken_and_made_all_the_same() -> None:
    """A window that leaves rows over: the caller still hands over all rows, and each op still makes all of its own."""
    net = Net()
    x = net.op("MAX_POOL_2D", Pool2D(Padding.VALID, 2, 2, 2, 2), net.conv(net.input(1, 11, 6, 4), 4))
    y = net.op("MAX_POOL_2D", Pool2D(Padding.VALID, 3, 3, 1, 1), net.relu(x))
    plan = streamed(net.graph(y), input_rows=True)
    assert plan.schedule.ops.count(PUSH) == 11
    assert [plan.schedule.ops.count(op) for op in range(4)] == [11, 5, 5, 2]


def bottlenecks() -> Graph:
    """Wide tensors between narrow ones: to recompute their rows costs little and saves much."""
    net = Net()
    x = net.input(1, 30, 4, 2)
    for _ in range(2):
        x = net.conv(net.depthwise(net.conv(x, 16, kernel=1)), 2, kernel=1)
    return net.graph(net.mean(x))


def test_recomputation_trades_work_for_memory() -> None:
    """Rows are recomputed only as far as is allowed, and then much less is held."""
    once, twice = (
        diagmem.plan(bottlenecks(), schedule="rows", allocator="greedy", input_rows=True, recompute=most).plan
        for most in (1.0, 2.0)
    )
    assert once.recompute == 1
    assert 1 < twice.recompute <= 2
    assert twice.arena_bytes < 0.8 * once.arena_bytes
    rows = row_graph(twice.graph, DIAGMEM)
    assert rows.macs(twice.schedule.ops) == pytest.approx(twice.recompute * rows.macs(once.schedule.ops))


@examples(25)
@given(nets(), st.booleans())
def test_random_graphs_are_recomputed_safely(graph: Graph, input_rows: bool) -> None:
    """Each plan of the curve takes less than the one before, for no less work, and loses no byte on shadow memory."""
    if input_rows and (len(graph.inputs) != 1 or graph.tensors[graph.inputs[0]].rows == 1):
        input_rows = False
    curve = pipeline.pareto(graph, input_rows=input_rows)
    assert all(a.arena_bytes > b.arena_bytes for a, b in itertools.pairwise(curve))
    assert all(a.plan.recompute <= b.plan.recompute for a, b in itertools.pairwise(curve))
    assert curve[-1].plan.recompute <= pipeline.MOST_RECOMPUTE
    assert not any(Laid.of(made.plan).loses_bytes() for made in curve)


def test_work_is_counted_without_rounding() -> None:
    """Turns of an op are alike, though its multiply-accumulates may not be a multiple of them: what is recomputed is
    allowed or not by the same count as the validator's."""
    b = Images("upwards", DType.INT8)
    graph = b.graph(b.transposed(b.input(1, 5, 4, 2), (1, 13, 10, 3), 2, 3))
    rows = row_graph(graph, library("diagmem"))
    once, turns = graph.nodes[0], rows.ops[0].turns
    macs = kinds()[once.op.kind].macs(once)
    assert macs % turns != 0
    assert rows.macs([0] * turns) == macs
    assert rows.macs([PUSH, 0, 0]) == Fraction(2 * macs, turns)


def test_the_ladder_tells_what_rows_are_worth() -> None:
    made = diagmem.plan(bottlenecks(), schedule="rows", allocator="greedy", input_rows=True, recompute=2)
    rungs = made.ladder
    assert [rung.step for rung in rungs][2:] == ["overlap", "streamed input", "recomputation"]
    assert rungs[-1].arena_bytes == made.arena_bytes
    assert [rung.arena_bytes for rung in rungs] == sorted((rung.arena_bytes for rung in rungs), reverse=True)


def test_removal_helps_rows_too() -> None:
    """A padding is folded into the convolution behind it, so that it has no rows of its own."""
    b = Builder("padded", DType.INT8)
    graph = b.graph(b.conv(b.pad(b.conv(b.input(1, 16, 8, 4), 8, 3), 1, 1), 8, 3, padding=Padding.VALID))
    plan = diagmem.plan(graph, schedule="rows")
    assert [removal.transform for removal in plan.removals] == ["fold-pad"]
    assert plan.arena_bytes < diagmem.plan(graph, schedule="rows", skip="all").arena_bytes


def test_a_streamed_input_is_handed_over_when_it_is_needed() -> None:
    """The caller's rows come in order, each before the first step that reads it, not all at the start."""
    net = Net()
    plan = streamed(net.graph(net.conv(net.conv(net.input(1, 12, 6, 4), 4), 4)), input_rows=True)
    pushes = [(at, step.turn) for at, step in enumerate(plan.schedule.steps) if step.op == PUSH]
    assert [row for _, row in pushes] == list(range(12))
    assert pushes[-1][0] > 12
    live = sum(t.row_bytes * t.rows for t in plan.graph.tensors if t.index in plan.graph.inputs)
    assert plan.arena_bytes < live + plan.graph.tensors[plan.graph.outputs[0]].size_bytes


@pytest.mark.parametrize("options", [{"kernels": "tflm-reference"}, {"external_io": True}])
def test_rows_are_for_our_own_kernels(options: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="diagmem's own kernels"):
        diagmem.plan("zoo:kws_dscnn_int8", schedule="rows", **options)


def test_parts_of_tensors_have_no_rows() -> None:
    """A graph of which ops were removed already, so that tensors lie in others, is refused in words."""
    b = Builder("parts", DType.INT8)
    x = b.input(1, 8, 4, 2)
    graph = b.graph(b.conv(b.concat(b.conv(x, 2, 3), b.conv(x, 3, 1)), 2, 3))
    parts, _ = transformed(graph, ["remove-concat"])
    assert any(tensor.view for tensor in parts.tensors)
    with pytest.raises(PlanError, match="from the original graph"):
        streamed(parts)


def reshaped() -> Graph:
    """One row that is made, and looked at as three."""
    net = Net()
    flat = net.relu(net.input(1, 1, 3, 8))
    graph, _ = transformed(net.graph(net.pool(net.reshape(flat, 1, 3, 8, 1))), ["drop-no-ops"])
    assert any(tensor.view and tensor.rows > graph.tensors[tensor.base].rows for tensor in graph.tensors)
    return graph


def test_no_row_is_asked_for_that_nobody_makes() -> None:
    """A part with other rows than what is read of it is needed whole: its own rows, and no others."""
    graph = reshaped()
    for op in row_graph(graph, DIAGMEM).ops:
        for need in op.needs:
            rows = graph.tensors[need.tensor].rows
            assert all(0 <= first < end <= rows for first, end in zip(need.first, need.end, strict=True))


def test_an_order_that_cannot_be_is_given_up() -> None:
    """Where a row is asked for that no turn is left to make, asking goes on no longer."""
    rows = row_graph(reshaped(), DIAGMEM)
    (need,) = rows.ops[1].needs
    asking = replace(rows.ops[1], needs=(replace(need, end=(3,)),))
    with within_seconds(20):
        assert recomputing_orders(replace(rows, ops=(rows.ops[0], asking)), False, 1.0)


def test_nothing_to_run() -> None:
    """A graph without ops is planned too: its output is its input."""
    net = Net()
    x = net.input(1, 4, 4, 1)
    assert diagmem.plan(replace(net.graph(x), ops=()), schedule="rows").arena_bytes == 16


def test_very_many_rows_are_refused() -> None:
    """In words, at once; a line that is long, but can be run whole, is not cut up."""
    net = Net()
    tall = net.graph(net.conv(net.input(1, 40_000, 1, 1), 1))
    with pytest.raises(PlanError, match="40000 rows are more than"):
        streamed(tall)
    net = Net()
    long = net.graph(net.conv(net.input(1, 1, 40_000, 1), 1))
    assert not diagmem.plan(long, schedule="rows").removals


def test_streaming_without_rows_is_refused() -> None:
    with pytest.raises(PlanError, match="need schedule 'rows'"):
        diagmem.plan("zoo:kws_dscnn_int8", schedule="best", input_rows=True)
    assert diagmem.plan("zoo:kws_dscnn_int8", input_rows=True).plan.input_rows


def test_json_lists_rows() -> None:
    found = to_json(diagmem.plan(tight().graph, schedule="rows", skip="all"))
    assert len(found["rows"]) == len(found["schedule"])
    assert any("rows" in row for row in found["tensors"])


@pytest.mark.parametrize("kind", ["conv", "mean", "pad", "pool"])
def test_rows_of_constants_are_not_cut(kind: str) -> None:
    """An image that is constant lies in flash: what reads it runs whole, so that C can be written."""
    b = Builder("constant image", DType.FLOAT32)
    given = b.input(1, 9, 4, 3)
    image = b.relu(given)
    ways = {"conv": lambda: b.conv(image, 3, 3), "mean": lambda: b.mean(image, keep_dims=True)}
    ways |= {"pad": lambda: b.pad(image, 0, 0), "pool": lambda: b.max_pool(image, 3, 1)}
    graph = with_values(b.graph(b.add(b.conv(given, 3, 3), ways[kind]())), 1)
    values = np.ones(image.shape, np.float32)
    tensors = [replace(t, is_constant=True, data=values) if t.index == image.index else t for t in graph.tensors]
    kept = [op for op in graph.ops if image.index not in op.outputs]
    lean = replace(graph, tensors=tuple(tensors), ops=tuple(replace(op, index=n) for n, op in enumerate(kept)))
    reader = next(op.index for op in lean.ops if image.index in op.inputs)
    assert row_graph(lean, library("diagmem")).ops[reader].is_whole
    emit(Program.of(diagmem.plan(lean, schedule="rows", input_rows=True, skip="all")))
