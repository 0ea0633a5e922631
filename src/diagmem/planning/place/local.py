"""A few rounds of repair: whoever does not fit goes earlier next time."""

from __future__ import annotations

from diagmem.planning.compiled import PLAIN
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.repair import Repair

ROUNDS = 400

MOST_FITS = 8_000
"""For each step down: fewer rounds where hundreds of buffers live at once."""

MOST_PAIRS = 4_000_000
"""Buffers that are looked at to place others, in all steps: about a second or two."""


def improve(problem: Problem, offsets: Offsets, target: int, rounds: int = ROUNDS, seed: int = 1) -> Offsets:
    """Lowers the arena until it meets `target`, or until so many rounds in a row bring nothing."""
    if problem.arena_bytes(offsets) <= target:
        return offsets
    repair = Repair.of(problem, PLAIN, seed)
    near = 50 + len(repair.links.near) // max(1, len(problem.buffers))
    while (arena := problem.arena_bytes(offsets)) > target and repair.fits * near < MOST_PAIRS:
        limit = arena - problem.unit_bytes
        hard, removed = repair.core(limit)
        placed = repair.within(limit, sorted(hard, key=lambda b: (offsets[b], b)), rounds, MOST_FITS)
        if placed is None:
            break
        offsets = repair.with_others(placed, reversed(removed))
    return offsets
