"""A problem as flat sequences of integers, for loops that run millions of times.

The same loops run as plain Python on lists, and compiled on arrays (see `compiled`): both count the same work in the
same order, and so end with the same placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from diagmem.planning.problem import Problem

NOWHERE = -1
"""The offset of a buffer that is not placed."""

FAR = 1 << 50
"""Bytes: above any offset, and far from where 64 bits end."""


class Links(NamedTuple):
    """Buffers by number, in bytes. Buffer b has the neighbours `near[q]` for q in [near_from[b], near_from[b + 1]), and
    must not start in the open interval from `below[q]` under such a neighbour's start to `above[q]` over it."""

    size: list[int]
    align: list[int]
    near_from: list[int]
    near: list[int]
    below: list[int]
    above: list[int]


def links(problem: Problem, members: Sequence[int] | None = None) -> Links:
    """What the members of a problem are to each other, by their place among the members."""
    chosen = range(len(problem.buffers)) if members is None else members
    number = {buffer: place for place, buffer in enumerate(chosen)}
    near_from, near, below, above = [0], [], [], []
    for buffer in chosen:
        for index, under, over in problem.neighbours[buffer]:
            place = number.get(index)
            if place is not None:
                near.append(place)
                below.append(under)
                above.append(over)
        near_from.append(len(near))
    buffers = [problem.buffers[buffer] for buffer in chosen]
    sizes, aligns = [b.size_bytes for b in buffers], [b.align_bytes for b in buffers]
    return Links(sizes, aligns, near_from, near, below, above)


def rows_of(lists: Iterable[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Where each list begins in all of them put together, and these."""
    begins: list[int] = [0]
    together: list[int] = []
    for each in lists:
        together.extend(each)
        begins.append(len(together))
    return begins, together
