"""Tables of buffers: what is written is what is meant, and what is not a table is refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.planning.place.table import MOST_BYTES, Gap, TableError, parse_table

HEAD = "id,lower,upper,size\n"


def test_columns_in_any_order_and_case() -> None:
    """Columns go by their names; others are kept and mean nothing; empty lines and a byte order mark do no harm."""
    table = parse_table("\ufeffSize, UPPER,note,lower,id\n\n8,5,hello,2,a\n")
    (row,) = table.rows
    assert (row.id, row.lower, row.upper, row.size_bytes, row.align_bytes) == ("a", 2, 5, 8, 1)


def test_names_that_minimalloc_knows() -> None:
    """`start` and `end` are older names; `end` is the last moment of use, `upper` the one after it."""
    (row,) = parse_table("buffer_id,start,end,size\na,2,5,8\n").rows
    assert (row.lower, row.upper) == (2, 6)


def test_gaps_say_what_is_used_when() -> None:
    """A gap without a window uses nothing; one with a window uses these bytes."""
    (row,) = parse_table("id,lower,upper,size,alignment,gaps\na,0,20,16,4,3-7 10-12@4:8\n").rows
    assert row.gaps == (Gap(3, 7, 0, 0), Gap(10, 12, 4, 8))
    assert [row.window_at(time) for time in (2, 3, 6, 7, 10, 12)] == [
        (0, 16),
        (0, 0),
        (0, 0),
        (0, 16),
        (4, 8),
        (0, 16),
    ]
    assert row.align_bytes == 4


def test_offsets_are_written_as_a_last_column() -> None:
    """All that was in the table stays; old offsets go."""
    table = parse_table('offset,id,lower,upper,size,note\n4,"a,b",0,2,8,\n0,c,0,2,4,x\n')
    assert table.with_offsets([0, 8]) == 'id,lower,upper,size,note,offset\n"a,b",0,2,8,,0\nc,0,2,4,x,8\n'
    assert [row.offset for row in parse_table(table.with_offsets([0, 8])).rows] == [0, 8]


WRONG = {
    "": "column 'id' is missing",
    HEAD: "no buffers",
    "id,lower,upper\n": "column 'size' is missing",
    "id,lower,upper,size,begin\n": "twice",
    HEAD + "a,0,1\n": "line 2: 3 fields, the header has 4",
    HEAD + "a,0,1,8\na,0,1,8\n": "line 3: id 'a' is not unique",
    HEAD + "a,0,1,-1\n": "size -1 is not in 0",
    HEAD + f"a,0,1,{MOST_BYTES + 1}\n": "is not in 0",
    HEAD + "a,0,1," + "9" * 5000 + "\n": "is not an integer",
    HEAD + "a,0,1,1e3\n": "size '1e3' is not an integer",
    HEAD + "a,0,1,٣\n": None,
    HEAD + "a,5,1,8\n": "upper is 1, below lower, which is 5",
    HEAD + "a,0,1,8\x1b[31m\n": "is not an integer",
    HEAD + "a,nan,1,8\n": "lower 'nan' is not an integer",
    HEAD + 'a,0,1,"8\n': "not CSV",
    "id,lower,upper,size,alignment\na,0,1,8,0\n": "alignment 0 is not in 1",
    "id,lower,upper,size,gaps\na,0,9,8,3\n": "is not like 3-7",
    "id,lower,upper,size,gaps\na,0,9,8,3-12\n": "not within the buffer",
    "id,lower,upper,size,gaps\na,0,9,8,3-5@4:9\n": "not within the buffer",
    "id,lower,upper,size,gaps\na,0,9,8,3-5 4-6\n": "gaps must follow",
    "id,lower,upper,size,offset\na,0,9,8,-3\n": "offset -3 is not in 0",
    "id,lower,upper,size,hint\na,0,9,8,x\n": "hint 'x' is not an integer",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_table_is_refused(text: str) -> None:
    """With the line, what is wrong, and nothing that could disturb a terminal."""
    said = WRONG[text]
    if said is None:
        assert parse_table(text).rows[0].size_bytes == 3
        return
    with pytest.raises(TableError) as refused:
        parse_table(text)
    message = str(refused.value)
    assert said in message
    assert message.isprintable()
    assert len(message) < 200


WRONG_SEPARATIONS = {
    "below,above\n": "line 1: the columns must be",
    "below,above,bytes\na,b\n": "2 fields, the header has 3",
    "below,above,bytes\na,z,1\n": "there is no buffer 'z'",
    "below,above,bytes\na,a,1\n": "each pair once",
    "below,above,bytes\na,b,1\na,b,2\n": "each pair once",
    "below,above,bytes\na,b,9\n": "bytes 9 is not in -4 to 8",
    "below,above,bytes\na,b,-5\n": "bytes -5 is not in -4 to 8",
}


@pytest.mark.parametrize("text", WRONG_SEPARATIONS)
def test_separations_that_make_no_sense_are_refused(text: str) -> None:
    """They name two buffers of the table, and a distance that the two can have."""
    with pytest.raises(TableError) as refused:
        parse_table(HEAD + "a,0,2,8\nb,1,3,4\n", text)
    assert WRONG_SEPARATIONS[text] in str(refused.value)


@given(st.text(alphabet='ab,0123-@:"\n\r id', max_size=60))
def test_anything_is_read_or_refused(text: str) -> None:
    """No other error leaves the reader, whatever comes in."""
    tables = ((text, None), (HEAD + text, None), (HEAD + "a,0,2,8\n", "below,above,bytes\n" + text))
    assert all(refusal(*table).isprintable() for table in tables)


def refusal(text: str, separations: str | None) -> str:
    """Why a table is refused; nothing if it is not."""
    try:
        parse_table(text, separations)
    except TableError as error:
        return str(error)
    return ""
