"""Sets of buffers that are alive at once, and the bytes that each of them holds there: what the search stacks up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.flat import rows_of
from diagmem.planning.place.stack_loops import Sections

Held = dict[int, int]
"""Bytes by buffer, of those alive at some step."""


def cliques(problem: Problem, members: Sequence[int]) -> list[list[int]]:
    """The sets of members alive at once that are not part of a larger one."""
    return [[members[place] for place in held] for held in _kept(problem, members)]


def sections(problem: Problem, members: Sequence[int]) -> tuple[Sections, list[int]]:
    """The sections of a problem's members, by their place among the members, and the bytes held in each section."""
    kept = _kept(problem, members)
    first, last = [0] * len(members), [0] * len(members)
    held_by: list[list[int]] = [[] for _ in members]
    for number, held in enumerate(kept):
        for place, size in held.items():
            if not held_by[place]:
                first[place] = number
            last[place] = number
            held_by[place].append(size)
    return Sections(first, last, *rows_of(held_by), *rows_of([list(held) for held in kept])), [
        sum(held.values()) for held in kept
    ]


def _kept(problem: Problem, members: Sequence[int]) -> list[Held]:
    """What is held at each step, but for steps at which another one before or behind holds as much of everything."""
    kept: list[Held] = []
    for held in _held_by_step(problem, members):
        if kept and _is_within(held, kept[-1]):
            continue
        while kept and _is_within(kept[-1], held):
            kept.pop()
        kept.append(held)
    return kept


def _is_within(held: Held, other: Held) -> bool:
    return len(held) <= len(other) and all(other.get(place, -1) >= size for place, size in held.items())


def _held_by_step(problem: Problem, members: Sequence[int]) -> list[Held]:
    """What is held from each step at which a lifetime begins or ends to the next such step.

    A buffer holds its size, in whole units. Where the pressure is less than all that are alive take, some may share:
    those that begin there and may overlap, and those that may overlap others all the time. As it is not known which
    does, the difference is taken off each of them.
    """
    buffers, unit = problem.buffers, problem.unit_bytes
    times = sorted({t for b in buffers for t in (b.first_step, b.end_step)})
    place_of = {buffer: place for place, buffer in enumerate(members)}
    alive: list[list[int]] = [[] for _ in times]
    for index, buffer in enumerate(buffers):
        for at in range(bisect_left(times, buffer.first_step), bisect_left(times, buffer.end_step)):
            alive[at].append(index)
    sizes = [-(-b.size_bytes // unit) * unit for b in buffers]
    sharing, moving = _sharing(problem)
    found = []
    for at, live in enumerate(alive[:-1]):
        held = {index: sizes[index] for index in live}
        shared = _shared(problem, sum(held.values()), times[at], times[at + 1]) if sharing else 0
        if shared > 0:
            born = {b for b in live if b in sharing and buffers[b].first_step == times[at]}
            for index in (born | moving.intersection(live)) or live:
                held[index] = max(0, sizes[index] - shared)
        found.append({place_of[index]: size for index, size in held.items() if index in place_of})
    return [held for held in found if held]


def _sharing(problem: Problem) -> tuple[set[int], set[int]]:
    """Buffers that may overlap one that dies as they begin; and those that may overlap others at other times."""
    buffers = problem.buffers
    sharing: set[int] = set()
    moving: set[int] = set()
    for below, above in problem.overlaps:
        sharing.update((below, above))
        if buffers[below].first_step != buffers[above].end_step - 1:
            moving.update((below, above))
    return sharing, moving


def _shared(problem: Problem, taken: int, first: int, end: int) -> int:
    """Bytes less than those taken that no placement can do without in the steps [first, end)."""
    pressure = problem.pressure[max(first, 0) : max(end, 1)]
    return taken - max(pressure) if pressure else taken
