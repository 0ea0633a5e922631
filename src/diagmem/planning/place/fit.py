"""First fit: each buffer, in a given order, at the lowest place that is free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diagmem.planning.needs.problem import Problem

Offsets = tuple[int, ...]
"""Where each buffer of a problem starts, in bytes."""

Partial = list[int | None]
"""Offsets of which some are not known yet."""


def lowest_fit(problem: Problem, buffer: int, placed: Sequence[int | None]) -> int:
    """The lowest offset that keeps the buffer clear of those already placed."""
    links = problem.neighbours(buffer)
    taken = [(at - below, at + above) for index, below, above in links if (at := placed[index]) is not None]
    return lowest_clear(taken, problem.buffers[buffer].align_bytes)


def lowest_clear(taken: list[tuple[int, int]], align: int) -> int:
    """The lowest multiple of `align` that lies in none of these open intervals."""
    taken.sort()
    offset = 0
    for low, high in taken:
        if offset <= low:
            break
        if offset < high:
            offset = -(-high // align) * align
    return offset


def first_fit(
    problem: Problem, order: Iterable[int], limit: int | None = None, placed: Partial | None = None
) -> Offsets | None:
    """Offsets of all buffers, placed in this order after those in `placed`; None as soon as one ends above `limit`."""
    offsets: Partial = [None] * len(problem.buffers) if placed is None else list(placed)
    for buffer in order:
        at = lowest_fit(problem, buffer, offsets)
        if limit is not None and at + problem.buffers[buffer].size_bytes > limit:
            return None
        offsets[buffer] = at
    return tuple(o for o in offsets if o is not None)
