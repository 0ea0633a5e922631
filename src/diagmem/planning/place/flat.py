"""A problem as flat sequences of integers, for loops that run millions of times.

The same loops run as plain Python on lists, and compiled on arrays (see `compiled`): both count the same work in the
same order, and so end with the same placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from diagmem.planning.needs.problem import Problem

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
    near_from, near, below, above = problem.near
    chosen = np.arange(len(problem.buffers)) if members is None else np.array(members, dtype=np.int64)
    if members is not None:
        place_of = np.full(len(problem.buffers), NOWHERE, dtype=np.int64)
        place_of[chosen] = np.arange(len(chosen))
        counts = (near_from[1:] - near_from[:-1])[chosen]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        which = np.repeat(near_from[:-1][chosen], counts) + within
        own, other = np.repeat(np.arange(len(chosen)), counts), place_of[near[which]]
        is_in = other != NOWHERE
        near, below, above = other[is_in], below[which][is_in], above[which][is_in]
        near_from = np.concatenate(([0], np.cumsum(np.bincount(own[is_in], minlength=len(chosen)))))
    buffers = [problem.buffers[buffer] for buffer in chosen.tolist()]
    sizes, aligns = [b.size_bytes for b in buffers], [b.align_bytes for b in buffers]
    return Links(sizes, aligns, *cast("Sequence[list[int]]", (near_from, near, below, above)))


def rows_of(lists: Iterable[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Where each list begins in all of them put together, and these."""
    begins: list[int] = [0]
    together: list[int] = []
    for each in lists:
        together.extend(each)
        begins.append(len(together))
    return begins, together
