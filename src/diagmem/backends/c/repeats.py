"""A sequence written shorter: stretches, each to be gone over several times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MOST_LENGTH = 512
"""Of a stretch that is repeated: networks that halve their images five times repeat themselves within that."""

MOST_LENGTHS_TRIED = 4
"""At one place: longer ones are as a rule some short one several times over."""

MOST_TIMES = 65_535

REPEAT_BYTES = 4
"""Length and times, 16 bits each."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`items`, `times` over."""

    items: tuple[int, ...]
    times: int


def repeats(items: Sequence[int], item_bytes: int) -> tuple[Repeat, ...]:
    """The sequence as repeats that take the fewest bytes."""
    plan = _cheapest(np.array(items, dtype=np.int64), item_bytes)
    found: list[Repeat] = []
    single: list[int] = []
    at = 0
    for length, times in plan:
        if times > 1:
            found += [*_once(single), Repeat(tuple(items[at : at + length]), times)]
            single = []
        else:
            single += items[at : at + length]
        at += length * times
    return (*found, *_once(single))


def repeats_bytes(found: Sequence[Repeat], item_bytes: int) -> int:
    return sum(REPEAT_BYTES + item_bytes * len(repeat.items) for repeat in found)


def _once(items: Sequence[int]) -> Iterator[Repeat]:
    """In pieces whose length 16 bits can hold."""
    for begin in range(0, len(items), MOST_TIMES):
        yield Repeat(tuple(items[begin : begin + MOST_TIMES]), 1)


def _cheapest(items: np.ndarray[tuple[int], np.dtype[np.int64]], item_bytes: int) -> Iterator[tuple[int, int]]:
    """(length, times) of stretches, one after the other: what is not repeated is a stretch of one."""
    count, choices = len(items), _choices(items)
    # From the back: the least bytes for what is left and how it begins, behind an item that stands alone, and else.
    alone: list[tuple[int, tuple[int, int]]] = [(0, (1, 1))] * (count + 1)
    fresh = list(alone)
    for at in range(count - 1, -1, -1):
        after = item_bytes + alone[at + 1][0]
        repeated = [
            (REPEAT_BYTES + item_bytes * length + fresh[at + length * times][0], (length, times))
            for length, times in choices[at]
        ]
        alone[at] = min([(after, (1, 1)), *repeated])
        fresh[at] = min([(REPEAT_BYTES + after, (1, 1)), *repeated])
    at, is_alone = 0, False
    while at < count:
        length, times = (alone if is_alone else fresh)[at][1]
        yield length, times
        at, is_alone = at + length * times, times == 1


def _choices(items: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[list[tuple[int, int]]]:
    """For each place the shortest stretches that are repeated from there on, and how many times each comes."""
    found: list[list[tuple[int, int]]] = [[] for _ in items]
    for length in range(1, min(MOST_LENGTH, len(items) // 2) + 1):
        same = items[:-length] == items[length:]
        # How many items from each place on are the same one length later.
        breaks = np.where(same, len(same), np.arange(len(same)))
        run = np.minimum.accumulate(breaks[::-1])[::-1] - np.arange(len(same))
        for at in np.flatnonzero(run >= length).tolist():
            if len(found[at]) < MOST_LENGTHS_TRIED:
                found[at].append((length, min(MOST_TIMES, 1 + int(run[at]) // length)))
    return found
