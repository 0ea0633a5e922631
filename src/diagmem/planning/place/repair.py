"""First fit within a limit: whoever does not fit goes earlier, and all behind it are placed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagmem.planning.compiled import Machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place import repair_loops
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.flat import FAR, NOWHERE, Links, links
from diagmem.planning.place.repair_loops import CHANCE, FITS, FITTED, Fit


@dataclass(frozen=True)
class Repair:
    """A problem, ready for the loops of first fit. `fits` and the row of random numbers go on from call to call."""

    problem: Problem
    machine: Machine
    links: Links
    fit: Fit = field(repr=False)

    @classmethod
    def of(cls, problem: Problem, machine: Machine, seed: int = 1) -> Repair:
        count = len(problem.buffers)
        room = [machine.filled(count) for _ in range(5)]
        counts = machine.filled(2)
        counts[CHANCE] = seed
        return cls(problem, machine, machine.flat(links(problem)), Fit._make((*room, counts)))

    @property
    def fits(self) -> int:
        """How many times a buffer was placed so far."""
        return int(self.fit.counts[FITS])

    @property
    def _loops(self) -> Any:
        return self.machine.loops(repair_loops)

    def core(self, limit: int) -> tuple[list[int], list[int]]:
        """Buffers that matter for an arena of `limit` bytes, and the rest in the order of its removal."""
        count = len(self.problem.buffers)
        is_left, removed = self.machine.filled(count, 1), self.machine.filled(count)
        out = self._loops.core(limit, self.problem.unit_bytes, self.links, is_left, removed)
        listed = self.machine.listed
        return [b for b, left in enumerate(listed(is_left)) if left], listed(removed[:out])

    def within(self, limit: int, order: Iterable[int], rounds: int, fits: int) -> dict[int, int] | None:
        """Offsets of the buffers in the order, if in so many rounds and about so many fits there are any."""
        given = self._put(order, {})
        outcome = self._loops.repaired(given, limit, rounds, self.fits + fits, self.links, self.fit)
        if outcome != FITTED:
            return None
        at = self.machine.listed(self.fit.at)
        return {buffer: at[buffer] for buffer in self.machine.listed(given)}

    def first_fit(self, order: Iterable[int], limit: int = FAR) -> Offsets | None:
        """Offsets of all buffers, placed in this order; None as soon as one ends above the limit."""
        given = self._put(order, {})
        if self._loops.fit_in_order(given, 0, limit, self.links, self.fit) < len(given):
            return None
        return tuple(self.machine.listed(self.fit.at))

    def with_others(self, placed: Mapping[int, int], others: Iterable[int]) -> Offsets:
        """All offsets, from those of some buffers and a first fit of the others in this order."""
        order = self._put([*placed, *others], placed)
        self._loops.fit_in_order(order, len(placed), FAR, self.links, self.fit)
        return tuple(self.machine.listed(self.fit.at))

    def _put(self, order: Iterable[int], placed: Mapping[int, int]) -> Any:
        """Makes the order ready: what is not in it stands at no place."""
        fit, given, count = self.fit, list(order), len(self.fit.at)
        at, place_of = [NOWHERE] * count, [FAR] * count
        for buffer, offset in placed.items():
            at[buffer] = offset
        for place, buffer in enumerate(given):
            place_of[buffer] = place
        fit.at[:], fit.place_of[:], fit.is_stale[:] = at, place_of, [1] * count
        return self.machine.ints(given)
