"""What is made of events, held against plain loops over every byte."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.errors import TraceError
from diagmem.tracing.recording import ALWAYS, EVENT, NEVER, Events, Kind, Recorder, Span, TouchedBytes

SPACE_BYTES = 12
Record = tuple[int, int, int, int]


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """A few operations' events, times growing; sometimes a load and a store at one instruction."""
    records: list[Record] = []
    time = 0
    for op in range(draw(st.integers(1, 3))):
        records.append((time, op, 0, Kind.START))
        for _ in range(draw(st.integers(0, 12))):
            kind = draw(st.sampled_from((Kind.LOAD, Kind.STORE)))
            is_same_instruction = records[-1][3] == Kind.LOAD and draw(st.booleans())
            time += 0 if is_same_instruction else draw(st.integers(1, 3))
            size = draw(st.sampled_from((1, 2, 4)))
            records.append((time, draw(st.integers(0, SPACE_BYTES - size)), size, kind))
        time += 1
        records.append((time, op, 0, Kind.END))
    return records


def array(records: Sequence[Record]) -> Events:
    return np.array(list(records), dtype=EVENT)


def record(records: Sequence[Record], cuts: Sequence[int] = ()) -> tuple[list[Span], list[TouchedBytes], Recorder]:
    """Feeds the records in pieces."""
    found: list[Span] = []
    seen: list[TouchedBytes] = []
    recorder = Recorder(SPACE_BYTES, found.append, seen.append)
    edges = [0, *sorted(cuts), len(records)]
    for begin, end in itertools.pairwise(edges):
        recorder.feed(array(records[begin:end]))
    recorder.close()
    return found, seen, recorder


@given(runs(), st.data())
def test_spans_are_what_plain_loops_find(records: list[Record], data: st.DataObject) -> None:
    """First writes, last reads and counts of each operation; how the stream is cut makes no difference."""
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=3))
    found, _, _ = record(records, cuts)
    assert [span.fingerprint for span in found] == [span.fingerprint for span in record(records)[0]]
    ops = [r[1] for r in records if r[3] == Kind.START]
    assert [span.op for span in found] == ops
    for span in found:
        inside = records[records.index((span.counts.start, span.op, 0, Kind.START)) + 1 :]
        inside = inside[: [r[3] for r in inside].index(Kind.END)]
        first_write, last_read = [int(NEVER)] * SPACE_BYTES, [ALWAYS] * SPACE_BYTES
        for time, offset, size, kind in inside:
            for byte in range(offset, offset + size):
                if kind == Kind.STORE:
                    first_write[byte] = min(first_write[byte], time)
                else:
                    last_read[byte] = time
        assert span.first_write.tolist() == first_write
        assert span.last_read.tolist() == last_read
        assert span.counts.loads == sum(r[3] == Kind.LOAD for r in inside)
        assert span.counts.stores == sum(r[3] == Kind.STORE for r in inside)


@given(runs(), st.data())
def test_values_are_what_plain_loops_find(records: list[Record], data: st.DataObject) -> None:
    """Updates, and how long every value that was replaced had been in use."""
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=3))
    found, seen, recorder = record(records, cuts)
    birth, last_read, start = [ALWAYS] * SPACE_BYTES, [ALWAYS] * SPACE_BYTES, 0
    dead, updates = [], 0
    for time, offset, size, kind in records:
        if kind == Kind.START:
            start = time
        is_update = False
        for byte in range(offset, offset + size):
            if kind == Kind.STORE:
                if last_read[byte] != ALWAYS and last_read[byte] >= birth[byte]:
                    dead.append((byte, birth[byte], last_read[byte]))
                    is_update |= birth[byte] >= start
                birth[byte], last_read[byte] = time, ALWAYS
            elif kind == Kind.LOAD:
                last_read[byte] = time
        updates += is_update
    assert sum(span.counts.updates for span in found) == updates == sum(int(t.is_update.sum()) for t in seen)
    columns = ((t.dead_byte.tolist(), t.dead_birth.tolist(), t.dead_last_read.tolist()) for t in seen)
    assert sorted(d for c in columns for d in zip(*c, strict=True)) == sorted(dead)
    assert recorder.values.birth.tolist() == birth
    assert recorder.values.last_read.tolist() == last_read


def fingerprint(*touches: str) -> bytes:
    """Of an operation that loads and stores bytes: l3 loads byte 3, s5 stores byte 5."""
    kinds = {"l": Kind.LOAD, "s": Kind.STORE}
    events = [(time + 1, int(touch[1:]), 1, kinds[touch[0]]) for time, touch in enumerate(touches)]
    found, _, _ = record([(0, 0, 0, Kind.START), *events, (99, 0, 0, Kind.END)])
    return found[0].fingerprint


def test_fingerprint_is_that_of_what_matters() -> None:
    """Loads between two stores may come in any order and number. Other bytes, another order of stores, or a load on the
    other side of a store make a difference."""
    base = fingerprint("l1", "l2", "s7", "l3", "s8")
    assert fingerprint("l2", "l1", "l1", "l2", "s7", "l3", "s8") == base
    assert fingerprint("l1", "l2", "s8", "l3", "s7") != base
    assert fingerprint("l1", "s7", "l2", "l3", "s8") != base
    assert fingerprint("l1", "l2", "s7", "l3", "s8", "l3") != base
    assert fingerprint("l1", "s7", "l3", "s8") != base
    assert fingerprint("l1", "l4", "s7", "l3", "s8") != base


def test_an_operation_that_never_ends_is_an_error() -> None:
    """A program that dies half-way is not mistaken for one that does little."""
    with pytest.raises(TraceError, match="ended before"):
        record([(0, 7, 0, Kind.START), (1, 0, 1, Kind.LOAD)])
