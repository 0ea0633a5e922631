"""Tracing a program: twice, with different data, so that what depends on data is refused and not measured. The safe
overlap O_s follows from each input byte's last read and each output byte's first write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from diagmem.model.errors import TraceError
from diagmem.model.graph import IntArray
from diagmem.tracing.capture.calls import Call, Role
from diagmem.tracing.capture.events import ALWAYS, NEVER, Recorder, Span, TouchedBytes

SAMPLES = 512
"""Bytes looked at before all of them are: an overlap that is unsafe mostly is so in many places."""


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
    """Compiled code that a tracer can run. `contents`: what each of its buffers holds before."""

    @property
    def space_bytes(self) -> int: ...

    def run(self, contents: Sequence[bytes], recorder: Recorder) -> None: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """What one operation did: when it began and ended, in instructions, and its events in the traced buffers."""

    start: int
    end: int
    loads: int
    stores: int
    updates: int

    @classmethod
    def of(cls, span: Span) -> Counts:
        return cls(span.start, span.end, span.loads, span.stores, span.updates)

    @property
    def instructions(self) -> int:
        return self.end - self.start


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
        raise TraceError("the program runs other operations when its data change; it cannot be traced")


def trace_call(program: Executable, call: Call) -> CallTrace:
    """Traces the one operation of a program that makes a call."""
    found: list[CallTrace] = []
    trace(program, call.contents, lambda span: found.append(_call_trace(call, span)), lambda _: call.function)
    return found[0]


def _call_trace(call: Call, span: Span) -> CallTrace:
    return CallTrace(
        call,
        Counts.of(span),
        tuple(
            tuple(overlap_of(span, source, target) for target in call.places(Role.OUTPUT))
            for source in call.places(Role.INPUT)
        ),
    )


def overlap_of(span: Span, source: range, target: range) -> TracedOverlap:
    """O_s of the input and the output that lie at these places of the traced space."""
    return traced_overlap(
        span.first_write[target.start : target.stop],
        span.last_read[source.start : source.stop],
    )


def observe(program: Executable, contents: Sequence[bytes], on_touches: Callable[[TouchedBytes], None]) -> Recorder:
    """Runs the program once more, for a picture. The recorder that comes back knows what the bytes hold at the end."""
    recorder = Recorder(program.space_bytes, lambda _: None, on_touches)
    program.run(contents, recorder)
    return recorder
