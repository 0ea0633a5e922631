"""Recording a run: its events, the operations that they make up, and the safe overlap O_s of each.

Every tracer writes the same records; all sense is made here. Traced buffers lie one behind the other in a *space*: an
event's `offset` counts bytes from the space's start. `time` counts instructions since the trace began. An instruction
that both loads and stores loads first.

A program is traced twice, with different data: one that touches memory in an order that depends on its data is refused.
O_s follows from each input byte's last read and each output byte's first write.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import TraceError
from diagmem.model.graph import IntArray
from diagmem.tracing.calls import Call, Role

EVENT = np.dtype([("time", "<u8"), ("offset", "<u4"), ("bytes", "<u2"), ("kind", "<u2")])
"""One record. The C tracers declare the same sixteen bytes."""

Events = npt.NDArray[Any]
"""An array of `EVENT`."""

Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""First write of a byte that is never written."""

ALWAYS = -1
"""Last read of a byte that is never read; birth of a value that was there before the trace began."""


class Kind(enum.IntEnum):
    """`START` and `END` mark an operation; the `offset` of `END` is its number."""

    LOAD = 0
    STORE = 1
    START = 2
    END = 3


@dataclass(frozen=True, slots=True)
class TouchedBytes:
    """A stretch of loads and stores of one operation, written out by byte.

    Entry k says that event `event[k]` touched byte `byte[k]`. `is_update` has an entry for each event: a store that
    replaces a value which the same operation wrote and has read back. `dead_*`: values that these events replaced or
    outlived, in use from their birth to their last read.
    """

    events: Events
    event: IntArray
    byte: IntArray
    is_update: Flags
    dead_byte: IntArray
    dead_birth: IntArray
    dead_last_read: IntArray


@dataclass(frozen=True, slots=True)
class Counts:
    """When an operation began and ended, in instructions, and its events in the traced buffers."""

    start: int
    end: int
    loads: int
    stores: int
    updates: int

    @property
    def instructions(self) -> int:
        return self.end - self.start

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("instructions", "loads", "stores", "updates")}


@dataclass(frozen=True, slots=True)
class Span:
    """One operation from its start to its end. `first_write` and `last_read` hold a time for each byte of the space.

    `fingerprint` is that of all stores in order, and of the stores between which each byte is loaded for the last time.
    Two runs with the same one have the same safe overlaps; they may differ in time, and in the order of loads between
    two stores.
    """

    op: int
    counts: Counts
    first_write: IntArray
    last_read: IntArray
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Value:
    """What a byte holds, for every byte of the space: when it was written, and when last read."""

    birth: IntArray
    last_read: IntArray

    @classmethod
    def unknown(cls, space_bytes: int) -> Value:
        return cls(np.full(space_bytes, ALWAYS, dtype=np.int64), np.full(space_bytes, ALWAYS, dtype=np.int64))


class Recorder:
    """Takes a run's events as they come and hands on each operation when it has ended."""

    def __init__(
        self,
        space_bytes: int,
        on_span: Callable[[Span], None],
        on_touches: Callable[[TouchedBytes], None] | None = None,
    ) -> None:
        self.values = Value.unknown(space_bytes)
        self._space_bytes = space_bytes
        self._on_span, self._on_touches = on_span, on_touches
        self._building: _SpanBuilder | None = None

    def feed(self, events: Events) -> None:
        """The next events of the run. What lies between operations is left out."""
        begin = 0
        for mark in np.flatnonzero(events["kind"] >= Kind.START).tolist():
            self._touch(events[begin:mark])
            self._mark(Kind(events["kind"][mark]), int(events["offset"][mark]), int(events["time"][mark]))
            begin = mark + 1
        self._touch(events[begin:])

    def close(self) -> None:
        """The run is over."""
        if self._building is not None:
            raise TraceError("the traced program ended before an operation did")

    def _mark(self, kind: Kind, op: int, time: int) -> None:
        if kind is Kind.START:
            self._building = _SpanBuilder(time, self._space_bytes)
        elif self._building is not None:
            self._on_span(self._building.finish(op, time))
            self._building = None

    def _touch(self, events: Events) -> None:
        if self._building is not None and len(events):
            touches = self._building.add(events, self.values)
            if self._on_touches:
                self._on_touches(touches)


