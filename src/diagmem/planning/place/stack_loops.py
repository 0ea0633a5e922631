"""The loops that look at what is still to be placed: how low each buffer can start, and whether the buffers of each
section can still be stacked up within the arena."""

from __future__ import annotations

from typing import NamedTuple

from diagmem.planning.place.flat import FAR, NOWHERE, Links

NODES, BUDGET, TRAIL, JUMPS, BY_RANK, CAPACITY = 0, 1, 2, 3, 4, 5
"""Places in `counts`: nodes so far, at the most, length of the trail, whether failures jump back, whether candidates
are tried by rank (else by offset), and the bytes that there are."""

COUNT, CHOSEN, CANDIDATES, NEXT, MARK, LOW, HIGH, PART, HAS_NEAR = range(9)
FRAME = 9
"""What a node of the tree remembers: how many members it has, which buffer it placed, how many candidates there are and
which comes next, the trail's length before, its sections, the next part, and whether anyone lives with the chosen."""

RECENT = 4
"""Sections that overflowed last: nine of ten failures are theirs again, so they are looked at before all others."""


class Sections(NamedTuple):
    """Steps at which some set of buffers is alive, none of them within that of another. Buffer b is in the sections
    [first[b], last[b]], and holds there `held[held_from[b]:]` bytes. In section s are the buffers
    `alive[alive_from[s]:alive_from[s + 1]]`."""

    first: list[int]
    last: list[int]
    held_from: list[int]
    held: list[int]
    alive_from: list[int]
    alive: list[int]


class Tree(NamedTuple):
    """By buffer: its rank; the lowest place that those placed leave it, and which of them does; where it was placed;
    its earliest start; how often it failed. By depth, then buffer: members, candidates, who is to blame. By depth, then
    section: lifetimes that cross into it. By section: the top. What to take back. By depth: frames. Room to stack
    buffers; and the sections that overflowed last."""

    rank: list[int]
    lowest: list[int]
    cause: list[int]
    at: list[int]
    early: list[int]
    weight: list[int]
    members: list[int]
    candidates: list[int]
    blame: list[int]
    crossing: list[int]
    top: list[int]
    trail: list[int]
    frames: list[int]
    stack: list[int]
    recent: list[int]
    counts: list[int]


def must_be_lifted_to(buffer: int, current: int, links: Links, tree: Tree) -> int:
    """The least place to which one still to come can lift a buffer that was passed over."""
    best, near, above, at, lowest = FAR, links.near, links.above, tree.at, tree.lowest
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        if current + above[q] >= best:
            break  # Neighbours come by rising `above`.
        other = near[q]
        if at[other] == NOWHERE:
            best = min(best, max(lowest[other], current) + max(above[q], 0))
    return best


def lifted(buffer: int, last: int, links: Links, tree: Tree) -> int:
    """The earliest start of a buffer whose lowest place is not above the one that was placed last."""
    start, current, cause = tree.lowest[buffer], tree.at[last], tree.cause[buffer]
    if start == current and (tree.rank[buffer] > tree.rank[last] or (cause >= 0 and tree.at[cause] == current)):
        return start
    return max(must_be_lifted_to(buffer, current, links, tree), start + 1)


def find_earliest(row: int, last: int, links: Links, tree: Tree) -> bool:
    """Finds the earliest start of each member; False if that is too high for one, which is then blamed."""
    n, early, lowest, members = len(links.size), tree.early, tree.lowest, tree.members
    size, capacity, current = links.size, tree.counts[CAPACITY], tree.at[last] if last >= 0 else -1
    for i in range(row * n, row * n + tree.frames[row * FRAME + COUNT]):
        buffer = members[i]
        start = lowest[buffer]
        if start <= current:
            start = lifted(buffer, last, links, tree)
        early[buffer] = start
        if start + size[buffer] > capacity:
            tree.weight[buffer] += 1
            if tree.cause[buffer] >= 0:
                tree.blame[row * n + tree.cause[buffer]] = 1
            if start != lowest[buffer]:
                tree.blame[row * n + last] = 1
            return False
    return True


