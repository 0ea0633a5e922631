"""First fit in orders that tend to do well."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from diagmem.planning.compiled import PLAIN, machine
from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets, first_fit
from diagmem.planning.place.repair import Repair


def greedy(problem: Problem) -> Offsets:
    """The best of a few orders: by size, by the pressure of the steps that a buffer lives through, and backwards."""
    loops = machine(len(problem.near.near) // 10)
    fit = partial(first_fit, problem) if loops is PLAIN else Repair.of(problem, loops).first_fit
    best = fit(range(len(problem.buffers))) or ()
    for order in orders(problem):
        if problem.arena_bytes(best) <= problem.lower_bound_bytes:
            break
        best = fit(order, problem.arena_bytes(best) - 1) or best
    return best


def orders(problem: Problem) -> Iterator[list[int]]:
    buffers, indices = problem.buffers, range(len(problem.buffers))
    pressure = [max(problem.pressure[max(0, b.first_step) : b.end_step], default=0) for b in buffers]
    # An operation's output lies below its input, so of two that meet at a tight step the later one goes first.
    yield sorted(indices, key=lambda b: (-pressure[b], -buffers[b].first_step))
    yield sorted(indices, key=lambda b: -buffers[b].size_bytes)
    yield sorted(indices, key=lambda b: -buffers[b].first_step)
    yield sorted(indices, key=lambda b: (-pressure[b], -buffers[b].size_bytes))
    yield sorted(indices, key=lambda b: buffers[b].first_step)
