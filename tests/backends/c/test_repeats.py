"""Tables written shorter: nothing is lost, and what repeats itself takes little."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from diagmem.backends.c.repeats import (
    PIECE_BYTES,
    REPEAT_BYTES,
    Piece,
    Repeat,
    pieces,
    pieces_bytes,
    repeats,
    repeats_bytes,
    shorter_tables,
)

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


PIECES = st.builds(
    lambda times, places, moves: Piece(
        times * len(places), tuple(at for at, _ in places), tuple(by for _, by in places) if moves else ()
    ),
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=5),
    st.booleans(),
)


def written_out(found: tuple[Piece, ...] | list[Piece]) -> tuple[int, ...]:
    return tuple(piece.offset(row) for piece in found for row in range(piece.rows))


@given(st.lists(PIECES, max_size=5), st.sampled_from([2, 4]))
def test_pieces_are_the_table(made: list[Piece], entry_bytes: int) -> None:
    """Written out they are what they were made from; they never take more than the table and one piece."""
    table = written_out(made)
    found = pieces(table, entry_bytes)
    assert written_out(found) == table
    assert pieces_bytes(found, entry_bytes) <= entry_bytes * len(table) + PIECE_BYTES * bool(table)


def test_places_that_repeat_themselves_are_written_once() -> None:
    """A beginning, places that come again, places that move on, an end."""
    table = (900, 7, 8) + (10, 20, 35) * 50 + tuple(at for n in range(40) for at in (100 + 4 * n, 60)) + (1, 2)
    found = pieces(table, 2)
    assert written_out(found) == table
    assert [(piece.rows, len(piece.offsets), len(piece.drift)) for piece in found] == [
        (3, 3, 0),
        (150, 3, 0),
        (80, 2, 2),
        (2, 2, 0),
    ]


def test_pieces_must_be_worth_their_code() -> None:
    """A table of a hundred rows is left as it is; one of a thousand is not, and one without a rule always is."""
    ring = (0, 8, 16) * 400
    disordered = tuple(at * at % 997 for at in range(300))
    assert shorter_tables({1: ring[:100]}, 2) == {}
    assert shorter_tables({1: ring[:1000], 2: disordered}, 2).keys() == {1}


def test_pieces_move_with_their_arena() -> None:
    """In another pool all places are so many bytes further on; what they move by is the same."""
    piece = Piece(9, (5, 6), (1, 0))
    assert [piece.moved(-5).offset(row) + 5 for row in range(9)] == [piece.offset(row) for row in range(9)]