def stack_up(section: int, last: int, links: Links, sections: Sections, tree: Tree) -> int:
    """Puts the buffers of a section that are still to be placed on the stack, by (earliest start, rank); how many these
    are. The section keeps the order, which will be nearly right the next time."""
    stack, early, at, rank, lowest = tree.stack, tree.early, tree.at, tree.rank, tree.lowest
    alive, current, count = sections.alive, at[last] if last >= 0 else -1, 0
    begin, placed = sections.alive_from[section], len(stack)
    for q in range(begin, sections.alive_from[section + 1]):
        buffer = alive[q]
        if at[buffer] != NOWHERE:
            placed -= 1
            stack[placed] = buffer
            continue
        start = lowest[buffer]
        if start <= current:
            start = lifted(buffer, last, links, tree)
        early[buffer] = start
        j = count
        while j > 0:
            other = stack[j - 1]
            if early[other] < start or (early[other] == start and rank[other] < rank[buffer]):
                break
            stack[j] = other
            j -= 1
        stack[j] = buffer
        count += 1
    for i in range(count):
        alive[begin + i] = stack[i]
    for i in range(len(stack) - placed):
        alive[begin + count + i] = stack[placed + i]
    return count


def overflows(section: int, row: int, last: int, links: Links, sections: Sections, tree: Tree) -> bool:
    """Whether the buffers of a section that are still to be placed come to lie above the end of the arena, stacked from
    their earliest starts on. If so, what raised those since the last idle gap is blamed in the row."""
    count, stack, early = stack_up(section, last, links, sections, tree), tree.stack, tree.early
    top, begin, capacity = 0, 0, tree.counts[CAPACITY]
    held, held_from, first = sections.held, sections.held_from, sections.first
    for i in range(count):
        buffer = stack[i]
        if early[buffer] >= top:
            begin, top = i, early[buffer]
        top += held[held_from[buffer] + section - first[buffer]]
        if top > capacity:
            blame_stack(begin, i + 1, row, last, tree)
            return True
    return False


def blame_stack(begin: int, end: int, row: int, last: int, tree: Tree) -> None:
    """Blames what raised some of the buffers that were stacked, and makes these heavier."""
    blamed = row * len(tree.rank)
    for i in range(begin, end):
        buffer = tree.stack[i]
        tree.weight[buffer] += 1
        if tree.cause[buffer] >= 0:
            tree.blame[blamed + tree.cause[buffer]] = 1
        if tree.early[buffer] != tree.lowest[buffer] and last >= 0:
            tree.blame[blamed + last] = 1


def remember(section: int, tree: Tree) -> None:
    """Puts a section that overflowed first among the recent ones."""
    recent, place = tree.recent, 0
    while place < RECENT - 1 and recent[place] != section:
        place += 1
    while place > 0:
        recent[place] = recent[place - 1]
        place -= 1
    recent[0] = section


def recent_overflows(row: int, last: int, links: Links, sections: Sections, tree: Tree) -> bool:
    """Whether one of the recent sections, of those of the row above, overflows now; then that is blamed in the row."""
    low, high = tree.frames[(row - 1) * FRAME + LOW], tree.frames[(row - 1) * FRAME + HIGH]
    for place in range(RECENT):
        section = tree.recent[place]
        if low <= section <= high and overflows(section, row, last, links, sections, tree):
            remember(section, tree)
            return True
    return False


def sort_members(begin: int, end: int, tree: Tree) -> None:
    """By (earliest start, rank); insertion, because the order of the node above is nearly right."""
    members, early, rank = tree.members, tree.early, tree.rank
    for i in range(begin + 1, end):
        buffer = members[i]
        start, own = early[buffer], rank[buffer]
        j = i
        while j > begin:
            other = members[j - 1]
            if early[other] < start or (early[other] == start and rank[other] < own):
                break
            members[j] = other
            j -= 1
        members[j] = buffer


def overflowing(row: int, sections: Sections, tree: Tree) -> int:
    """Stacks the members of each section from their earliest starts on, which is exact for one section alone: the first
    section that overflows, NOWHERE if none does."""
    begin, top, capacity = row * len(tree.rank), tree.top, tree.counts[CAPACITY]
    members, early, firsts, lasts, held = tree.members, tree.early, sections.first, sections.last, sections.held
    for section in range(tree.frames[row * FRAME + LOW], tree.frames[row * FRAME + HIGH] + 1):
        top[section] = 0
    for i in range(begin, begin + tree.frames[row * FRAME + COUNT]):
        buffer = members[i]
        start, first = early[buffer], firsts[buffer]
        held_from = sections.held_from[buffer] - first
        for section in range(first, lasts[buffer] + 1):
            end = max(top[section], start) + held[held_from + section]
            if end > capacity:
                return section
            top[section] = end
    return NOWHERE
