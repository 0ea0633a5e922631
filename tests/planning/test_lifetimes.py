"""When tensors live that are taken whole, and how many bytes that makes at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given

from diagmem.model.graph import Graph, View
from diagmem.planning.bounds import tensor_buffers
from diagmem.planning.needs.problem import live_bytes
from tests.networks import Net, nets


def lifetimes(graph: Graph, order: Sequence[int]) -> dict[int, range]:
    """Tensor -> its steps."""
    return {tensor: buffer.steps for tensor, buffer in tensor_buffers(graph, order).items()}


def hand_made() -> tuple[Graph, dict[str, int]]:
    """A fork and a join, a constant, an input that is read late, one that nobody reads, a variable, a dead end, and an
    output that is made early."""
    net = Net()
    at = {"given": net.input(1, 2, 2, 1), "late": net.input(1, 2, 2, 1), "unread": net.input(3)}
    at["kept"] = net.variable(1, 5)
    at["weights"] = net.filters(at["given"], 1, 2, 2, 1)
    at["left"] = net.relu(at["given"])
    at["early"] = net.relu(at["given"])
    at["dead"] = net.add(at["left"], at["weights"])
    at["sum"] = net.add(at["left"], at["late"])
    at["end"] = net.relu(at["sum"])
    return net.graph(at["early"], at["end"]), at


def test_lives_in_the_file_s_order() -> None:
    """Inputs from the start, outputs to the end, variables always, others from their step to their last reader's."""
    graph, at = hand_made()
    found = lifetimes(graph, range(5))
    assert found == {
        at["given"]: range(2),
        at["late"]: range(4),
        at["unread"]: range(1),
        at["kept"]: range(5),
        at["left"]: range(4),
        at["early"]: range(1, 5),
        at["dead"]: range(2, 3),
        at["sum"]: range(3, 5),
        at["end"]: range(4, 5),
    }
    # given 4 or left and early, late 4, unread 3, kept 5.
    expected = (4 + 4 + 3 + 5 + 4, 4 + 4 + 5 + 4 + 4, 4 + 5 + 4 + 4 + 4, 21, 5 + 4 + 4 + 4)
    assert live_bytes(tensor_buffers(graph, range(5)).values(), 5) == expected


def test_lives_in_another_order() -> None:
    """Steps are counted in the order that is asked for."""
    graph, at = hand_made()
    found = lifetimes(graph, (0, 3, 4, 2, 1))
    assert found[at["given"]] == range(5)
    assert found[at["left"]] == range(4)
    assert found[at["sum"]] == range(1, 3)
    assert found[at["end"]] == range(2, 5)


def with_a_view() -> tuple[Net, int, int]:
    """A tensor in two parts, each written by an op of its own; the first op is another one."""
    net = Net()
    given = net.input(4)
    net.relu(given)
    whole = net.tensor((4,))
    halves = [net.relu(net.input(2)) for _ in range(2)]
    for number, half in enumerate(halves):
        net.tensors[half] = replace(net.tensors[half], view=View(whole, 2 * number, (1,)))
    net.relu(net.relu(given))
    return net, whole, halves[0]


def test_a_tensor_lives_as_long_as_its_views() -> None:
    """From the first op that writes an element of it, under any name, to the last that touches one; an output that lies
    in it keeps it to the end."""
    net, whole, half = with_a_view()
    assert lifetimes(net.graph(), range(5))[whole] == range(1, 3)
    assert lifetimes(net.graph(half), range(5))[whole] == range(1, 5)
    assert lifetimes(net.graph(whole), range(5))[half] == range(1, 5)
    net.relu(half)
    assert lifetimes(net.graph(), range(6))[whole] == range(1, 6)


def test_what_is_read_and_never_written_lives_from_the_start() -> None:
    """A variable too that an op writes: it holds what the last run has left."""
    net = Net()
    given = net.input(3)
    stray, kept = net.tensor((3,)), net.variable(3)
    net.relu(given)
    net.relu(stray)
    net.relu(stray)
    net.ops[1] = replace(net.ops[1], outputs=(kept,))
    found = lifetimes(net.graph(), range(3))
    assert found[stray] == range(3)
    assert found[kept] == range(3)


@given(nets())
def test_live_bytes_are_the_sum_of_what_lives(graph: Graph) -> None:
    """At every step."""
    order = range(len(graph.ops))
    lives = lifetimes(graph, order)
    expected = [
        sum(graph.tensors[t].size_bytes for t, life in lives.items() if life.start <= s < life.stop) for s in order
    ]
    assert live_bytes(tensor_buffers(graph, order).values(), len(order)) == tuple(expected)
    assert all(0 <= life.start <= life.stop <= len(order) for life in lives.values())
