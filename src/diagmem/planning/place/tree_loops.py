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

from diagmem.planning.place.flat import FAR, NOWHERE, Links
from diagmem.planning.place.stack_loops import (
    BUDGET,
    BY_RANK,
    CANDIDATES,
    CHOSEN,
    COUNT,
    FRAME,
    HAS_NEAR,
    HIGH,
    JUMPS,
    LOW,
    MARK,
    NEXT,
    NODES,
    PART,
    TRAIL,
    Sections,
    Tree,
    blame_stack,
    find_earliest,
    lifted,
    must_be_lifted_to,
    overflowing,
    overflows,
    recent_overflows,
    remember,
    sort_members,
    stack_up,
)

FAILED, SOLVED, SPENT = 0, 1, 2
_OPEN, _PLACED, _REFUSED = 3, 4, 5

LOOPS = (
    must_be_lifted_to.__name__,
    lifted.__name__,
    find_earliest.__name__,
    blame_stack.__name__,
    stack_up.__name__,
    overflows.__name__,
    remember.__name__,
    recent_overflows.__name__,
    sort_members.__name__,
    overflowing.__name__,
    "clear_of_placed",
    "list_candidates",
    "clear_blame",
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


def clear_of_placed(buffer: int, offset: int, loose: Links, at: list[int]) -> int:
    """The lowest aligned place from an aligned one on that is clear of those placed which it may start below."""
    align = loose.align[buffer]
    is_clear = False
    while not is_clear:
        is_clear = True
        for q in range(loose.near_from[buffer], loose.near_from[buffer + 1]):
            place = at[loose.near[q]]
            if place != NOWHERE and place - loose.below[q] < offset < place + loose.above[q]:
                offset = -(-(place + loose.above[q]) // align) * align
                is_clear = False
    return offset


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


def clear_blame(row: int, tree: Tree) -> None:
    """Nobody is to blame for what comes in the row."""
    blame, n = tree.blame, len(tree.rank)
    for i in range(row * n, row * n + n):
        blame[i] = 0


def open_node(row: int, links: Links, sections: Sections, tree: Tree) -> int:
    """Looks at a new node: FAILED, or open with its candidates listed."""
    n, frame = len(tree.rank), row * FRAME
    begin = row * n
    end = begin + tree.frames[frame + COUNT]
    chosen = tree.frames[frame - FRAME + CHOSEN] if row > 0 else NOWHERE
    clear_blame(row, tree)
    least_end, low, high = FAR, FAR, NOWHERE
    members, lowest, size, first, last = tree.members, tree.lowest, links.size, sections.first, sections.last
    for i in range(begin, end):
        buffer = members[i]
        least_end = min(least_end, lowest[buffer] + size[buffer])
        low, high = min(low, first[buffer]), max(high, last[buffer])
    tree.frames[frame + LOW], tree.frames[frame + HIGH] = low, high
    tree.frames[frame + MARK] = tree.counts[TRAIL]
    if not find_earliest(row, chosen, links, tree):
        return FAILED
    sort_members(begin, end, tree)
    section = overflowing(row, sections, tree)
    if section != NOWHERE and overflows(section, row, chosen, links, sections, tree):
        remember(section, tree)
        return FAILED
    list_candidates(row, least_end, tree)
    return _OPEN


def raise_neighbours(row: int, links: Links, loose: Links, tree: Tree) -> None:
    """Raises whatever the chosen buffer is now in the way of."""
    chosen = tree.frames[row * FRAME + CHOSEN]
    offset, end = tree.at[chosen], tree.counts[TRAIL]
    near, below, above = links.near, links.below, links.above
    at, lowest, cause, trail, has_near = tree.at, tree.lowest, tree.cause, tree.trail, 0
    align, loose_from = links.align, loose.near_from
    for q in range(links.near_from[chosen], links.near_from[chosen + 1]):
        other = near[q]
        if at[other] != NOWHERE:
            continue
        has_near, start = 1, lowest[other]
        if start < offset + below[q] and (above[q] > 0 or start > offset - above[q]):
            trail[3 * end], trail[3 * end + 1], trail[3 * end + 2] = other, start, cause[other]
            end += 1
            start = -(-(offset + below[q]) // align[other]) * align[other]
            if loose_from[other] < loose_from[other + 1]:
                start = clear_of_placed(other, start, loose, at)
            lowest[other], cause[other] = start, chosen
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
    lowest = tree.lowest
    for i in range(begin, begin + frames[row * FRAME + COUNT]):
        buffer = members[i]
        above, passed = row - 1, NOWHERE
        while above >= 0:
            other = frames[above * FRAME + CHOSEN]
            lies = at[other] - lowest[buffer]
            if lies < 0 or (lies == 0 and rank[other] < rank[buffer]):
                break
            passed, above = other, above - 1
        if passed >= 0:
            tree.blame[begin + passed] = 1


def choose(row: int, links: Links, loose: Links, sections: Sections, tree: Tree) -> int:
    """Places the next candidate: REFUSED if others no longer fit above it, FAILED if there is none left."""
    frame = row * FRAME
    following = tree.frames[frame + NEXT]
    if following == tree.frames[frame + CANDIDATES]:
        blame_passed_over(row, tree)
        return FAILED
    buffer = tree.candidates[row * len(tree.rank) + following]
    tree.frames[frame + NEXT] = following + 1
    tree.frames[frame + CHOSEN] = buffer
    tree.at[buffer] = tree.lowest[buffer]
    tree.counts[NODES] += 1
    raise_neighbours(row, links, loose, tree)
    clear_blame(row + 1, tree)
    if recent_overflows(row + 1, buffer, links, sections, tree):
        return _REFUSED
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


def search(links: Links, loose: Links, sections: Sections, tree: Tree) -> int:
    """SOLVED: all are placed in `tree.at`. FAILED: the tree has no more nodes. SPENT: the budget is."""
    row = 0
    outcome = open_node(row, links, sections, tree)
    while True:
        if outcome == FAILED:
            row -= 1
            if row < 0:
                return FAILED
            outcome = take_back(row, tree)
        elif outcome == _REFUSED:
            outcome = take_back(row, tree)
        elif outcome == _OPEN:
            outcome = choose(row, links, loose, sections, tree)
        elif next_part(row, sections, tree):
            if tree.counts[NODES] >= tree.counts[BUDGET]:
                return SPENT
            row += 1
            outcome = open_node(row, links, sections, tree)
        else:
            row -= 1
            if row < 0:
                return SOLVED
