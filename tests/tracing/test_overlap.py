"""O_s from times, held against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import IntArray
from diagmem.tracing import recording
from diagmem.tracing.recording import ALWAYS, NEVER, traced_overlap, traced_separation


def times(nothing: int) -> st.SearchStrategy[IntArray]:
    """A time for each byte, or `nothing`."""
    one = st.one_of(st.just(nothing), st.integers(0, 20))
    return st.lists(one, min_size=1, max_size=10).map(lambda values: np.array(values, dtype=np.int64))


def is_safe_by_definition(first_write: IntArray, last_read: IntArray, shared: int) -> bool:
    """The input starts `shared` bytes before the output's end; no byte is written before the last read of what it
    held."""
    shift = len(first_write) - shared
    return all(
        first_write[shift + r] >= last_read[r] for r in range(len(last_read)) if 0 <= shift + r < len(first_write)
    )


@given(times(int(NEVER)), times(ALWAYS))
def test_overlaps_keep_the_definition(first_write: IntArray, last_read: IntArray) -> None:
    """All up to the monotone overlap are safe, one more is not; the largest is safe and no larger one is."""
    found = traced_overlap(first_write, last_read)
    union = max(len(first_write), len(last_read))
    safe = [is_safe_by_definition(first_write, last_read, o) for o in range(len(first_write) + len(last_read) + 2)]
    assert all(safe[: found.monotone + 1])
    assert found.monotone == len(first_write) + len(last_read) or not safe[found.monotone + 1]
    assert safe[found.largest]
    assert found.largest >= found.monotone
    assert not any(safe[found.largest + 1 : union + 1])


@given(times(int(NEVER)), times(ALWAYS))
def test_separation_is_the_overlaps_counterpart(first_write: IntArray, last_read: IntArray) -> None:
    """O_s = output's size - separation, clamped at 0."""
    separation = traced_separation(first_write, last_read)
    assert -len(last_read) <= separation <= len(first_write)
    assert traced_overlap(first_write, last_read).monotone == len(first_write) - separation


def test_safe_overlaps_need_not_be_monotone() -> None:
    """Two channel blocks, one after the other: 2 bytes are safe, 3 are not, all are safe again."""
    first_write, last_read = np.array([1, 11, 3, 13]), np.array([0, 10, 2, 12])
    found = traced_overlap(first_write, last_read)
    assert (found.monotone, found.largest) == (2, 4)


def test_sampling_never_hides_an_unsafe_byte() -> None:
    """One bad byte among many is found, wherever it lies."""
    first_write, last_read = np.full(5000, NEVER), np.full(5000, 7)
    for bad in (0, 1, 2499, 4999):
        writes = first_write.copy()
        writes[bad] = 3
        assert not recording.is_safe(writes, last_read, 5000)
        assert traced_overlap(writes, last_read).largest == 5000 - bad - 1
