"""The safe overlap O_s of two traced buffers: from each input byte's last read and each output byte's first write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagmem.model.graph import IntArray
from diagmem.tracing.capture.events import ALWAYS, NEVER

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
