"""First fit in orders that tend to do well, and the paper's allocator (section IV): a heap whose next buffer is chosen,
not given.

The heap starts from one buffer at offset zero. The next is taken among those that live together with one already
placed: the one that, put at the lowest free place, ends lowest. Forwards starts at the first buffer, backwards at the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.planning.needs.problem import Problem
from diagmem.planning.place.fit import Offsets, Partial, lowest_fit
from diagmem.planning.place.local_search import SqueakyWheel


def greedy(problem: Problem) -> Offsets:
    """The best of a few orders: by size, by the pressure of the steps that a buffer lives through, and backwards."""
    fit = SqueakyWheel.of(problem).first_fit
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


def heap(problem: Problem) -> Offsets:
    """The better of forwards and backwards."""
    return min(modified_heap(problem, backwards=False), modified_heap(problem, backwards=True), key=problem.arena_bytes)


def modified_heap(problem: Problem, backwards: bool, latest_first: bool = False) -> Offsets:
    """Of two buffers that would end at the same address, the one that has waited longer beside a placed one goes first,
    then the one created first; or, if `latest_first`, the one created last. The paper does not say which."""
    waiting = in_order_of_creation(problem)
    created = {buffer: place for place, buffer in enumerate(waiting)}
    placed: Partial = [None] * len(waiting)
    ends: dict[int, int] = {}
    while waiting:
        # At the start, and if none that is left touches a placed one, take the one at the end of the row.
        chosen = waiting[-1 if backwards else 0]
        if ends:
            chosen = min(ends, key=lambda b: (ends[b], -created[b] if latest_first else 0))
        placed[chosen] = lowest_fit(problem, chosen, placed)
        waiting.remove(chosen)
        ends.pop(chosen, None)
        for other in waiting:
            if problem.buffers[chosen].lives_with(problem.buffers[other]):
                ends[other] = lowest_fit(problem, other, placed) + problem.buffers[other].size_bytes
    return tuple(offset for offset in placed if offset is not None)


def reordered_heap(problem: Problem) -> Offsets:
    """A plain heap in reverse order of creation, with the one buffer moved last that makes it smallest."""
    order = in_order_of_creation(problem)[::-1]
    orders = [order, *([b for b in order if b != last] + [last] for last in order)]
    wheel = SqueakyWheel.of(problem)
    return min((wheel.with_others({}, o) for o in orders), key=problem.arena_bytes)


def in_order_of_creation(problem: Problem) -> list[int]:
    """Buffers by the step that makes them."""
    return sorted(range(len(problem.buffers)), key=lambda b: (problem.buffers[b].first_step, b))
