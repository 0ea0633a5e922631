"""The loops of first fit and of its repair, on flat sequences; `compiled` makes machine code of them."""

from __future__ import annotations

from typing import NamedTuple

from diagmem.planning.place.fit import lowest_clear
from diagmem.planning.place.flat import FAR, Links

FITTED, MISFIT = 1, 0

LEHMER, PRIME = 48271, 2147483647
"""The next of a row of random numbers is LEHMER times the last one modulo PRIME: no product needs more than 63 bits."""

FITS, CHANCE = 0, 1
"""Places in `counts`: buffers placed so far, and the last random number."""

INDEX = 0x7FFFFFFF
"""A number and this is no less than 0, as the compiler then knows: else each access would ask whether it counts from
the end."""

LOOPS = ("lowest_fit", "mark_stale", "fit_in_order", "core", "repaired")
"""What is compiled, callees first."""

ENTRIES = ("fit_in_order", "core", "repaired")
"""Those that are called from outside."""

IN_PYTHON = {"lowest_fit": "lowest_fit_of_lists"}
"""What stands in for a loop that is not compiled."""


class Fit(NamedTuple):
    """By buffer: its last offset; its place in the order; whether it must be placed again, because one before it moved.
    Room for the intervals that the neighbours of one take. What was counted."""

    at: list[int]
    place_of: list[int]
    is_stale: list[int]
    low: list[int]
    high: list[int]
    counts: list[int]


def lowest_fit(buffer: int, links: Links, fit: Fit) -> int:
    """The lowest offset that keeps the buffer clear of those before it."""
    place, place_of, low, high, at = fit.place_of[buffer], fit.place_of, fit.low, fit.high, fit.at
    near, below, above = links.near, links.below, links.above
    align, count, offset = links.align[buffer], 0, 0
    # No branches: a processor guesses wrong at each second of these.
    for q in range(links.near_from[buffer] & INDEX, links.near_from[buffer + 1] & INDEX):
        other = near[q] & INDEX
        start, end = at[other] - below[q], at[other] + above[q]
        start = start if place_of[other] < place else FAR
        low[count], high[count] = start, end
        count += 1 if (start >= offset) & (start < FAR) else 0
        offset = max(offset, end) if start < offset else offset
    # What begins above the offset may be in its way once it has risen; what ends below it never will be.
    left = -1
    while left != count:
        offset = (offset + align - 1) // align * align
        left, count = count, 0
        for j in range(left):
            start, end = low[j], high[j]
            low[count], high[count] = start, end
            count += 1 if start >= offset else 0
            offset = max(offset, end) if start < offset else offset
    return offset


def lowest_fit_of_lists(buffer: int, links: Links, fit: Fit) -> int:
    """The same, as Python does it soonest: it sorts quickly, but loops slowly."""
    begin, end = links.near_from[buffer], links.near_from[buffer + 1]
    place, place_of, at = fit.place_of[buffer], fit.place_of, fit.at
    pairs = zip(links.near[begin:end], links.below[begin:end], links.above[begin:end], strict=True)
    taken = [(at[other] - below, at[other] + above) for other, below, above in pairs if place_of[other] < place]
    return lowest_clear(taken, links.align[buffer])


def mark_stale(buffer: int, begin: int, links: Links, fit: Fit) -> None:
    """What lives with the buffer and has a place from `begin` on must be placed again."""
    for q in range(links.near_from[buffer] & INDEX, links.near_from[buffer + 1] & INDEX):
        other = links.near[q] & INDEX
        fit.is_stale[other] |= 1 if fit.place_of[other] >= begin else 0


def fit_in_order(order: list[int], begin: int, limit: int, links: Links, fit: Fit) -> int:
    """Places order[begin:], but for what would come to lie where it lies; how far it came before one ends above the
    limit."""
    for place in range(begin & INDEX, len(order)):
        buffer = order[place] & INDEX
        if fit.is_stale[buffer] == 0:
            continue
        offset = lowest_fit(buffer, links, fit)
        fit.counts[FITS] += 1
        if offset + links.size[buffer] > limit:
            return place
        fit.is_stale[buffer] = 0
        if offset != fit.at[buffer]:
            fit.at[buffer] = offset
            mark_stale(buffer, place + 1, links, fit)
    return len(order)


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


def repaired(order: list[int], limit: int, rounds: int, most_fits: int, links: Links, fit: Fit) -> int:
    """First fit within the limit: whoever does not fit goes earlier in the order, and all behind it are placed again.

    FITTED: `fit.at` holds the offsets of those in the order. MISFIT: not in so many rounds, or counted fits.
    """
    place_of, counts = fit.place_of, fit.counts
    begin = 0
    for _ in range(rounds):
        misfit = fit_in_order(order, begin, limit, links, fit)
        if misfit == len(order):
            return FITTED
        buffer = order[misfit]
        earliest = misfit
        for q in range(links.near_from[buffer], links.near_from[buffer + 1]):
            earliest = min(earliest, place_of[links.near[q]])
        if earliest == misfit or counts[FITS] >= most_fits:
            return MISFIT
        counts[CHANCE] = counts[CHANCE] * LEHMER % PRIME
        begin = earliest + counts[CHANCE] % (misfit - earliest + 1)
        for place in range(misfit, begin & INDEX, -1):
            moved = order[place - 1] & INDEX
            order[place], place_of[moved] = moved, place
        order[begin], place_of[buffer] = buffer, begin
        mark_stale(buffer, begin + 1, links, fit)
    return MISFIT
