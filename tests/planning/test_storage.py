"""How rows lie is told in the shortest form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.planning.plan import Storage


@pytest.mark.parametrize(
    ("offsets", "form"),
    [
        ((8, 18, 28, 38), "linear"),
        ((38, 28, 18, 8), "linear"),
        ((8,), "linear"),
        ((8, 18, 28, 8, 18), "ring"),
        ((8, 18, 8, 18), "ring"),
        ((5, 5, 5), "ring"),
        ((8, 18, 29), "table"),
        ((8, 18, 28, 18), "table"),
    ],
)
def test_forms(offsets: tuple[int, ...], form: str) -> None:
    assert Storage.of(offsets).form == form


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_each_row_is_found_again(offsets: list[int]) -> None:
    """Whatever the form, it gives back the offsets that it was made from."""
    found = Storage.of(offsets)
    rows = range(found.height)
    assert offsets == [found.table[r] if found.table else found.base + r % found.period * found.pitch for r in rows]
    assert found.offsets == tuple(offsets)


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 9))
def test_one_piece_is_the_shortest_form_of_itself(base: int, height: int, row_bytes: int) -> None:
    """Rows one behind the other are found again as a tensor in one piece."""
    piece = Storage.linear(base, height, row_bytes)
    assert piece.form == "linear"
    assert piece.offsets == tuple(range(base, base + height * row_bytes, row_bytes))
    assert Storage.of(piece.offsets) == piece


@pytest.mark.parametrize(
    ("offsets", "row_bytes", "is_piece"),
    [
        ((8, 18, 28), 10, True),
        ((8, 18, 28), 9, False),
        ((8, 18, 28), 11, False),
        ((28, 18, 8), 10, False),
        ((8,), 10, True),
        ((8, 18, 8, 18), 10, False),
        ((8, 8), 10, False),
        ((8, 18, 29), 10, False),
    ],
)
def test_one_piece_has_no_gaps(offsets: tuple[int, ...], row_bytes: int, is_piece: bool) -> None:
    """Rows in their order, none before the end of the one before it, none behind it; a single row is one piece."""
    assert Storage.of(offsets).is_in_one_piece(row_bytes) is is_piece


def test_tables_are_told_by_nothing_else() -> None:
    """Two tables of the same offsets are equal: what has no meaning is the same in both."""
    assert Storage.of((8, 18, 29)) == Storage(3, 0, 1, 0, (8, 18, 29))