class _SpanBuilder:
    def __init__(self, start: int, space_bytes: int) -> None:
        self.start = start
        self.first_write = np.full(space_bytes, NEVER, dtype=np.int64)
        self.last_read = np.full(space_bytes, ALWAYS, dtype=np.int64)
        self.stores_before_last_read = np.full(space_bytes, ALWAYS, dtype=np.int64)
        self.loads = self.stores = self.updates = 0
        self.digest = hashlib.blake2b(digest_size=16)

    def add(self, events: Events, values: Value) -> TouchedBytes:
        touches = _touches(events, values, self.start)
        is_store = events["kind"] == Kind.STORE
        stores = events[is_store]
        self.digest.update((stores["offset"].astype(np.uint64) << np.uint64(16) | stores["bytes"]).tobytes())
        stored = is_store[touches.event]
        before = self.stores + np.cumsum(is_store)
        self.stores_before_last_read[touches.byte[~stored]] = before[touches.event[~stored]]
        time = events["time"].astype(np.int64)[touches.event]
        # Times never decrease, and of several assignments to one byte the last one stays.
        self.last_read[touches.byte[~stored]] = time[~stored]
        byte, time = touches.byte[stored][::-1], time[stored][::-1]
        fresh = self.first_write[byte] == NEVER
        self.first_write[byte[fresh]] = time[fresh]
        count = int(is_store.sum())
        self.loads += len(events) - count
        self.stores += count
        self.updates += int(touches.is_update.sum())
        return touches

    def finish(self, op: int, end: int) -> Span:
        counts = Counts(self.start, end, self.loads, self.stores, self.updates)
        loaded = np.flatnonzero(self.stores_before_last_read != ALWAYS)
        self.digest.update(loaded.tobytes() + self.stores_before_last_read[loaded].tobytes())
        return Span(op, counts, self.first_write, self.last_read, self.digest.digest())


def _touches(events: Events, values: Value, op_start: int) -> TouchedBytes:
    """Writes the events out by byte, follows each byte's values, and leaves in `values` those that live on.

    Sorted by byte, a byte's touches fall into pieces: each is a store and the loads of what it stored. Only a byte's
    first piece may lack the store; then it goes on with the value that was there.
    """
    event, byte = _by_byte(events)
    order = np.argsort(byte, kind="stable")
    where = byte[order]
    time = events["time"].astype(np.int64)[event[order]]
    stored = (events["kind"] == Kind.STORE)[event[order]]
    new_byte = np.append(True, where[1:] != where[:-1])[: len(where)]

    begin = np.flatnonzero(new_byte | stored)
    last = np.append(begin[1:], len(where))[: len(begin)] - 1
    at, by_store = where[begin], stored[begin]
    is_first, is_last = new_byte[begin], np.append(new_byte[begin][1:], True)[: len(begin)]
    birth = np.where(by_store, time[begin], values.birth[at])
    last_read = np.where(stored[last], ALWAYS, time[last])

    # What a store replaces: the piece before it, or else the value from before these events.
    old_birth = np.where(is_first, values.birth[at], np.roll(birth, 1))[by_store]
    old_read = np.where(is_first, values.last_read[at], np.roll(last_read, 1))[by_store]
    was_read = (old_read != ALWAYS) & (old_read >= old_birth)
    is_update = np.zeros(len(events), dtype=np.bool_)
    is_update[event[order[begin[by_store][was_read & (old_birth >= op_start)]]]] = True

    values.birth[at[is_last]] = birth[is_last]
    values.last_read[at[is_last]] = last_read[is_last]
    return TouchedBytes(events, event, byte, is_update, at[by_store][was_read], old_birth[was_read], old_read[was_read])


