"""The loops of the search from the bottom up, on flat sequences; `compiled` makes machine code of them.

A placement can be pushed down until each buffer stands on another one or on 0. Taken by rising (offset, rank), each
buffer then goes to the top of what already lies under it; so the search only chooses who is next. A node of its tree is
a set of buffers still to be placed, all of them at or above the one placed last:

- Nobody may start at or above the lowest possible end of another one: that one could go below.
- One whose lowest place was passed over must be lifted by another one that is still to come.
- The buffers of one section, all alive at once, lie one above the other from their earliest starts on.

What is left to be placed falls apart where no lifetime crosses, and each part is solved by itself. A failure is blamed
on the buffers that brought it about, and a node whose own choice is not among them fails with it. That is quick, but
not exact: why others were no candidates is not looked into. Without `JUMPS` the search is.
"""

from __future__ import annotations

from typing import NamedTuple

from diagmem.planning.allocators.flat import FAR, NOWHERE, Links

FAILED, SOLVED, SPENT = 0, 1, 2
_OPEN, _PLACED = 3, 4

NODES, BUDGET, TRAIL, JUMPS, BY_RANK, CAPACITY = 0, 1, 2, 3, 4, 5
"""Places in `counts`: nodes so far, at the most, length of the trail, whether failures jump back, whether candidates
are tried by rank (else by offset), and the bytes that there are."""

COUNT, CHOSEN, CANDIDATES, NEXT, MARK, LOW, HIGH, PART, HAS_NEAR = range(9)
FRAME = 9
"""What a node of the tree remembers: how many members it has, which buffer it placed, how many candidates there are and
which comes next, the trail's length before, its sections, the next part, and whether anyone lives with the chosen."""

LOOPS = (
    "clear_of_placed",
    "must_be_lifted_to",
    "find_earliest",
    "sort_members",
    "blame_section",
    "sweep_sections",
    "list_candidates",
    "open_node",
    "raise_neighbours",
    "count_crossings",
    "blame_passed_over",
    "choose",
    "next_part",
    "take_back",
    "search",
)
"""What is compiled, callees first."""

ENTRIES = ("search",)
"""What is called from outside."""


class Sections(NamedTuple):
    """Steps at which some set of buffers is alive, none of them within that of another. Buffer b is in the sections
    [first[b], last[b]], and holds there `held[held_from[b]:]` bytes."""

    first: list[int]
    last: list[int]
    held_from: list[int]
    held: list[int]


class Tree(NamedTuple):
    """By buffer: its rank; the lowest place that those placed leave it, and which of them does; where it was placed;
    its earliest start; how often it failed. By depth, then buffer: members, candidates, who is to blame. By depth, then
    section: lifetimes that cross into it. By section: the top. What to take back. By depth: frames."""

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
    counts: list[int]


