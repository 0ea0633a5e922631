"""What every op kind must keep, checked on random nodes that the kinds draw themselves."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diagmem.model.graph import Node
from diagmem.ops import kinds
from diagmem.ops.accesses import replayed_separation
from diagmem.ops.orders import Order
from tests.ops.cases import kinds_by_file, nodes_of
from tests.ops.drawing import sampled
from tests.ops.simulation import by_step, survives
from tests.profiles import examples

CASES = kinds_by_file()


def _pairs(node: Node) -> Iterator[tuple[Order, int, int]]:
    """Every loop order, input in RAM, and output."""
    for order in kinds()[node.op.kind].orders:
        for position, _ in node.activations():
            for output in range(len(node.outputs)):
                yield order, position, output


@pytest.mark.parametrize("name", kinds())
def test_a_kind_draws_what_it_is_asked_for(name: str) -> None:
    """No op kind escapes the contract: for each of its names it draws nodes that are not all alike."""
    nodes = sampled(name, 20)
    assert {node.op.kind for node in nodes} == {name}
    assert len({str(node) for node in nodes}) > 5


@pytest.mark.parametrize("name", kinds())
def test_absent_options_mean_the_defaults(name: str) -> None:
    """A file without an options table decodes to the attributes' own defaults."""
    found = kinds()[name].decode(name, None)
    assert found is None or found == type(found)()


@pytest.mark.parametrize("case", CASES)
@examples(200, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_contract(case: str, data: st.DataObject) -> None:
    """Shapes, accesses and separations of a random node agree with each other and with the simulation."""
    node = data.draw(nodes_of(CASES[case]))
    shapes_are_those_of_the_outputs(node)
    accesses_stay_inside_and_fill_the_outputs(node)
    separation_is_exact(node)
    bounds_are_ordered(node)


def shapes_are_those_of_the_outputs(node: Node) -> None:
    shapes = kinds()[node.op.kind].output_shapes(node.op.kind, node.attributes, node.inputs)
    assert shapes is None or shapes == tuple(t.shape for t in node.outputs)


def accesses_stay_inside_and_fill_the_outputs(node: Node) -> None:
    for order in kinds()[node.op.kind].orders:
        accesses = kinds()[node.op.kind].accesses(node, order)
        assert len(accesses.reads) == len(node.inputs)
        assert len(accesses.writes) == len(node.outputs)
        for position, tensor in node.activations():
            reads = accesses.reads[position]
            assert reads is not None, "an input in RAM that is never read would be free to overlap"
            touched = by_step(reads)
            assert all(0 <= step < accesses.steps for step in touched)
            assert all(0 <= element < tensor.elems for elements in touched.values() for element in elements)
        for tensor, writes in zip(node.outputs, accesses.writes, strict=True):
            touched = by_step(writes)
            assert all(0 <= step < accesses.steps for step in touched)
            assert {e for elements in touched.values() for e in elements} == set(range(tensor.elems))


def separation_is_exact(node: Node) -> None:
    """Closed form == replay; the simulation is safe there, and catches one byte less."""
    kind = kinds()[node.op.kind]
    for order, position, output in _pairs(node):
        accesses = kind.accesses(node, order)
        source, target = node.input(position), node.outputs[output]
        sizes = (source.dtype.size_bytes, target.dtype.size_bytes)
        closed = kind.closed_separation(node, position, order, output)
        assert closed == replayed_separation(accesses, position, output, *sizes)
        separation = kind.separation(node, position, order, output)
        assert survives(accesses, position, output, sizes, separation)
        assert survives(accesses, position, output, sizes, separation - 1) == (closed is None)


def bounds_are_ordered(node: Node) -> None:
    """The corrected analytical O_s never exceeds the exact one."""
    kind = kinds()[node.op.kind]
    assert kind.macs(node) >= 0
    for position, _ in node.activations():
        exact = max(0, node.output.size_bytes - kind.separation(node, position, kind.orders[0]))
        analytical, paper = kind.analytical(node, position), kind.paper(node, position)
        assert analytical is None or 0 <= analytical <= exact
        assert paper is None or (isinstance(paper, Fraction) and paper >= 0)
