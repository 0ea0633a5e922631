"""Which stores may live at once in some order, what keeps them from it, and how far apart they must start then.

All of it is weaker than what any single order asks for, or the same: what no offsets meet, no order can be placed in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import NamedTuple

from diagmem.planning.footprint import Footprint
from diagmem.planning.joint.stays import Stay, stays_of

Before = tuple[tuple[int, int], ...]
"""Pairs of ops that the graph leaves open: the first must run before the second."""

Pair = tuple[int, int]
"""Two stores by index, the smaller one first."""


class Way(NamedTuple):
    """Units from the start of one store to that of another above it, at the least: `apart`; or `shorter` ones, each if
    ops run in a certain order, so that the one is made while the other dies."""

    apart: int
    shorter: tuple[tuple[int, Before], ...]


class Meeting(NamedTuple):
    """Stays of two stores that live at once, unless the first ends before the second begins, or the other way round
    (`gone_before`, for each that may be). `up`: the second store lies above; `down`: the first does."""

    gone_before: tuple[Before, ...]
    up: Way
    down: Way


@dataclass(frozen=True)
class Meetings:
    """All that a footprint's stores are to each other, over all orders. `units` of an arena are those of the
    footprint."""

    needs: Footprint

    @cached_property
    def of_pair(self) -> Mapping[Pair, tuple[Meeting, ...]]:
        """For the pairs that may be in each other's way."""
        stays = [stays_of(self.needs, store) for store in self.needs.stores]
        found = {}
        for pair in combinations(range(len(stays)), 2):
            met = tuple(self._met(pair, stays[pair[0]], stays[pair[1]]))
            if met and max(m.up.apart for m in met) + max(m.down.apart for m in met) > 0:
                found[pair] = met
        return found

    @cached_property
    def _separations(self) -> Mapping[tuple[int, int], list[tuple[int, int]]]:
        """(output, input) -> ops that make the one of the other, and the units that each keeps between them."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for op, apart in enumerate(self.needs.separations):
            for pair, size_bytes in apart.items():
                found[pair].append((op, -(-size_bytes // self.needs.unit_bytes)))
        return found

    def _met(self, pair: Pair, ours: Iterable[Stay], theirs: Iterable[Stay]) -> Iterator[Meeting]:
        a, b = pair
        for one, other in product(ours, theirs):
            gone = (self._ends_before(one, other), self._ends_before(other, one))
            if () not in gone:
                possible = tuple(order for order in gone if order is not None)
                yield Meeting(possible, self._way((a, b), one, other), self._way((b, a), other, one))

    def _ends_before(self, one: Stay, other: Stay) -> Before | None:
        """What must hold for it; None if it cannot be."""
        if one.end is None or other.begin is None:
            return None
        return self._open(product(one.end, other.begin))

    def _way(self, pair: tuple[int, int], below: Stay, above: Stay) -> Way:
        apart = -(-(below.high_bytes - above.low_bytes) // self.needs.unit_bytes)
        shorter = []
        for op, units in self._separations.get(pair, ()):
            order = self._made_while_dying(below, above, op) if units < apart else None
            if order is not None:
                shorter.append((units, order))
        apart = min([apart, *(units for units, order in shorter if not order)])
        return Way(apart, tuple((units, order) for units, order in shorter if units < apart))

    def _made_while_dying(self, made: Stay, dying: Stay, op: int) -> Before | None:
        """What must hold for the one to begin with the op with which the other ends."""
        if made.begin is None or dying.end is None or op not in made.begin or op not in dying.end:
            return None
        others = [(x, op) for x in dying.end - {op}] + [(op, y) for y in made.begin - {op}]
        return self._open(others)

    def _open(self, pairs: Iterable[tuple[int, int]]) -> Before | None:
        """Those of the pairs that the graph leaves open; None if it says otherwise of some."""
        earlier, found = self.needs.earlier, []
        for first, second in pairs:
            if first == second or earlier[first] >> second & 1:
                return None
            if not earlier[second] >> first & 1:
                found.append((first, second))
        return tuple(sorted(found))

    def core(self, limit_bytes: int) -> tuple[list[int], list[int]]:
        """Splits stores into those that matter for an arena of so many bytes, and the rest in the order of its removal:
        what finds a place there wherever the others lie, in every order (`place/core.py` does so for one)."""
        left, removed = {*range(len(self.needs.stores))}, list[int]()
        while leaving := [store for store in sorted(left) if self._always_fits(store, left, limit_bytes)]:
            left.difference_update(leaving)
            removed += leaving
        return sorted(left), removed

    @cached_property
    def _near(self) -> Mapping[int, list[tuple[int, int]]]:
        """Store -> others, and how many units they keep free of its starts at the most."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (a, b), met in self.of_pair.items():
            taken = max(m.up.apart for m in met) + max(m.down.apart for m in met) - 1
            found[a].append((b, taken))
            found[b].append((a, taken))
        return found

    def _always_fits(self, index: int, left: Collection[int], limit_bytes: int) -> bool:
        store = self.needs.stores[index]
        places = (limit_bytes - store.size_bytes) // store.align_bytes + 1
        stride = store.align_bytes // self.needs.unit_bytes
        return places > sum(-(-taken // stride) for other, taken in self._near[index] if other in left)
