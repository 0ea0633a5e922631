"""What makes a problem hard: its core and components, and those of them that are solved without a search.

Where no buffers live at once in a circle, as in chains of operations, the common case in small networks, placement is
exact. Take a tree of buffers, two being joined if they live at once, and an arena's size. For a buffer and the part of
the tree below it, let low and high be the least and greatest start for which that part can be placed. Its parent may
start at x if x is far enough above low, or far enough below high; what lies between does not matter. So two numbers for
each buffer, from the leaves up, decide whether all fit, and a walk back down places them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets, first_fit


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and greatest start of a buffer."""

    low: int
    high: int


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


def spanning_forest(problem: Problem, members: Iterable[int]) -> list[int]:
    """As many members as can be kept without a circle, larger ones first. Each of its bounds holds for the whole."""
    root: dict[int, int] = {}
    near_from, near = problem.near.near_from.tolist(), problem.near.near.tolist()

    def find(buffer: int) -> int:
        while root[buffer] != buffer:
            root[buffer] = root[root[buffer]]
            buffer = root[buffer]
        return buffer

    for buffer in sorted(members, key=lambda b: (-problem.buffers[b].size_bytes, b)):
        trees: set[int] = set()
        for q in range(near_from[buffer], near_from[buffer + 1]):
            if near[q] in root:
                tree = find(near[q])
                if tree in trees:
                    break
                trees.add(tree)
        else:
            root[buffer] = buffer
            root.update(dict.fromkeys(trees, buffer))
    return sorted(root)


def place_forest(problem: Problem, members: Collection[int], limit: int) -> dict[int, int] | None:
    """Offsets of the members of a forest in an arena of `limit` bytes; None: there are none."""
    offsets: dict[int, int] = {}
    inside = set(members)
    for start in sorted(inside):
        if start in offsets:
            continue
        walk = _walk(problem, start, inside)
        ranges: dict[int, _Range] = {}
        for buffer, parent in reversed(walk):
            found = _range(problem, buffer, parent, inside, ranges, limit)
            if found is None:
                return None
            ranges[buffer] = found
        for buffer, parent in walk:
            offsets[buffer] = ranges[buffer].low
            if parent is not None:
                below = next(below for n, below, _ in problem.neighbours(buffer) if n == parent)
                fits_low = offsets[parent] - ranges[buffer].low >= below
                offsets[buffer] = ranges[buffer].low if fits_low else ranges[buffer].high
    return offsets


def _walk(problem: Problem, start: int, inside: set[int]) -> list[tuple[int, int | None]]:
    """Buffers of a tree with their parents, parents first."""
    walk: list[tuple[int, int | None]] = [(start, None)]
    for buffer, parent in walk:
        walk.extend((n, buffer) for n, _, _ in problem.neighbours(buffer) if n in inside and n != parent)
    return walk


def _range(
    problem: Problem, buffer: int, parent: int | None, inside: set[int], ranges: dict[int, _Range], limit: int
) -> _Range | None:
    """Where a buffer may start so that all its children find a place too."""
    children = [near for near in problem.neighbours(buffer) if near[0] in inside and near[0] != parent]
    taken = [(ranges[n].high - below, ranges[n].low + above) for n, below, above in children]
    align = problem.buffers[buffer].align_bytes
    top = (limit - problem.buffers[buffer].size_bytes) // align * align
    low = 0
    for start, end in sorted(taken):
        if start < low < end:
            low = -(-end // align) * align
    high = top
    for start, end in sorted(taken, key=lambda t: -t[1]):
        if start < high < end:
            high = start // align * align
    return _Range(low, high) if low <= top and high >= 0 else None


def forest_bound(problem: Problem, members: Collection[int], low: int, high: int) -> int:
    """The least arena in [low, high] that the forest fits into, `high` if none less does; in whole units."""
    unit = problem.unit_bytes
    # Most fit into no more than that, so it comes first.
    middle = low // unit * unit
    while low < high:
        if place_forest(problem, members, middle) is None:
            low = middle + unit
        else:
            high = middle
        middle = (low + high) // 2 // unit * unit
    return high
