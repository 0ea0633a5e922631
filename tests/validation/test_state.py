"""State is looked after over two runs: what the first leaves behind is what the second must find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.kernels import library
from diagmem.model.graph import Graph, View
from diagmem.model.schedule import Schedule
from diagmem.transforms import TRANSFORMS, transformed
from diagmem.validation import Fault, Finding, replay
from tests.networks import Net
from tests.profiles import examples
from tests.streams import Stream, streams
from tests.validation.shadow_memory import Shadow

DIAGMEM = library("diagmem")


def judged(graph: Graph, order: list[int], places: Mapping[int, int], arena_bytes: int = 4096) -> list[Finding]:
    rows = {
        t: [at + row * graph.tensors[t].row_bytes for row in range(graph.tensors[t].rows)] for t, at in places.items()
    }
    return replay(graph, DIAGMEM, Schedule.whole(order), rows, {}, arena_bytes)


class Delay:
    """A variable that is read, and set to what comes in: t0 input, t1 variable, t2 read, t3 output."""

    def __init__(self) -> None:
        net = Net()
        x, state = net.input(8), net.variable(8)
        was = net.op("READ_VARIABLE", None, state)
        seen = net.relu(was)
        net.ops.append(replace(net.ops[0], index=2, kind="ASSIGN_VARIABLE", inputs=(x,), outputs=(state,)))
        self.graph = net.graph(seen)
        self.places = {0: 0, 1: 8, 2: 16, 3: 24}


def faults(order: list[int], **changes: int) -> set[Fault]:
    case = Delay()
    places = {**case.places, **{int(name[1:]): at for name, at in changes.items()}}
    return {finding.fault for finding in judged(case.graph, order, places)}


IN_ORDER = [0, 1, 2]


def test_everything_apart_is_safe() -> None:
    assert not faults(IN_ORDER)


def test_a_variable_may_be_overwritten_between_its_last_look_and_its_assignment() -> None:
    """The read lies over the variable, and so does what is made of it."""
    assert not faults(IN_ORDER, t2=8)
    assert not faults([0, 2, 1], t2=16)


def test_a_variable_must_survive_from_its_assignment_to_the_next_run() -> None:
    """An output that is made after the assignment may not lie there."""
    assert faults([0, 2, 1], t3=8) == {Fault.OVERWRITTEN, Fault.RESULT_LOST}


def test_the_caller_does_not_write_inputs_over_state() -> None:
    assert Fault.OVERWRITTEN in faults(IN_ORDER, t0=8)


def test_what_is_lost_in_the_next_run_only_is_found() -> None:
    """The output lies over the variable once it is read for the last time in this run; it shows in the next."""
    case = Delay()
    found = judged(case.graph, [0, 2, 1], {**case.places, 3: 8})
    assert [(finding.run, finding.step) for finding in found] == [(1, 0), (1, 3)]
    assert "in the next run" in str(found[0])


@pytest.mark.parametrize("order", [[2, 0, 1], [0, 2, 1]])
def test_a_variable_is_read_before_it_is_assigned(order: list[int]) -> None:
    """As the model has it; what is made of the read may wait."""
    assert faults(order) == ({Fault.EFFECT_TOO_EARLY} if order[0] == 2 else set())


def test_each_variable_is_for_itself() -> None:
    """Ops on different variables may trade places."""
    net = Stream.__new__(Stream)
    Net.__init__(net)
    x = net.input(4)
    one, two = net.variable(4), net.variable(4)
    reads = [net.read(one), net.read(two)]
    net.assign(one, x)
    net.assign(two, x)
    graph = net.graph(*reads)
    places = {t: 4 * t for t in range(5)}
    assert not judged(graph, [1, 3, 0, 2], places)
    assert judged(graph, [2, 0, 1, 3], places)[0].fault is Fault.EFFECT_TOO_EARLY


def window(value_offset: int, state_offset: int) -> Graph:
    """A window of 12 bytes, of which 4 are new; a variable in it becomes another part of it."""
    net = Net()
    x, whole, state, value = net.input(4), net.tensor((12,)), net.variable(8), net.tensor((8,))
    seen = net.relu(whole)
    net.ops.append(replace(net.ops[0], index=1, kind="ASSIGN_VARIABLE", inputs=(value,), outputs=(state,)))
    views = {x: View(whole, 12 - 4 if state_offset == 0 else 0, (1,)), state: View(whole, state_offset, (1,))}
    views[value] = View(whole, value_offset, (1,))
    graph = net.graph(seen)
    return replace(graph, tensors=tuple(replace(t, view=views.get(t.index)) for t in graph.tensors))


def test_a_window_moves_down_in_place() -> None:
    """Copied from the first element on, what lies above may move down over itself, and nothing may move up."""
    places = {1: 0, 4: 16}
    assert not judged(window(value_offset=4, state_offset=0), [0, 1], places)
    upwards = judged(window(value_offset=0, state_offset=4), [0, 1], places)
    assert {finding.fault for finding in upwards} == {Fault.OVERWRITTEN}


def test_a_window_is_looked_at_before_it_moves() -> None:
    found = judged(window(value_offset=4, state_offset=0), [1, 0], {1: 0, 4: 16})
    assert found[0].fault is Fault.EFFECT_TOO_EARLY


@examples(60)
@given(streams(2), st.booleans(), st.data())
def test_it_agrees_with_a_byte_by_byte_oracle(graph: Graph, is_transformed: bool, data: st.DataObject) -> None:
    """On random places, in the model's order, over two runs."""
    less = transformed(graph, TRANSFORMS)[0] if is_transformed else graph
    held = [t for t in less.tensors if not t.is_constant and t.view is None and (_is_used(less, t.index))]
    places = {t.index: 4 * data.draw(st.integers(0, 24)) for t in held}
    order = list(range(len(less.ops)))
    found = judged(less, order, places)
    rows = {t: [at + r * less.tensors[t].row_bytes for r in range(less.tensors[t].rows)] for t, at in places.items()}
    shadow = Shadow(less, DIAGMEM, rows, {})
    assert bool(found) == shadow.loses_bytes(Schedule.whole(order))


def _is_used(graph: Graph, tensor: int) -> bool:
    return tensor in {*graph.producer, *graph.consumers, *graph.inputs, *graph.families}
