"""How far apart stores must start, from how far apart the tensors in them must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from diagmem.model.graph import DType, Node, Op, Tensor, View
from diagmem.planning.needs.footprint import SeparationRule, Store, separations_of

WRITTEN, READ = 0, 1
"""Stores of 12 and of 20 bytes: what the op makes, and what it reads."""

STORES = (
    Store("made", (2,), 12, 1, frozenset({0}), frozenset(), False),
    Store("given", (0, 1), 20, 1, frozenset(), frozenset({0}), False),
)


def tensor(index: int, elems: int, offset: int = 0, base: int = 9) -> Tensor:
    """Of bytes; with an offset it is a part of another tensor."""
    view = View(base, offset, (1,)) if offset else None
    return Tensor(index, f"t{index}", (elems,), DType.INT8, view=view)


def node(*inputs: Tensor, output: Tensor, kind: str = "ADD") -> Node:
    op = Op(0, kind, tuple(t.index for t in inputs), (output.index,))
    return Node(op, inputs, (output,))


def found(
    made: Node, rule: SeparationRule, stores: Sequence[Store] = STORES, store_of: Mapping[int, int] | None = None
) -> Mapping[tuple[int, int], int]:
    where = {0: READ, 1: READ, 2: WRITTEN} if store_of is None else store_of
    return separations_of(made, where, stores, rule)


@pytest.mark.parametrize("distances", [(3, 7), (7, 3)])
def test_the_larger_one_counts_where_two_stores_meet_twice(distances: tuple[int, int]) -> None:
    """Two inputs in one store: it must be far enough away for either, whichever comes first."""
    both = node(tensor(0, 8), tensor(1, 8), output=tensor(2, 12))
    assert found(both, lambda _, position, __: distances[position]) == {(WRITTEN, READ): 7}


@pytest.mark.parametrize(("out_at", "in_at", "apart"), [(0, 0, 5), (2, 0, 7), (0, 3, 2), (2, 3, 4)])
def test_parts_begin_further_on(out_at: int, in_at: int, apart: int) -> None:
    """The output's place in its store counts for the distance, the input's against it."""
    one = node(tensor(0, 6, in_at), output=tensor(2, 6, out_at))
    assert found(one, lambda *_: 5) == {(WRITTEN, READ): apart}


@pytest.mark.parametrize(("apart", "is_told"), [(-4, True), (11, True), (12, False), (15, False)])
def test_what_does_not_let_them_overlap_is_left_out(apart: int, is_told: bool) -> None:
    """The lower one is the output's store: from its size on nothing is shared, however large the other one is."""
    one = node(tensor(0, 20), output=tensor(2, 12))
    assert found(one, lambda *_: apart) == ({(WRITTEN, READ): apart} if is_told else {})


def test_where_there_is_no_rule_they_stay_apart() -> None:
    """By the output's bytes, of which a part has fewer than its store."""
    assert found(node(tensor(0, 20), output=tensor(2, 12)), lambda *_: None) == {}
    assert found(node(tensor(0, 20), output=tensor(2, 7)), lambda *_: None) == {(WRITTEN, READ): 7}


def test_copies_stay_clear_of_what_they_are_copied_from() -> None:
    """Runtimes use memcpy for a reshape, which may not overlap."""
    copy = node(tensor(0, 12), output=tensor(2, 12), kind="RESHAPE")
    assert found(copy, lambda *_: 0) == {}


def test_only_what_an_op_writes_into_the_arena_counts() -> None:
    """Outputs and inputs that lie with the caller, outputs that others write, inputs that are kept, and those that lie
    in the output's store."""
    one = node(tensor(0, 12), output=tensor(2, 12))
    assert found(one, lambda *_: 3, store_of={0: READ}) == {}
    assert found(one, lambda *_: 3, store_of={2: WRITTEN}) == {}
    assert found(one, lambda *_: 3, store_of={0: WRITTEN, 2: WRITTEN}) == {}
    others = replace(STORES[WRITTEN], writers=frozenset({4}))
    assert found(one, lambda *_: 3, (others, STORES[READ])) == {}
    assert found(one, lambda *_: 3, (replace(others, state_bytes=12), STORES[READ])) == {(WRITTEN, READ): 3}
    assert found(one, lambda *_: 3, (STORES[WRITTEN], replace(STORES[READ], is_kept=True))) == {}
