"""Tracing a program: twice, with different data, so that what depends on data is refused and not measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagmem.model.errors import TraceError
from diagmem.tracing.analysis.overlap import TracedOverlap, traced_overlap
from diagmem.tracing.capture.calls import Call, Role
from diagmem.tracing.capture.events import Recorder, Span, TouchedBytes

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
