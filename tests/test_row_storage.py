"""How rows lie is told in the shortest form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.row_storage import RowStorage


@pytest.mark.parametrize(
    ("offsets", "form"),
    [
        ((8, 18, 28, 38), "linear"),
        ((38, 28, 18, 8), "linear"),
        ((8,), "linear"),
        ((8, 18, 28, 8, 18), "ring"),
        ((5, 5, 5), "ring"),
        ((8, 18, 29), "table"),
        ((8, 18, 28, 18), "table"),
    ],
)
def test_forms(offsets: tuple[int, ...], form: str) -> None:
    assert RowStorage.of(offsets).form == form


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9))
def test_each_row_is_found_again(offsets: list[int]) -> None:
    """Whatever the form, it gives back the offsets that it was made from."""
    found = RowStorage.of(offsets)
    rows = range(found.height)
    assert offsets == [found.table[r] if found.table else found.base + r % found.period * found.pitch for r in rows]