def clear_of_placed(buffer: int, offset: int, links: Links, at: list[int]) -> int:
    """The lowest aligned place from the offset on that is clear of those placed which it may start below."""
    align = links.align[buffer]
    offset = -(-offset // align) * align
    is_clear = False
    while not is_clear:
        is_clear = True
        for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
            place = at[links.near[q]]
            if place != NOWHERE and links.below[q] <= 0 and place - links.below[q] < offset < place + links.above[q]:
                offset = -(-(place + links.above[q]) // align) * align
                is_clear = False
    return offset


def must_be_lifted_to(buffer: int, current: int, links: Links, tree: Tree) -> int:
    """The least place to which one still to come can lift a buffer that was passed over."""
    best, near, above, at, lowest = FAR, links.near, links.above, tree.at, tree.lowest
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = near[q]
        if at[other] == NOWHERE:
            best = min(best, max(lowest[other], current) + max(above[q], 0))
    return best


def find_earliest(row: int, links: Links, tree: Tree) -> bool:
    """Finds the earliest start of each member; False if that is too high for one, which is then blamed."""
    n, early, lowest, rank, members = len(links.size), tree.early, tree.lowest, tree.rank, tree.members
    at, causes, size, capacity = tree.at, tree.cause, links.size, tree.counts[CAPACITY]
    last = tree.frames[(row - 1) * FRAME + CHOSEN] if row > 0 else NOWHERE
    current, current_rank = (tree.at[last], rank[last]) if last >= 0 else (0, -1)
    for i in range(row * n, row * n + tree.frames[row * FRAME + COUNT]):
        buffer = members[i]
        cause, start = causes[buffer], lowest[buffer]
        is_open = start > current or (
            start == current and (rank[buffer] > current_rank or (cause >= 0 and at[cause] == current))
        )
        if not is_open:
            start = max(must_be_lifted_to(buffer, current, links, tree), start + 1)
        early[buffer] = start
        if start + size[buffer] > capacity:
            tree.weight[buffer] += 1
            if cause >= 0:
                tree.blame[row * n + cause] = 1
            if not is_open and last >= 0:
                tree.blame[row * n + last] = 1
            return False
    return True


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


def blame_section(row: int, section: int, end: int, sections: Sections, tree: Tree) -> None:
    """Blames what raised the members of a section that overflows, from its last idle gap on, members[:end]."""
    n = len(tree.rank)
    blamed = row * n
    begin, top = blamed, 0
    for i in range(blamed, end):
        buffer = tree.members[i]
        if sections.first[buffer] <= section <= sections.last[buffer]:
            if tree.early[buffer] >= top:
                begin, top = i, tree.early[buffer]
            top += sections.held[sections.held_from[buffer] + section - sections.first[buffer]]
    for i in range(begin, end):
        buffer = tree.members[i]
        if sections.first[buffer] <= section <= sections.last[buffer]:
            tree.weight[buffer] += 1
            if tree.cause[buffer] >= 0:
                tree.blame[blamed + tree.cause[buffer]] = 1
            if tree.early[buffer] != tree.lowest[buffer] and row > 0:
                tree.blame[blamed + tree.frames[(row - 1) * FRAME + CHOSEN]] = 1


def sweep_sections(row: int, sections: Sections, tree: Tree) -> bool:
    """Stacks the members of each section from their earliest starts on, which is exact for one section alone; False if
    one of them overflows."""
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
                blame_section(row, section, i + 1, sections, tree)
                return False
            top[section] = end
    return True


def list_candidates(row: int, least_end: int, tree: Tree) -> None:
    """Lists the members that may be next: open at their lowest place, and not above the least end of any."""
    begin, by_rank, rank = row * len(tree.rank), tree.counts[BY_RANK], tree.rank
    members, candidates, early, lowest = tree.members, tree.candidates, tree.early, tree.lowest
    count = begin
    for i in range(begin, begin + tree.frames[row * FRAME + COUNT]):
        buffer = members[i]
        if early[buffer] >= least_end:
            break
        if early[buffer] == lowest[buffer]:
            j = count
            if by_rank:
                while j > begin and rank[candidates[j - 1]] > rank[buffer]:
                    candidates[j] = candidates[j - 1]
                    j -= 1
            candidates[j] = buffer
            count += 1
    tree.frames[row * FRAME + CANDIDATES] = count - begin
    tree.frames[row * FRAME + NEXT] = 0


def open_node(row: int, links: Links, sections: Sections, tree: Tree) -> int:
    """Looks at a new node: FAILED, or open with its candidates listed."""
    n, frame = len(tree.rank), row * FRAME
    begin = row * n
    end = begin + tree.frames[frame + COUNT]
    tree.counts[NODES] += 1
    blame = tree.blame
    for i in range(begin, begin + n):
        blame[i] = 0
    least_end, low, high = FAR, FAR, NOWHERE
    members, lowest, size, first, last = tree.members, tree.lowest, links.size, sections.first, sections.last
    for i in range(begin, end):
        buffer = members[i]
        least_end = min(least_end, lowest[buffer] + size[buffer])
        low, high = min(low, first[buffer]), max(high, last[buffer])
    tree.frames[frame + LOW], tree.frames[frame + HIGH] = low, high
    tree.frames[frame + MARK] = tree.counts[TRAIL]
    if not find_earliest(row, links, tree):
        return FAILED
    sort_members(begin, end, tree)
    if not sweep_sections(row, sections, tree):
        return FAILED
    list_candidates(row, least_end, tree)
    return _OPEN


def raise_neighbours(row: int, links: Links, tree: Tree) -> None:
    """Raises whatever the chosen buffer is now in the way of."""
    chosen = tree.frames[row * FRAME + CHOSEN]
    offset, end = tree.at[chosen], tree.counts[TRAIL]
    near, below, above = links.near, links.below, links.above
    at, lowest, cause, trail, has_near = tree.at, tree.lowest, tree.cause, tree.trail, 0
    for q in range(links.near_from[chosen], links.near_from[chosen + 1]):
        other = near[q]
        if at[other] != NOWHERE:
            continue
        has_near, start = 1, lowest[other]
        if start < offset + below[q] and (above[q] > 0 or start > offset - above[q]):
            trail[3 * end], trail[3 * end + 1], trail[3 * end + 2] = other, start, cause[other]
            end += 1
            lowest[other], cause[other] = clear_of_placed(other, offset + below[q], links, at), chosen
    tree.frames[row * FRAME + HAS_NEAR], tree.counts[TRAIL] = has_near, end


def count_crossings(row: int, sections: Sections, tree: Tree) -> None:
    """Counts the lifetimes, but for that of the chosen one, that go on from each section into the next."""
    frame, width = row * FRAME, len(tree.top)
    low, high = tree.frames[frame + LOW], tree.frames[frame + HIGH]
    base, crossing, chosen = row * width, tree.crossing, tree.frames[frame + CHOSEN]
    members, first, last = tree.members, sections.first, sections.last
    for section in range(low, high + 2):
        crossing[base + section] = 0
    begin = row * len(tree.rank)
    for i in range(begin, begin + tree.frames[frame + COUNT]):
        buffer = members[i]
        if buffer != chosen:
            crossing[base + first[buffer] + 1] += 1
            crossing[base + last[buffer] + 1] -= 1
    for section in range(low + 1, high + 1):
        crossing[base + section] += crossing[base + section - 1]
    tree.frames[frame + PART] = low


def blame_passed_over(row: int, tree: Tree) -> None:
    """Blames, for each member that was passed over, the first choice that did so."""
    begin, members, frames, at, rank = row * len(tree.rank), tree.members, tree.frames, tree.at, tree.rank
    early, lowest = tree.early, tree.lowest
    for i in range(begin, begin + frames[row * FRAME + COUNT]):
        buffer = members[i]
        if early[buffer] != lowest[buffer]:
            above, passed = row - 1, NOWHERE
            while above >= 0:
                other = frames[above * FRAME + CHOSEN]
                lies = at[other] - lowest[buffer]
                if lies < 0 or (lies == 0 and rank[other] < rank[buffer]):
                    break
                passed, above = other, above - 1
            if passed >= 0:
                tree.blame[begin + passed] = 1


def choose(row: int, links: Links, sections: Sections, tree: Tree) -> int:
    """Places the next candidate; FAILED if there is none left."""
    frame = row * FRAME
    following = tree.frames[frame + NEXT]
    if following == tree.frames[frame + CANDIDATES]:
        blame_passed_over(row, tree)
        return FAILED
    buffer = tree.candidates[row * len(tree.rank) + following]
    tree.frames[frame + NEXT] = following + 1
    tree.frames[frame + CHOSEN] = buffer
    tree.at[buffer] = tree.lowest[buffer]
    raise_neighbours(row, links, tree)
    count_crossings(row, sections, tree)
    return _PLACED


def next_part(row: int, sections: Sections, tree: Tree) -> bool:
    """Hands the members of the next part, where no lifetime crosses, to the node below; False if there is none."""
    n, frame = len(tree.rank), row * FRAME
    base = row * len(tree.top)
    high, chosen = tree.frames[frame + HIGH], tree.frames[frame + CHOSEN]
    low, members, first, crossing = tree.frames[frame + PART], tree.members, sections.first, tree.crossing
    while low <= high:
        end = low + 1
        while end <= high and crossing[base + end] > 0:
            end += 1
        count = 0
        for i in range(row * n, row * n + tree.frames[frame + COUNT]):
            buffer = members[i]
            if buffer != chosen and low <= first[buffer] < end:
                members[(row + 1) * n + count] = buffer
                count += 1
        low = end
        if count > 0:
            tree.frames[frame + PART] = low
            tree.frames[frame + FRAME + COUNT] = count
            return True
    tree.frames[frame + PART] = low
    return False


def take_back(row: int, tree: Tree) -> int:
    """Takes a choice back that failed: the node stays open, or fails too where this choice is not to blame."""
    n, frame = len(tree.rank), row * FRAME
    begin, below = row * n, row * n + n
    at, members, blame, trail, lowest, cause = tree.at, tree.members, tree.blame, tree.trail, tree.lowest, tree.cause
    for i in range(begin, begin + tree.frames[frame + COUNT]):
        at[members[i]] = NOWHERE
    end, mark = tree.counts[TRAIL], tree.frames[frame + MARK]
    while end > mark:
        end -= 1
        other = trail[3 * end]
        lowest[other], cause[other] = trail[3 * end + 1], trail[3 * end + 2]
    tree.counts[TRAIL] = end
    chosen = tree.frames[frame + CHOSEN]
    if tree.frames[frame + HAS_NEAR] == 0:
        return FAILED
    if tree.counts[JUMPS] and blame[below + chosen] == 0:
        for i in range(n):
            blame[begin + i] = blame[below + i]
        return FAILED
    for i in range(n):
        blame[begin + i] |= blame[below + i]
    blame[begin + chosen] = 0
    if cause[chosen] >= 0:
        blame[begin + cause[chosen]] = 1
    return _OPEN


def search(links: Links, sections: Sections, tree: Tree) -> int:
    """SOLVED: all are placed in `tree.at`. FAILED: the tree has no more nodes. SPENT: the budget is."""
    row = 0
    outcome = open_node(row, links, sections, tree)
    while True:
        if outcome == FAILED:
            row -= 1
            if row < 0:
                return FAILED
            outcome = take_back(row, tree)
        elif outcome == _OPEN:
            outcome = choose(row, links, sections, tree)
        elif next_part(row, sections, tree):
            if tree.counts[NODES] >= tree.counts[BUDGET]:
                return SPENT
            row += 1
            outcome = open_node(row, links, sections, tree)
        else:
            row -= 1
            if row < 0:
                return SOLVED
