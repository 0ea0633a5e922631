"""The loops that settle buffers within a limit, on flat sequences; `compiled` makes machine code of them.

All buffers lie within the limit from the beginning, some of them in each other's place. One after the other moves to
where it is least in the way of its neighbours. Where no move makes it better, each pair that is in each other's place
weighs more than before; so whoever is hard to place pushes the others aside, sooner or later.
"""

from __future__ import annotations

from typing import NamedTuple

from diagmem.planning.place.flat import Links
from diagmem.planning.place.repair_loops import LEHMER, PRIME

SETTLED, UNSETTLED = 1, 0

MOVES, CHANCE, WAITING, STUCK, DEPTH, EACH, WEIGHED = 0, 1, 2, 3, 4, 5, 6
"""Places in `counts`: moves so far, the last random number, how many wait and how many are stuck; and how bad it is for
a pair to be in each other's place, for every byte of depth and for being there at all; and how often all that are in
each other's place were made heavier."""

HALVED_AFTER = 3_000
"""Times that pairs were made heavier: then all weights are halved, so that old troubles do not count for ever."""

MOST_PLACES = 128
"""That are looked at in one move: all there are, but for a buffer that lives with hundreds of others."""

LOOPS = ("next_chance", "interval_costs", "cost_at", "best_place", "move", "weigh", "settled")
"""What is compiled, callees first."""

ENTRIES = ("settled",)
"""What is called from outside."""


class Settling(NamedTuple):
    """By buffer: its offset; whether it waits for its turn; whether it was in another's place when it was last looked
    at. Those that wait, and those that are stuck so. By pair, as in the links: its weight; and where the same pair
    stands with the other one first. Room for the intervals that the neighbours of one take, and the weights of these.
    What was counted."""

    at: list[int]
    is_waiting: list[int]
    is_stuck: list[int]
    waiting: list[int]
    stuck: list[int]
    weight: list[int]
    turned: list[int]
    low: list[int]
    high: list[int]
    heavy: list[int]
    counts: list[int]


def next_chance(counts: list[int], count: int) -> int:
    """A random number in [0, count)."""
    counts[CHANCE] = counts[CHANCE] * LEHMER % PRIME
    return counts[CHANCE] % count


def interval_costs(buffer: int, top: int, links: Links, state: Settling) -> int:
    """Lists the intervals in which a buffer that may start in [0, top] is in a neighbour's place; how many they are."""
    at, low, high, heavy = state.at, state.low, state.high, state.heavy
    count = 0
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = at[links.near[q]]
        start, end = other - links.below[q], other + links.above[q]
        if end > 0 and start < top:
            low[count], high[count], heavy[count] = start, end, state.weight[q]
            count += 1
    return count


def cost_at(offset: int, count: int, most: int, state: Settling) -> int:
    """How bad it is to start at an offset; anything above `most`, if it is worse than that."""
    low, high, heavy, depth, each = state.low, state.high, state.heavy, state.counts[DEPTH], state.counts[EACH]
    cost = 0
    for i in range(count):
        if low[i] < offset < high[i]:
            cost += heavy[i] * (depth * min(offset - low[i], high[i] - offset) + each)
            if cost > most:
                break
    return cost


def best_place(offset: int, top: int, align: int, count: int, state: Settling) -> int:
    """Where it is least bad to start: at a border of an interval, at either end, or where it is. Among several places,
    one by chance."""
    low, high = state.low, state.high
    best, least, ties = offset, cost_at(offset, count, 1 << 62, state), 1
    places = 2 * count + 2
    begin = next_chance(state.counts, places)
    for number in range(min(places, MOST_PLACES)):
        which = (begin + number) % places
        if which < count:
            place = low[which] // align * align
        elif which < 2 * count:
            place = -(-high[which - count] // align) * align
        else:
            place = 0 if which == 2 * count else top
        if place < 0 or place > top or place == offset:
            continue
        cost = cost_at(place, count, least, state)
        if cost < least:
            best, least, ties = place, cost, 1
        elif cost == least:
            ties += 1
            if next_chance(state.counts, ties) == 0:
                best = place
    return best


def move(buffer: int, limit: int, links: Links, state: Settling) -> None:
    """Moves a buffer that is in another's place to where it is least in the way; whom it meets there waits."""
    at, counts, align = state.at, state.counts, links.align[buffer]
    top = (limit - links.size[buffer]) // align * align
    count = interval_costs(buffer, top, links, state)
    if cost_at(at[buffer], count, 0, state) == 0:
        return
    counts[MOVES] += 1
    place = best_place(at[buffer], top, align, count, state)
    if state.is_stuck[buffer] == 0 and cost_at(place, count, 0, state) > 0:
        state.stuck[counts[STUCK]], state.is_stuck[buffer] = buffer, 1
        counts[STUCK] += 1
    if place == at[buffer]:
        return
    at[buffer] = place
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = links.near[q]
        if state.is_waiting[other] == 0 and at[other] - links.below[q] < place < at[other] + links.above[q]:
            state.waiting[counts[WAITING]], state.is_waiting[other] = other, 1
            counts[WAITING] += 1


def weigh(links: Links, state: Settling) -> int:
    """Makes each pair that is in each other's place heavier, and both of it wait; how many such pairs there are."""
    at, counts, weight, is_stuck = state.at, state.counts, state.weight, state.is_stuck
    pairs, kept = 0, 0
    counts[WEIGHED] += 1
    if counts[WEIGHED] % HALVED_AFTER == 0:
        for q in range(len(weight)):
            weight[q] = (weight[q] + 1) // 2
    for i in range(counts[STUCK]):
        buffer = state.stuck[i]
        before = pairs
        for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
            other = links.near[q]
            if at[other] - links.below[q] < at[buffer] < at[other] + links.above[q]:
                pairs += 1
                if is_stuck[other] == 0 or other > buffer:
                    weight[q] += 1
                    weight[state.turned[q]] = weight[q]
                for each in (buffer, other):
                    if state.is_waiting[each] == 0:
                        state.waiting[counts[WAITING]], state.is_waiting[each] = each, 1
                        counts[WAITING] += 1
        if pairs > before:
            state.stuck[kept] = buffer
            kept += 1
        else:
            is_stuck[buffer] = 0
    counts[STUCK] = kept
    return pairs


def settled(limit: int, most_moves: int, links: Links, state: Settling) -> int:
    """SETTLED: nobody is in another's place. UNSETTLED: not in so many moves."""
    counts = state.counts
    while counts[MOVES] < most_moves:
        if counts[WAITING] == 0:
            if weigh(links, state) == 0:
                return SETTLED
        else:
            chosen = next_chance(counts, counts[WAITING])
            counts[WAITING] -= 1
            buffer = state.waiting[chosen]
            state.waiting[chosen], state.is_waiting[buffer] = state.waiting[counts[WAITING]], 0
            move(buffer, limit, links, state)
    return UNSETTLED
