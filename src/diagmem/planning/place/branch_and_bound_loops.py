"""The loops of branch and bound, from the bottom up. The build compiles them, by the types in the .pxd file beside.

A placement can be pushed down until each buffer stands on another one or on 0. Taken by rising (offset, rank), each
buffer then goes to the top of what already lies under it; so the search only chooses who is next. A node of its tree is
a set of buffers still to be placed, all of them at or above the one placed last:

- Nobody may start at or above the lowest possible end of another one: that one could go below.
- One whose lowest place was passed over must be lifted by another one that is still to come.
- The buffers of one section, all alive at once, lie one above the other from their earliest starts on.

What is left to be placed falls apart where no lifetime crosses, and each part is solved by itself. A failure is blamed
on the buffers that brought it about, and a node whose own choice is not among them fails with it. That is quick, but
not exact: why others were no candidates is not looked into. Without `jumps` the search is.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.planning.place.first_fit_loops import Links
from diagmem.planning.place.fit import FAR, NOWHERE

FAILED, SOLVED, SPENT, OPEN, PLACED, REFUSED = 0, 1, 2, 3, 4, 5
"""What a search, or a step of it, ends with."""


@dataclass(eq=False, repr=False)
class Sections:
    """Steps at which some set of buffers is alive, none of them within that of another. Buffer b is in the sections
    [first[b], last[b]], and holds there `held[held_from[b]:]` bytes. In section s are the buffers
    `alive[alive_from[s]:alive_from[s + 1]]`."""

    first: list[int]
    last: list[int]
    held_from: list[int]
    held: list[int]
    alive_from: list[int]
    alive: list[int]


@dataclass(eq=False, repr=False)
class SearchTree:
    """By buffer: its rank; the lowest place that those placed leave it, and which of them does; where it was placed;
    its earliest start; how often it failed. By depth, then buffer: members, candidates, who is to blame. By depth, then
    section: lifetimes that cross into it. By section: the top. What to take back. Room to stack buffers, and the
    sections that overflowed last.

    By depth: how many members a node has, which buffer it placed, how many candidates there are and which comes next,
    the trail's length before, its sections, the next part, and whether anyone lives with the chosen. `jumps`: whether
    failures jump back. `by_rank`: whether candidates are tried by rank, else by offset. `capacity`: the bytes that
    there are. `nodes`: so far, at the most `budget`."""

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
    stack: list[int]
    recent: list[int]
    count: list[int]
    chosen: list[int]
    candidate_count: list[int]
    next_candidate: list[int]
    mark: list[int]
    low: list[int]
    high: list[int]
    part: list[int]
    has_near: list[int]
    budget: int
    jumps: bool
    by_rank: bool
    capacity: int
    nodes: int = 0
    trail_length: int = 0


def must_be_lifted_to(buffer: int, current: int, links: Links, tree: SearchTree) -> int:
    """The least place to which one still to come can lift a buffer that was passed over."""
    best, near, above, at, lowest = FAR, links.near, links.above, tree.at, tree.lowest
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        if current + above[q] >= best:
            break  # Neighbours come by rising `above`.
        other = near[q]
        if at[other] == NOWHERE:
            best = min(best, max(lowest[other], current) + max(above[q], 0))
    return best


def lifted(buffer: int, last: int, links: Links, tree: SearchTree) -> int:
    """The earliest start of a buffer whose lowest place is not above the one that was placed last."""
    start, current, cause = tree.lowest[buffer], tree.at[last], tree.cause[buffer]
    if start == current and (tree.rank[buffer] > tree.rank[last] or (cause >= 0 and tree.at[cause] == current)):
        return start
    return max(must_be_lifted_to(buffer, current, links, tree), start + 1)


def find_earliest(row: int, last: int, links: Links, tree: SearchTree) -> bool:
    """Finds the earliest start of each member; False if that is too high for one, which is then blamed."""
    n, early, lowest, members = len(links.size), tree.early, tree.lowest, tree.members
    size, capacity, current = links.size, tree.capacity, tree.at[last] if last >= 0 else -1
    for i in range(row * n, row * n + tree.count[row]):
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


def stack_up(section: int, last: int, links: Links, sections: Sections, tree: SearchTree) -> int:
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


def overflows(section: int, row: int, last: int, links: Links, sections: Sections, tree: SearchTree) -> bool:
    """Whether the buffers of a section that are still to be placed come to lie above the end of the arena, stacked from
    their earliest starts on. If so, what raised those since the last idle gap is blamed in the row."""
    count, stack, early = stack_up(section, last, links, sections, tree), tree.stack, tree.early
    top, begin, capacity = 0, 0, tree.capacity
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


def blame_stack(begin: int, end: int, row: int, last: int, tree: SearchTree) -> None:
    """Blames what raised some of the buffers that were stacked, and makes these heavier."""
    blamed = row * len(tree.rank)
    for i in range(begin, end):
        buffer = tree.stack[i]
        tree.weight[buffer] += 1
        if tree.cause[buffer] >= 0:
            tree.blame[blamed + tree.cause[buffer]] = 1
        if tree.early[buffer] != tree.lowest[buffer] and last >= 0:
            tree.blame[blamed + last] = 1


def remember(section: int, tree: SearchTree) -> None:
    """Puts a section that overflowed first among the recent ones."""
    recent, place = tree.recent, 0
    while place < len(tree.recent) - 1 and recent[place] != section:
        place += 1
    while place > 0:
        recent[place] = recent[place - 1]
        place -= 1
    recent[0] = section


def recent_overflows(row: int, last: int, links: Links, sections: Sections, tree: SearchTree) -> bool:
    """Whether one of the recent sections, of those of the row above, overflows now; then that is blamed in the row."""
    low, high = tree.low[row - 1], tree.high[row - 1]
    for place in range(len(tree.recent)):
        section = tree.recent[place]
        if low <= section <= high and overflows(section, row, last, links, sections, tree):
            remember(section, tree)
            return True
    return False


def sort_members(begin: int, end: int, tree: SearchTree) -> None:
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


def overflowing(row: int, sections: Sections, tree: SearchTree) -> int:
    """Stacks the members of each section from their earliest starts on, which is exact for one section alone: the first
    section that overflows, NOWHERE if none does."""
    begin, top, capacity = row * len(tree.rank), tree.top, tree.capacity
    members, early, firsts, lasts, held = tree.members, tree.early, sections.first, sections.last, sections.held
    for section in range(tree.low[row], tree.high[row] + 1):
        top[section] = 0
    for i in range(begin, begin + tree.count[row]):
        buffer = members[i]
        start, first = early[buffer], firsts[buffer]
        held_from = sections.held_from[buffer] - first
        for section in range(first, lasts[buffer] + 1):
            end = max(top[section], start) + held[held_from + section]
            if end > capacity:
                return section
            top[section] = end
    return NOWHERE


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


def list_candidates(row: int, least_end: int, tree: SearchTree) -> None:
    """Lists the members that may be next: open at their lowest place, and not above the least end of any."""
    begin, by_rank, rank = row * len(tree.rank), tree.by_rank, tree.rank
    members, candidates, early, lowest = tree.members, tree.candidates, tree.early, tree.lowest
    count = begin
    for i in range(begin, begin + tree.count[row]):
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
    tree.candidate_count[row] = count - begin
    tree.next_candidate[row] = 0


def clear_blame(row: int, tree: SearchTree) -> None:
    """Nobody is to blame for what comes in the row."""
    blame, n = tree.blame, len(tree.rank)
    for i in range(row * n, row * n + n):
        blame[i] = 0


def open_node(row: int, links: Links, sections: Sections, tree: SearchTree) -> int:
    """Looks at a new node: FAILED, or open with its candidates listed."""
    n = len(tree.rank)
    begin = row * n
    end = begin + tree.count[row]
    chosen = tree.chosen[row - 1] if row > 0 else NOWHERE
    clear_blame(row, tree)
    least_end, low, high = FAR, FAR, NOWHERE
    members, lowest, size, first, last = tree.members, tree.lowest, links.size, sections.first, sections.last
    for i in range(begin, end):
        buffer = members[i]
        least_end = min(least_end, lowest[buffer] + size[buffer])
        low, high = min(low, first[buffer]), max(high, last[buffer])
    tree.low[row], tree.high[row] = low, high
    tree.mark[row] = tree.trail_length
    if not find_earliest(row, chosen, links, tree):
        return FAILED
    sort_members(begin, end, tree)
    section = overflowing(row, sections, tree)
    if section != NOWHERE and overflows(section, row, chosen, links, sections, tree):
        remember(section, tree)
        return FAILED
    list_candidates(row, least_end, tree)
    return OPEN


def raise_neighbours(row: int, links: Links, loose: Links, tree: SearchTree) -> None:
    """Raises whatever the chosen buffer is now in the way of."""
    chosen = tree.chosen[row]
    offset, end = tree.at[chosen], tree.trail_length
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
    tree.has_near[row], tree.trail_length = has_near, end


def count_crossings(row: int, sections: Sections, tree: SearchTree) -> None:
    """Counts the lifetimes, but for that of the chosen one, that go on from each section into the next."""
    width = len(tree.top)
    low, high = tree.low[row], tree.high[row]
    base, crossing, chosen = row * width, tree.crossing, tree.chosen[row]
    members, first, last = tree.members, sections.first, sections.last
    for section in range(low, high + 2):
        crossing[base + section] = 0
    begin = row * len(tree.rank)
    for i in range(begin, begin + tree.count[row]):
        buffer = members[i]
        if buffer != chosen:
            crossing[base + first[buffer] + 1] += 1
            crossing[base + last[buffer] + 1] -= 1
    for section in range(low + 1, high + 1):
        crossing[base + section] += crossing[base + section - 1]
    tree.part[row] = low


def blame_passed_over(row: int, tree: SearchTree) -> None:
    """Blames, for each member that was passed over, the first choice that did so."""
    begin, members, at, rank = row * len(tree.rank), tree.members, tree.at, tree.rank
    lowest = tree.lowest
    for i in range(begin, begin + tree.count[row]):
        buffer = members[i]
        above, passed = row - 1, NOWHERE
        while above >= 0:
            other = tree.chosen[above]
            lies = at[other] - lowest[buffer]
            if lies < 0 or (lies == 0 and rank[other] < rank[buffer]):
                break
            passed, above = other, above - 1
        if passed >= 0:
            tree.blame[begin + passed] = 1


def choose(row: int, links: Links, loose: Links, sections: Sections, tree: SearchTree) -> int:
    """Places the next candidate: REFUSED if others no longer fit above it, FAILED if there is none left."""
    following = tree.next_candidate[row]
    if following == tree.candidate_count[row]:
        blame_passed_over(row, tree)
        return FAILED
    buffer = tree.candidates[row * len(tree.rank) + following]
    tree.next_candidate[row] = following + 1
    tree.chosen[row] = buffer
    tree.at[buffer] = tree.lowest[buffer]
    tree.nodes += 1
    raise_neighbours(row, links, loose, tree)
    clear_blame(row + 1, tree)
    if recent_overflows(row + 1, buffer, links, sections, tree):
        return REFUSED
    count_crossings(row, sections, tree)
    return PLACED


def next_part(row: int, sections: Sections, tree: SearchTree) -> bool:
    """Hands the members of the next part, where no lifetime crosses, to the node below; False if there is none."""
    n = len(tree.rank)
    base = row * len(tree.top)
    high, chosen = tree.high[row], tree.chosen[row]
    low, members, first, crossing = tree.part[row], tree.members, sections.first, tree.crossing
    while low <= high:
        end = low + 1
        while end <= high and crossing[base + end] > 0:
            end += 1
        count = 0
        for i in range(row * n, row * n + tree.count[row]):
            buffer = members[i]
            if buffer != chosen and low <= first[buffer] < end:
                members[(row + 1) * n + count] = buffer
                count += 1
        low = end
        if count > 0:
            tree.part[row] = low
            tree.count[row + 1] = count
            return True
    tree.part[row] = low
    return False


def take_back(row: int, tree: SearchTree) -> int:
    """Takes a choice back that failed: the node stays open, or fails too where this choice is not to blame."""
    n = len(tree.rank)
    begin, below = row * n, row * n + n
    at, members, blame, trail, lowest, cause = tree.at, tree.members, tree.blame, tree.trail, tree.lowest, tree.cause
    for i in range(begin, begin + tree.count[row]):
        at[members[i]] = NOWHERE
    end, mark = tree.trail_length, tree.mark[row]
    while end > mark:
        end -= 1
        other = trail[3 * end]
        lowest[other], cause[other] = trail[3 * end + 1], trail[3 * end + 2]
    tree.trail_length = end
    chosen = tree.chosen[row]
    if tree.has_near[row] == 0:
        return FAILED
    if tree.jumps and blame[below + chosen] == 0:
        for i in range(n):
            blame[begin + i] = blame[below + i]
        return FAILED
    for i in range(n):
        blame[begin + i] |= blame[below + i]
    blame[begin + chosen] = 0
    if cause[chosen] >= 0:
        blame[begin + cause[chosen]] = 1
    return OPEN


def search(links: Links, loose: Links, sections: Sections, tree: SearchTree) -> int:
    """SOLVED: all are placed in `tree.at`. FAILED: the tree has no more nodes. SPENT: the budget is."""
    row = 0
    outcome = open_node(row, links, sections, tree)
    while True:
        if outcome == FAILED:
            row -= 1
            if row < 0:
                return FAILED
            outcome = take_back(row, tree)
        elif outcome == REFUSED:
            outcome = take_back(row, tree)
        elif outcome == OPEN:
            outcome = choose(row, links, loose, sections, tree)
        elif next_part(row, sections, tree):
            if tree.nodes >= tree.budget:
                return SPENT
            row += 1
            outcome = open_node(row, links, sections, tree)
        else:
            row -= 1
            if row < 0:
                return SOLVED
