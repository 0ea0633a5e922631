"""The loops of first fit and of two local searches. The build compiles them, by the types in the .pxd file beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.effort import HALVED_AFTER, MOST_PLACES
from diagmem.planning.place.fit import FAR, IS_COMPILED, LEHMER, NOWHERE, PRIME, ints, lowest_clear


@dataclass(eq=False, repr=False)
class Links:
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
        counts = near_from[chosen + 1] - near_from[chosen]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        which = np.repeat(near_from[chosen], counts) + within
        own, other = np.repeat(np.arange(len(chosen)), counts), place_of[near[which]]
        is_in = other != NOWHERE
        near, below, above = other[is_in], below[which][is_in], above[which][is_in]
        near_from = np.concatenate(([0], np.cumsum(np.bincount(own[is_in], minlength=len(chosen)))))
    buffers = [problem.buffers[buffer] for buffer in chosen.tolist()]
    sizes, aligns = [b.size_bytes for b in buffers], [b.align_bytes for b in buffers]
    return Links(ints(sizes), ints(aligns), *map(ints, (near_from, near, below, above)))


@dataclass(eq=False, repr=False)
class FirstFitState:
    """By buffer: its last offset; its place in the order; whether it must be placed again, because one before it moved.
    Room for the intervals that the neighbours of one take. `fits`: buffers placed so far. `chance`: the last random
    number."""

    at: list[int]
    place_of: list[int]
    is_stale: list[int]
    low: list[int]
    high: list[int]
    chance: int
    fits: int = 0


@dataclass(eq=False, repr=False)
class ConflictState:
    """By buffer: its offset; whether it is queued; whether it was in conflict when last looked at. The queue, and all
    in conflict. By pair, as in the links: its weight; and where the same pair stands with the other one first.
    Room for the intervals that the neighbours of one take, and the weights of these. The cost of a conflict is
    `depth_cost` for each byte of depth and `pair_cost` for each pair. How many are queued and in conflict, how many
    moves there were, how often weights were raised, and the last random number."""

    at: list[int]
    is_queued: list[int]
    is_stuck: list[int]
    queue: list[int]
    stuck: list[int]
    weight: list[int]
    turned: list[int]
    low: list[int]
    high: list[int]
    heavy: list[int]
    depth_cost: int
    pair_cost: int
    chance: int
    queue_count: int
    stuck_count: int = 0
    moves: int = 0
    raised: int = 0


def lowest_fit_of_lists(buffer: int, links: Links, fit: FirstFitState) -> int:
    """`lowest_fit` as plain Python does it soonest: it sorts quickly, but loops slowly."""
    begin, end = links.near_from[buffer], links.near_from[buffer + 1]
    place, place_of, at = fit.place_of[buffer], fit.place_of, fit.at
    pairs = zip(links.near[begin:end], links.below[begin:end], links.above[begin:end], strict=True)
    taken = [(at[other] - below, at[other] + above) for other, below, above in pairs if place_of[other] < place]
    return lowest_clear(taken, links.align[buffer])


def lowest_fit(buffer: int, links: Links, fit: FirstFitState) -> int:
    """The lowest offset that keeps the buffer clear of those before it."""
    if not IS_COMPILED:
        return lowest_fit_of_lists(buffer, links, fit)
    place, align, count, offset = fit.place_of[buffer], links.align[buffer], 0, 0
    # No branches: a processor guesses wrong at each second of these.
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = links.near[q]
        start, end = fit.at[other] - links.below[q], fit.at[other] + links.above[q]
        start = start if fit.place_of[other] < place else FAR
        fit.low[count], fit.high[count] = start, end
        count += 1 if (start >= offset) & (start < FAR) else 0
        offset = max(offset, end) if start < offset else offset
    # What begins above the offset may be in its way once it has risen; what ends below it never will be.
    left = -1
    while left != count:
        offset = (offset + align - 1) // align * align
        left, count = count, 0
        for j in range(left):
            start, end = fit.low[j], fit.high[j]
            fit.low[count], fit.high[count] = start, end
            count += 1 if start >= offset else 0
            offset = max(offset, end) if start < offset else offset
    return offset


def mark_stale(buffer: int, begin: int, links: Links, fit: FirstFitState) -> None:
    """What lives with the buffer and has a place from `begin` on must be placed again."""
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = links.near[q]
        fit.is_stale[other] |= 1 if fit.place_of[other] >= begin else 0


def fit_in_order(order: list[int], begin: int, limit: int, links: Links, fit: FirstFitState) -> int:
    """Places order[begin:], but for what would come to lie where it lies; how far it came before one ends above the
    limit."""
    for place in range(begin, len(order)):
        buffer = order[place]
        if fit.is_stale[buffer] == 0:
            continue
        offset = lowest_fit(buffer, links, fit)
        fit.fits += 1
        if offset + links.size[buffer] > limit:
            return place
        fit.is_stale[buffer] = 0
        if offset != fit.at[buffer]:
            fit.at[buffer] = offset
            mark_stale(buffer, place + 1, links, fit)
    return len(order)


def squeaky_wheel(order: list[int], limit: int, rounds: int, most_fits: int, links: Links, fit: FirstFitState) -> bool:
    """First fit within the limit: whoever does not fit goes earlier in the order, and all behind it are placed again.
    True: `fit.at` holds the offsets of those in the order. False: not in so many rounds, or counted fits."""
    begin = 0
    for _ in range(rounds):
        misfit = fit_in_order(order, begin, limit, links, fit)
        if misfit == len(order):
            return True
        buffer = order[misfit]
        earliest = misfit
        for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
            earliest = min(earliest, fit.place_of[links.near[q]])
        if earliest == misfit or fit.fits >= most_fits:
            return False
        fit.chance = fit.chance * LEHMER % PRIME
        begin = earliest + fit.chance % (misfit - earliest + 1)
        for place in range(misfit, begin, -1):
            moved = order[place - 1]
            order[place], fit.place_of[moved] = moved, place
        order[begin], fit.place_of[buffer] = buffer, begin
        mark_stale(buffer, begin + 1, links, fit)
    return False


def core(limit: int, unit: int, links: Links, is_left: list[int], removed: list[int]) -> int:
    """Takes out of `is_left` what always finds a place within the limit, into `removed`; how many these are.

    Pigeonhole: if a buffer's neighbours cannot block all the places where it may start, wherever they lie, then it can
    be left out and placed last. Without it, its neighbours may follow.
    """
    count, before = 0, -1
    while count > before:
        before = count
        for buffer in range(len(links.size)):
            if is_left[buffer] == 0:
                continue
            align = links.align[buffer]
            stride = align // unit
            places = (limit - links.size[buffer]) // align + 1
            for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
                if is_left[links.near[q]] != 0:
                    # An open interval of n units between whole units holds n - 1 of them inside.
                    places -= -(-((links.below[q] + links.above[q]) // unit - 1) // stride)
                    if places <= 0:
                        break
            if places > 0:
                is_left[buffer] = 0
                removed[count] = buffer
                count += 1
    return count


def next_chance(state: ConflictState, count: int) -> int:
    """A random number in [0, count)."""
    state.chance = state.chance * LEHMER % PRIME
    return state.chance % count


def list_conflicts(buffer: int, top: int, links: Links, state: ConflictState) -> int:
    """Lists the intervals in which a buffer that may start in [0, top] is in conflict with a neighbour; how many they
    are."""
    count = 0
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = state.at[links.near[q]]
        start, end = other - links.below[q], other + links.above[q]
        if end > 0 and start < top:
            state.low[count], state.high[count], state.heavy[count] = start, end, state.weight[q]
            count += 1
    return count


def cost_at(offset: int, count: int, most: int, state: ConflictState) -> int:
    """The cost of starting at an offset; anything above `most`, if it is more than that."""
    cost = 0
    for i in range(count):
        low, high = state.low[i], state.high[i]
        if low < offset < high:
            cost += state.heavy[i] * (state.depth_cost * min(offset - low, high - offset) + state.pair_cost)
            if cost > most:
                break
    return cost


def cheapest_place(offset: int, top: int, align: int, count: int, state: ConflictState) -> int:
    """The start with the least cost: at a border of an interval, at either end, or where it is. Among several such
    places, one by chance."""
    best, least, ties = offset, cost_at(offset, count, 1 << 62, state), 1
    places = 2 * count + 2
    begin = next_chance(state, places)
    for number in range(min(places, MOST_PLACES)):
        which = (begin + number) % places
        if which < count:
            place = state.low[which] // align * align
        elif which < 2 * count:
            place = -(-state.high[which - count] // align) * align
        else:
            place = 0 if which == 2 * count else top
        if place < 0 or place > top or place == offset:
            continue
        cost = cost_at(place, count, least, state)
        if cost < least:
            best, least, ties = place, cost, 1
        elif cost == least:
            ties += 1
            if next_chance(state, ties) == 0:
                best = place
    return best


def enqueue(buffer: int, state: ConflictState) -> None:
    """Once at a time."""
    if state.is_queued[buffer] == 0:
        state.queue[state.queue_count], state.is_queued[buffer] = buffer, 1
        state.queue_count += 1


def move(buffer: int, limit: int, links: Links, state: ConflictState) -> None:
    """Moves a buffer that is in conflict to where that costs least; whom it meets there is queued."""
    align = links.align[buffer]
    top = (limit - links.size[buffer]) // align * align
    count = list_conflicts(buffer, top, links, state)
    if cost_at(state.at[buffer], count, 0, state) == 0:
        return
    state.moves += 1
    place = cheapest_place(state.at[buffer], top, align, count, state)
    if state.is_stuck[buffer] == 0 and cost_at(place, count, 0, state) > 0:
        state.stuck[state.stuck_count], state.is_stuck[buffer] = buffer, 1
        state.stuck_count += 1
    if place == state.at[buffer]:
        return
    state.at[buffer] = place
    for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
        other = links.near[q]
        if state.at[other] - links.below[q] < place < state.at[other] + links.above[q]:
            enqueue(other, state)


def raise_weights(links: Links, state: ConflictState) -> int:
    """Raises the weight of each pair in conflict, and queues both; how many such pairs there are."""
    pairs, kept = 0, 0
    state.raised += 1
    if state.raised % HALVED_AFTER == 0:
        for q in range(len(state.weight)):
            state.weight[q] = (state.weight[q] + 1) // 2
    for i in range(state.stuck_count):
        buffer = state.stuck[i]
        before = pairs
        for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
            other = links.near[q]
            if state.at[other] - links.below[q] < state.at[buffer] < state.at[other] + links.above[q]:
                pairs += 1
                if state.is_stuck[other] == 0 or other > buffer:
                    state.weight[q] += 1
                    state.weight[state.turned[q]] = state.weight[q]
                enqueue(buffer, state)
                enqueue(other, state)
        if pairs > before:
            state.stuck[kept] = buffer
            kept += 1
        else:
            state.is_stuck[buffer] = 0
    state.stuck_count = kept
    return pairs


def min_conflicts(limit: int, most_moves: int, links: Links, state: ConflictState) -> bool:
    """Whether no two are in conflict any more, after so many moves at the most."""
    while state.moves < most_moves:
        if state.queue_count == 0:
            if raise_weights(links, state) == 0:
                return True
        else:
            chosen = next_chance(state, state.queue_count)
            state.queue_count -= 1
            buffer = state.queue[chosen]
            state.queue[chosen], state.is_queued[buffer] = state.queue[state.queue_count], 0
            move(buffer, limit, links, state)
    return False
