"""A streamed input asks more of the firmware: no plan with one is handed out where a plan without is smaller."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import diagmem
from diagmem.model.graph import DType
from diagmem.planning.options import ROWS, STREAMED, Options
from diagmem.planning.planner import Planned, planned, ways
from diagmem.reports.report import report_page
from tests.networks import Net
from tests.profiles import examples
from tests.row_networks import has_image_input, image_net, with_values

ASKED = Options(input_rows=True)


def hourglass() -> Net:
    """A small input, and channels that only whole tensors hold: the rows of the input save nothing."""
    net = Net(DType.FLOAT32)
    wide = net.conv(net.input(1, 12, 4, 1), 24)
    narrow = net.op("TRANSPOSE", None, wide, net.constant(4, values=[0, 2, 1, 3]))
    net.conv(narrow, 4)
    return net


def does_not_pay() -> Planned:
    net = hourglass()
    return planned(net.graph(len(net.tensors) - 1), ASKED)


@examples(60)
@given(seed=st.integers(0, 10_000))
def test_no_plan_is_larger_than_one_that_asks_less_of_the_firmware(seed: int) -> None:
    """Random networks: asked to stream the input, either that is done and pays, or it is said why not; insisted on, it
    is done all the same."""
    graph = image_net(seed)
    if not has_image_input(graph):
        return
    made, less = planned(graph, ASKED), planned(graph, Options())
    assert made.arena_bytes <= less.arena_bytes
    assert made.plan.input_rows == (not made.not_streamed)
    insisted = planned(graph, replace(ASKED, schedule=ROWS))
    assert insisted.plan.input_rows
    assert made.arena_bytes == min(insisted.arena_bytes, less.arena_bytes)


@examples(30)
@given(seed=st.integers(0, 10_000))
def test_ways_agree_with_plans(seed: int) -> None:
    """Beside any other plan, streaming is offered where it is not larger, and else the reason is given."""
    graph = image_net(seed)
    if not has_image_input(graph):
        return
    found = {way.name: way for way in ways(graph, Options())}
    chosen = next(way.made for way in found.values() if way.is_chosen and way.made is not None)
    streamed = found[STREAMED]
    insisted = planned(graph, replace(ASKED, schedule=ROWS))
    if streamed.made is None:
        assert streamed.reason.startswith("does not pay: ")
        assert insisted.arena_bytes > chosen.arena_bytes
    else:
        assert streamed.made.arena_bytes == insisted.arena_bytes <= chosen.arena_bytes


def test_the_reason_names_the_op_and_both_sizes() -> None:
    made = does_not_pay()
    assert not made.plan.input_rows
    insisted = planned(made.model, replace(ASKED, schedule=ROWS))
    assert insisted.arena_bytes > made.arena_bytes
    assert f"{insisted.arena_bytes:,} bytes, with the input whole {made.arena_bytes:,}" in made.not_streamed
    assert "(TRANSPOSE) needs whole tensors" in made.not_streamed


def test_all_say_the_same() -> None:
    """C is that of the smaller plan; the API, JSON and the page say so."""
    made = does_not_pay()
    graph = with_values(made.model, seed=0)
    emitted = diagmem.emit_c(graph, name="net", options=ASKED)
    assert emitted.arena_bytes == made.arena_bytes
    assert emitted.not_streamed == made.not_streamed == diagmem.plan(graph, input_rows=True).to_json()["not_streamed"]
    assert made.not_streamed.partition(";")[0] in report_page(made)
    assert b"push_row" not in emitted.files["net.h"]
    assert b"push_row" in diagmem.emit_c(graph, name="net", options=replace(ASKED, schedule=ROWS)).files["net.h"]
