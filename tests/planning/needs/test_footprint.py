"""What a graph must hold, whatever its order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.planning.needs.footprint import Footprint, footprint, most_covered
from diagmem.planning.options import Options
from tests.networks import Net, chain, nets
from tests.profiles import examples


def stores(needs: Footprint) -> set[tuple[int, ...]]:
    return {store.tensors for store in needs.stores}


def test_reshapes_share_a_store() -> None:
    """A tensor and a chain of its reshapes are one store, made by the op that makes the first of them."""
    net = Net()
    x = net.relu(net.input(1, 2, 2, 3))
    y = net.reshape(net.reshape(x, 12), 2, 6)
    needs = footprint(net.graph(net.relu(y)), Options())
    assert (x, x + 1, y) in stores(needs)
    assert next(s for s in needs.stores if y in s.tensors).writers == {0}


def test_reshape_of_an_output_keeps_the_store() -> None:
    """A store that a graph output shares survives the run, and so never overlaps the op that reads it last."""
    net = Net()
    x = net.relu(net.input(1, 2, 2, 3))
    y = net.reshape(x, 12)
    z = net.relu(x)
    needs = footprint(net.graph(y, z), Options())
    shared = next(i for i, s in enumerate(needs.stores) if y in s.tensors)
    assert needs.stores[shared].is_kept
    assert not [pair for op in range(len(needs.after)) for pair in needs.separations(op) if shared == pair[1]]


def test_reshape_of_a_constant_or_a_variable_is_a_copy() -> None:
    """Bytes that do not lie in the arena, or that may change, are copied."""
    net = Net()
    net.input(1, 4)
    fixed = net.reshape(net.constant(4, 3), 12)
    state = net.variable(2, 6)
    moved = net.reshape(state, 12)
    needs = footprint(net.graph(fixed, moved), Options())
    assert {(fixed,), (state,), (moved,)} <= stores(needs)


def test_what_lies_with_the_caller_has_no_store() -> None:
    """With external_io neither inputs nor outputs nor their reshapes lie in the arena."""
    net = Net()
    x = net.input(1, 2, 2, 3)
    flat = net.reshape(x, 12)
    middle = net.relu(flat)
    result = net.relu(middle)
    shaped = net.reshape(result, 3, 4)
    needs = footprint(net.graph(shaped), Options(external_io=True))
    assert stores(needs) == {(middle,)}


def test_reshape_from_input_to_output_is_a_copy_for_the_caller() -> None:
    """Where both ends lie with the caller, nothing lies in the arena."""
    net = Net()
    flat = net.reshape(net.input(2, 3), 6)
    assert stores(footprint(net.graph(flat), Options(external_io=True))) == set()


def test_scratch_is_a_store_of_its_op() -> None:
    """Kernels that need scratch get a store that nothing reads later."""
    net = Net()
    y = net.mean(net.input(1, 4, 4, 3))
    needs = footprint(net.graph(y), Options("tflm-reference", 16))
    scratch = [store for store in needs.stores if store.is_scratch]
    assert [store.writers for store in scratch] == [{0}]
    assert not scratch[0].is_needed_later


def test_an_input_read_twice_has_the_larger_separation() -> None:
    """A tensor that an op reads at two positions must satisfy both."""
    net = Net()
    x = net.relu(net.input(1, 3, 3, 4))
    graph = net.graph(net.concat(x, x))
    needs = footprint(graph, Options())
    rule = needs.options.library.separation
    (found,) = needs.separations(1).values()
    assert found == max(rule(graph.nodes[1], position, 0) or 0 for position in (0, 1))


def test_ops_on_variables_keep_their_order() -> None:
    """What reads or changes a variable runs in file order, though no tensor ties it together."""
    net = Net()
    x, state = net.input(1, 4), net.variable(1, 4)
    a = net.opaque(x, state)
    b = net.opaque(x, state)
    assert footprint(net.graph(a, b), Options()).after == ((), (0,))


def test_alignment_is_a_power_of_two_and_never_below_the_element() -> None:
    """Options refuse other alignments; floats are aligned to four bytes at least."""
    with pytest.raises(PlanError, match="power of two"):
        Options(align=12)
    needs = footprint(chain(2, dtype=DType.FLOAT32), Options(align=1))
    assert {store.align_bytes for store in needs.stores} == {4}
    assert needs.unit_bytes == 4


@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 4)), max_size=3), st.integers(1, 7))
def test_covering_is_first_come_first_served(inputs: list[tuple[int, int]], size: int) -> None:
    """No placement of disjoint stretches covers more of an output than the closed form says, and one covers as much."""
    places = [range(max(0, start), 8 + sum(n for _, n in inputs)) for start, _ in inputs]
    best = 0
    for at in itertools.product(*places):
        cells = [set(range(a, a + length)) for a, (_, length) in zip(at, inputs, strict=True)]
        if sum(map(len, cells)) == len(set().union(*cells)):
            best = max(best, len(set().union(*cells) & set(range(size))))
    assert most_covered(size, inputs) == best


@examples(60)
@given(nets())
def test_running_more_before_never_makes_an_op_dearer(graph: Graph) -> None:
    """Live bytes are submodular, and so is what an op needs while it runs: the fact that the search rests on."""
    needs = footprint(graph, Options())
    done = 0
    for op in range(len(graph.ops)):
        for other in range(op + 1, len(graph.ops)):
            if not needs.after_bits[other] & ~done:
                earlier, later = needs.move(other, done), needs.move(other, done | 1 << op)
                assert later[0] <= earlier[0]
                assert later[1] <= earlier[1]
        done |= 1 << op
