"""Local search over the order of a first fit: whoever does not fit goes earlier next time."""

from __future__ import annotations

import random

from diagmem.planning.allocators.core import core, with_removed
from diagmem.planning.allocators.fit import Offsets, Partial, lowest_fit
from diagmem.planning.problem import Problem

ROUNDS = 400

MOST_WORK = 12_000_000
"""Pairs of buffers looked at, over all rounds: fewer rounds where hundreds of buffers live at once."""


def improve(problem: Problem, offsets: Offsets, target: int, rounds: int = ROUNDS, seed: int = 0) -> Offsets:
    """Lowers the arena until it meets `target`, or until so many rounds in a row bring nothing."""
    chance = random.Random(seed)
    while (arena := problem.arena_bytes(offsets)) > target:
        better = _under(problem, offsets, arena - problem.unit_bytes, rounds, chance)
        if better is None:
            break
        offsets = better
    return offsets


def _under(problem: Problem, offsets: Offsets, limit: int, rounds: int, chance: random.Random) -> Offsets | None:
    """Offsets within the limit, from orders that start like the addresses of a placement that is not."""
    members, removed = core(problem, limit)
    order = sorted(members, key=lambda b: (offsets[b], b))
    pairs = 1 + sum(len(problem.neighbours[b]) for b in members)
    for _ in range(min(rounds, max(8, MOST_WORK // pairs))):
        placed, misfit = _fit(problem, order, limit)
        if misfit is None:
            return with_removed(problem, placed, removed)
        at = order.index(misfit)
        near = {n.index for n in problem.neighbours[misfit]}
        in_its_way = [place for place in range(at) if order[place] in near]
        if not in_its_way:
            return None
        order.insert(chance.randint(in_its_way[0], at), order.pop(at))
    return None


def _fit(problem: Problem, order: list[int], limit: int) -> tuple[Partial, int | None]:
    """First fit, up to the first buffer that ends above the limit."""
    placed: Partial = [None] * len(problem.buffers)
    for buffer in order:
        at = lowest_fit(problem, buffer, placed)
        if at + problem.buffers[buffer].size_bytes > limit:
            return placed, buffer
        placed[buffer] = at
    return placed, None
