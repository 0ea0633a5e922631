"""Sequences written shorter: nothing is lost, and what repeats itself takes little."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from diagmem.backends.c.repeats import REPEAT_BYTES, Repeat, repeats, repeats_bytes

STRETCHES = st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 9)), max_size=6)


@given(STRETCHES, st.sampled_from([1, 2]))
def test_repeats_are_the_sequence(stretches: list[tuple[list[int], int]], item_bytes: int) -> None:
    """Written out they are what they were made from; they never take more than the list, nor than the stretches that
    it was put together from."""
    items = [item for stretch, times in stretches for item in stretch * times]
    found = repeats(items, item_bytes)
    assert list(itertools.chain.from_iterable(repeat.items * repeat.times for repeat in found)) == items
    assert repeats_bytes(found, item_bytes) <= item_bytes * len(items) + REPEAT_BYTES * bool(items)


def test_what_repeats_itself_is_written_once() -> None:
    """A beginning, a thousand times the same, an end."""
    items = [7, 8, 9] + [0, 1, 0, 2] * 1000 + [5, 6]
    assert repeats(items, 1) == (Repeat((7, 8, 9), 1), Repeat((0, 1, 0, 2), 1000), Repeat((5, 6), 1))
