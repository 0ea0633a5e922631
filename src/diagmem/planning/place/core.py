"""Which buffers make a problem hard, and which always find a place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets, first_fit


def core(problem: Problem, limit: int) -> tuple[list[int], list[int]]:
    """Splits buffers into those that matter for an arena of `limit` bytes, and the rest in the order of its removal.

    Pigeonhole: if a buffer's neighbours cannot block all the places where it may start, wherever they lie, then it can
    be left out and placed last. Without it, its neighbours may follow.
    """
    left = set(range(len(problem.buffers)))
    removed: list[int] = []
    queue = sorted(left)
    while queue:
        leaving = [b for b in queue if b in left and _always_fits(problem, b, left, limit)]
        queue = []
        for buffer in leaving:
            # Those that left just before it no longer block it; that makes it fit all the more.
            left.discard(buffer)
            removed.append(buffer)
            queue.extend(index for index, _, _ in problem.neighbours(buffer) if index in left)
        queue = sorted(set(queue))
    return sorted(left), removed


def _always_fits(problem: Problem, buffer: int, left: set[int], limit: int) -> bool:
    unit, size_bytes = problem.unit_bytes, problem.buffers[buffer].size_bytes
    stride = problem.buffers[buffer].align_bytes // unit
    places = (limit - size_bytes) // problem.buffers[buffer].align_bytes + 1
    for index, below, above in problem.neighbours(buffer):
        if index in left:
            # An open interval of n units between whole units holds n - 1 of them inside.
            places -= -(-((below + above) // unit - 1) // stride)
            if places <= 0:
                return False
    return places > 0


def with_removed(problem: Problem, placed: Sequence[int | None], removed: Iterable[int]) -> Offsets:
    """Puts back what `core` took out, last out first in; each finds a place within the limit."""
    offsets = first_fit(problem, reversed(list(removed)), placed=list(placed))
    if offsets is None:
        raise AssertionError("first fit without a limit always ends")
    return offsets


def components(problem: Problem, members: Collection[int]) -> list[list[int]]:
    """Groups of members that have nothing to do with each other, the one with most bytes first."""
    left, found = set(members), []
    while left:
        group, stack = [], [min(left)]
        left.discard(stack[0])
        while stack:
            buffer = stack.pop()
            group.append(buffer)
            near = [index for index, _, _ in problem.neighbours(buffer) if index in left]
            left.difference_update(near)
            stack.extend(near)
        found.append(sorted(group))
    return sorted(found, key=lambda g: (-sum(problem.buffers[b].size_bytes for b in g), g))