def _by_byte(events: Events) -> tuple[IntArray, IntArray]:
    """For every byte touched, in order: the number of the event, and the byte."""
    count = events["bytes"].astype(np.int64)
    event = np.repeat(np.arange(len(events), dtype=np.int64), count)
    within = np.arange(len(event), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return event, events["offset"].astype(np.int64)[event] + within


SAMPLES = 512
"""Bytes checked before all of them are: an unsafe overlap is usually unsafe in many places."""


@dataclass(frozen=True, slots=True)
class TracedOverlap:
    """Bytes by which the input's start may lie over the output's end.

    `monotone`: every smaller overlap is safe too, so a planner may shrink it. `largest`: safe, though a smaller one
    may not be; not beyond the larger of the two buffers, where their union grows again, unless `monotone` is.
    """

    monotone: int
    largest: int


def traced_overlap(first_write: IntArray, last_read: IntArray) -> TracedOverlap:
    """O_s of an output and an input, from the times of each one's bytes in one run."""
    limit = traced_separation(first_write, last_read)
    monotone = max(0, len(first_write) - limit)
    return TracedOverlap(monotone, _largest(first_write, last_read, monotone))


def traced_separation(first_write: IntArray, last_read: IntArray) -> int:
    """separation(output below, input above) in bytes: the highest end of a byte written, less the lowest byte read
    later, over all times. Clamped at minus the input's size, which also stands for "no limit"."""
    written, read = np.flatnonzero(first_write != NEVER), np.flatnonzero(last_read != ALWAYS)
    by_time = read[np.argsort(last_read[read], kind="stable")]
    lowest_from = np.minimum.accumulate(by_time[::-1])[::-1]
    # A byte read by the instruction that writes is read first, and is out of danger.
    later = np.searchsorted(last_read[by_time], first_write[written], side="right")
    meets = later < len(read)
    if not meets.any():
        return -len(last_read)
    return max(-len(last_read), int((written[meets] + 1 - lowest_from[later[meets]]).max()))


def is_safe(first_write: IntArray, last_read: IntArray, overlap: int, step: int = 1) -> bool:
    """Whether no output byte is written before the last read of the input byte at its address, looking at every
    `step`-th address."""
    shift = len(first_write) - overlap
    begin, end = max(0, shift), min(len(first_write), shift + len(last_read))
    if begin >= end:
        return True
    return not (first_write[begin:end:step] < last_read[begin - shift : end - shift : step]).any()


def _largest(first_write: IntArray, last_read: IntArray, monotone: int) -> int:
    for overlap in range(max(len(first_write), len(last_read)), monotone, -1):
        shared = min(overlap, len(first_write), len(last_read))
        # An odd step, so that no alignment hides from it.
        sample = max(1, shared // SAMPLES) | 1
        if is_safe(first_write, last_read, overlap, sample) and is_safe(first_write, last_read, overlap):
            return overlap
    return monotone


SEEDS = (1, 2)


class Executable(Protocol):
    """Compiled code that a tracer can run. `contents`: of each of its buffers before the run."""

    @property
    def space_bytes(self) -> int: ...

    def run(self, contents: Sequence[bytes], recorder: Recorder) -> None: ...


@dataclass(frozen=True, slots=True)
class CallTrace:
    """`overlaps[i][o]`: of the call's i-th input and o-th output."""

    call: Call
    counts: Counts
    overlaps: tuple[tuple[TracedOverlap, ...], ...]


def trace(
    program: Executable,
    contents: Callable[[int], Sequence[bytes]],
    on_span: Callable[[Span], None],
    name_of: Callable[[int], str] = "operation {}".format,
) -> None:
    """Runs the program twice and hands on the operations of the first run, if both touch the same bytes in the same
    order. `contents`: seed -> the buffers' contents. `name_of`: the n-th operation that runs -> what to call it."""
    prints: list[list[bytes]] = []
    for seed in SEEDS:
        found: list[bytes] = []

        def take(span: Span, found: list[bytes] = found, is_first: bool = not prints) -> None:
            found.append(span.fingerprint)
            if is_first:
                on_span(span)

        program.run(contents(seed), Recorder(program.space_bytes, take))
        prints.append(found)
    for number, (first, second) in enumerate(zip(*prints, strict=False)):
        if first != second:
            raise TraceError(
                f"{name_of(number)}: it touches memory in an order that depends on its data; "
                "no safe overlap follows from a trace of it"
            )
    if len(prints[0]) != len(prints[1]):
        raise TraceError("the program runs different operations on different data; it cannot be traced")


def trace_call(program: Executable, call: Call) -> CallTrace:
    """Traces the one operation of a program that makes a call."""
    spans: list[Span] = []
    trace(program, call.contents, spans.append, lambda _: call.function)
    sources, targets = call.places(Role.INPUT), call.places(Role.OUTPUT)
    overlaps = tuple(tuple(overlap_of(spans[0], source, target) for target in targets) for source in sources)
    return CallTrace(call, spans[0].counts, overlaps)


def overlap_of(span: Span, source: range, target: range) -> TracedOverlap:
    """O_s of the input and the output that lie at these places of the traced space."""
    return traced_overlap(span.first_write[target.start : target.stop], span.last_read[source.start : source.stop])


def observe(program: Executable, contents: Sequence[bytes], on_touches: Callable[[TouchedBytes], None]) -> Recorder:
    """Runs the program once more, for a picture. The recorder knows the values in the space at the end."""
    recorder = Recorder(program.space_bytes, lambda _: None, on_touches)
    program.run(contents, recorder)
    return recorder
