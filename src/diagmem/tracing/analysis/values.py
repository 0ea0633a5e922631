"""From when to when each traced byte holds a value, and where a plan would lose one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.planning.plan import Plan
from diagmem.tracing.capture.events import ALWAYS, NEVER, Span


@dataclass(frozen=True, slots=True)
class Lost:
    """An address at which two buffers of a plan, by what was traced, hold values at once."""

    first: str
    second: str
    byte: int

    def __str__(self) -> str:
        return f"'{self.first}' and '{self.second}' are both in use at byte {self.byte} of the arena"


class _Lives(NamedTuple):
    """For some bytes of the traced space: when each is written, and when last used."""

    byte: IntArray
    begin: IntArray
    end: IntArray


class TracedWindows:
    """For each byte of the traced space, when it is first written and when last used, over a whole run; a byte that is
    made again lives again."""

    def __init__(self, space_bytes: int) -> None:
        self._begin = np.full(space_bytes, NEVER, dtype=np.int64)
        self._end = np.full(space_bytes, ALWAYS, dtype=np.int64)
        self._ended: list[_Lives] = []

    def add(self, span: Span) -> None:
        written, read = np.flatnonzero(span.first_write != NEVER), np.flatnonzero(span.last_read != ALWAYS)
        self._begin[written] = np.minimum(self._begin[written], span.first_write[written])
        self._end[read] = np.maximum(self._end[read], span.last_read[read])
        # A value that nobody reads still destroys what was there.
        self._end[written] = np.maximum(self._end[written], span.first_write[written])

    def end_lives(self, places: Iterable[slice]) -> None:
        """What lies there is about to be made again."""
        for place in places:
            byte = np.arange(place.start, place.stop)
            self._ended.append(_Lives(byte, self._begin[byte], self._end[byte]))
            self._begin[byte], self._end[byte] = NEVER, ALWAYS

    def begin_early(self, place: range) -> None:
        """Something is there before the run."""
        self._begin[place.start : place.stop] = ALWAYS

    def end_late(self, place: range) -> None:
        """It is needed after the run."""
        self._end[place.start : place.stop] = NEVER

    def lives(self) -> _Lives:
        """All of them, but for bytes that nobody uses."""
        last = _Lives(np.arange(len(self._begin)), self._begin, self._end)
        byte, begin, end = (np.concatenate(column) for column in zip(*self._ended, last, strict=True))
        used = (begin != NEVER) & (end != ALWAYS)
        return _Lives(byte[used], begin[used], end[used])


def lost_values(plan: Plan, apart: Sequence[int], windows: TracedWindows) -> Iterator[Lost]:
    """Pairs of buffers that share an address while both hold values there, with the first such address of each.
    `apart`: where each of the plan's buffers was traced, ascending, and the end of the last one."""
    byte, begin, end = windows.lives()
    buffer = np.searchsorted(np.array(apart), byte, side="right") - 1
    address = byte + (np.array(plan.buffer_offsets, dtype=np.int64) - np.array(apart[:-1], dtype=np.int64))[buffer]
    order = np.lexsort((begin, address))
    buffer, address, begin, end = buffer[order], address[order], begin[order], end[order]
    # At one address by the time of their beginning, lives are apart if each has ended when the next one begins.
    clash = (address[1:] == address[:-1]) & (begin[1:] < end[:-1]) & (buffer[1:] != buffer[:-1])
    found: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(clash).tolist():
        found.setdefault((int(buffer[at]), int(buffer[at + 1])), int(address[at]))
    for (first, second), lowest in found.items():
        yield Lost(plan.buffers[first].name, plan.buffers[second].name, lowest)
