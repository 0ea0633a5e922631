"""Where the elements of a part lie."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import (
    DType,
    Graph,
    Op,
    Tensor,
    View,
    in_one_piece,
    pieces,
    places,
    row_major_strides,
    share,
    span,
    strides_of,
)

SHAPES = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@st.composite
def strided(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and strides with gaps."""
    shape, strides, step = draw(SHAPES), [], draw(st.integers(1, 2))
    for size in reversed(shape):
        strides.append(step)
        step = step * size + draw(st.sampled_from((0, 0, 1, 3)))
    return shape, tuple(reversed(strides))


def plainly(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    indices = itertools.product(*(range(size) for size in shape))
    return [sum(i * s for i, s in zip(index, strides, strict=True)) for index in indices]


@given(strided())
def test_places_pieces_and_span_agree(layout: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Places, the pieces that they fall into, their span, and the strides found again from them."""
    shape, strides = layout
    want = plainly(shape, strides)
    assert places(shape, strides).tolist() == want
    assert span(shape, strides) == want[-1] + 1
    found = pieces(shape, strides)
    assert found.places_of(np.arange(math.prod(shape))).tolist() == want
    assert found.length * len(found.starts) == math.prod(shape)
    assert in_one_piece(shape, strides) == (want == list(range(len(want))))
    again = strides_of(shape, np.array(want))
    assert again is not None
    assert plainly(shape, again) == want


@given(strided(), strided(), st.integers(0, 12))
def test_sharing_is_having_an_element_in_common(
    a: tuple[tuple[int, ...], tuple[int, ...]], b: tuple[tuple[int, ...], tuple[int, ...]], offset: int
) -> None:
    common = set(plainly(*a)) & {offset + place for place in plainly(*b)}
    assert share(pieces(*a), 0, pieces(*b), offset) == bool(common)
    assert share(pieces(*b), offset, pieces(*a), 0) == bool(common)


def test_places_that_no_strides_express() -> None:
    assert strides_of((4,), np.array([0, 1, 2, 4])) is None
    assert strides_of((2, 2), np.array([0, 1, 2, 4])) is None


def test_a_whole_tensor_is_in_one_piece() -> None:
    """It has row-major strides; a view of neighbours needs no more than its address either."""
    whole = Tensor(0, "x", (1, 2, 3, 4), DType.INT8)
    part = Tensor(1, "y", (2, 4), DType.INT8, view=View(0, 8, (4, 1)))
    assert whole.strides == row_major_strides(whole.shape)
    assert part.is_in_one_piece
    assert (part.base, part.offset_bytes, part.span_bytes) == (0, 8, 8)


def test_who_writes_and_reads_a_part() -> None:
    """Only ops that touch an element of it, under whatever name."""
    tensors = (
        Tensor(0, "in", (2, 2), DType.INT8),
        Tensor(1, "left", (2, 2), DType.INT8, view=View(3, 0, (4, 1))),
        Tensor(2, "right", (2, 2), DType.INT8, view=View(3, 2, (4, 1))),
        Tensor(3, "both", (2, 4), DType.INT8),
        Tensor(4, "out", (2, 4), DType.INT8),
        Tensor(5, "twice", (2, 2), DType.INT8),
    )
    ops = (Op(0, "RELU", (0,), (1,)), Op(1, "RELU", (1,), (2,)), Op(2, "RELU", (3,), (4,)), Op(3, "RELU", (2,), (5,)))
    graph = Graph("parts", tensors, ops, (0,), (4, 5))
    assert graph.families == {3: (3, 1, 2)}
    assert [graph.writers(t) for t in range(6)] == [(), (0,), (1,), (0, 1), (2,), (3,)]
    assert [graph.readers(t) for t in range(6)] == [(0,), (1, 2), (2, 3), (1, 2, 3), (), ()]
